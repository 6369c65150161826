"""Make pinned models anew: python -m tests.pinned NAME ...; without names, those that are missing."""

import shutil
import sys

from tests.pinned.models import names, pin, pinned


def main() -> None:
    stored = pinned()
    wanted = sys.argv[1:]
    if not wanted:
        wanted = [name for name in names() if name not in stored]
    for name in wanted:
        if name in stored:
            shutil.rmtree(stored[name].folder)
        print(pin(name).folder)


if __name__ == "__main__":
    main()
