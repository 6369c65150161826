"""What results/ keeps stays small as methods are added: it is in the repository, and so in all of its history."""

from pathlib import Path

from xcbench.runner.store import Store

RESULTS = Path(__file__).parents[2] / "results"
MOST_BYTES = 25_000_000
MOST_BYTES_PER_FILE = 1_000_000
MOST_BYTES_PER_RUN = 60_000


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_folder_is_small():
    assert size(RESULTS) < MOST_BYTES
    large = [path for path in RESULTS.rglob("*") if path.is_file() and path.stat().st_size > MOST_BYTES_PER_FILE]
    assert large == []


def test_runs_are_kept_by_their_hits():
    """Predictions are kept only of the few runs that the notebooks show."""
    records = list(Store(RESULTS / "runs").records())
    assert all(record.is_summary for record in records)
    assert all(record.depth == 20 for record in records)
    without_predictions = [record for record in records if not (record.folder / "predictions.npz").exists()]
    assert len(without_predictions) > 0.9 * len(records)
    assert max(size(record.folder) for record in without_predictions) < MOST_BYTES_PER_RUN
