"""The same command gives the same figure: in another process, and with or without what an earlier one left behind."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.methods.problems import needs
from tests.pinned.models import names
from xcbench.runner.store import Record, Store

ROOT = Path(__file__).parents[2]
NO_SEED = {"bonsai", "parabel"}
"""Their library, omikuji, draws at random and takes no seed; tables say so."""


def train_all(store: Path, cache: Path) -> dict[str, Record]:
    """Train every pinned run in a process of its own."""
    available = [name for name in names() if not needs(name).args[0] and name not in NO_SEED]
    command = [sys.executable, "-m", "tests.pinned.repeat", str(store), str(cache), *available]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {record.rerank or record.method: record for record in Store(store).records()}


def differing(records: dict[str, Record], expected: dict[str, Record]) -> list[str]:
    """The plug-ins of which one bit of predictions or scores differs."""
    assert records.keys() == expected.keys()
    result = []
    for name, record in records.items():
        found = record.predictions()
        wanted = expected[name].predictions()
        same = np.array_equal(found.indices, wanted.indices) and np.array_equal(found.scores, wanted.scores)
        if not same:
            result.append(name)
    return result


def test_every_method_repeats_itself_to_the_last_bit(tmp_path):
    """One test, since each of its three processes trains all methods."""
    first = train_all(tmp_path / "runs", tmp_path / "stages")
    cold = train_all(tmp_path / "cold runs", tmp_path / "cold stages")
    assert differing(cold, first) == []

    warm = train_all(tmp_path / "warm runs", tmp_path / "stages")
    computed = [name for name, record in warm.items() if any(stage.state == "ran" for stage in record.stages)]
    assert computed == []
    assert differing(warm, first) == []
