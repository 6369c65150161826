"""Train every pinned run in this process: python -m tests.pinned.repeat STORE CACHE NAME ..."""

import sys
from pathlib import Path

from tests.pinned.models import data, specification
from xcbench.runner.execute import run
from xcbench.runner.stage_cache import StageCache


def main() -> None:
    store, cache, *wanted = sys.argv[1:]
    for name in wanted:
        run(specification(name), data=data(), store=store, cache=StageCache(Path(cache)))


if __name__ == "__main__":
    main()
