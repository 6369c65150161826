"""What was tried, as tables: `NAME.yaml` has the variants of a method or reranker, `NAME.csv` what they reached.

Columns of the csv, one row per variant and slice; what is not known is empty:

variant, status
    A name, and whether it is `listed` in the YAML, `gone` (it needs code that was not kept, or it was never a variant
    of its own), or a `reference` (another method or reranker, to compare with).
method, augment
    What was trained; behind it the reranker, where the table is one of a reranker. `decaf+eclare` is the mean of both.
dataset, fold, seed
    The slice that was held out. `1+2` is the mean of folds 1 and 2; `by stem` is another kind of slice (see the note).
vocabulary
    `slice`: learnt without the points held out, as it is now. `whole`: it still counted their words, which makes
    figures a point or two too high; compare them only with each other.
P@1, P@5, PSP@1, PSP@5, R@10, seconds
    Metrics in percent, and CPU seconds.
note
    What else a figure depends on.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
METRICS = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10")
COLUMNS = (
    "variant",
    "status",
    "method",
    "augment",
    "dataset",
    "fold",
    "seed",
    "vocabulary",
    *METRICS,
    "seconds",
    "note",
)


def read_variants(name: str, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The variants of a method or reranker: by name, the settings that differ from the defaults."""
    text = (folder / f"{name}.yaml").read_text("utf-8")
    variants: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return variants


def read_trials(name: str, folder: Path = FOLDER) -> list[dict[str, str]]:
    """The rows of a table, as text."""
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append_trial(
    name: str,
    variant: str,
    method: str,
    augment: Sequence[str],
    dataset: str,
    fold: int,
    seed: int,
    values: Mapping[str, float],
    seconds: float,
    folder: Path = FOLDER,
) -> None:
    """Append what one variant reached on one slice.

    Parameters
    ----------
    name
        Which table: the name of a reranker, or else of the method.
    variant
        The name that the YAML gives it.
    method, augment
        What was trained.
    dataset, fold, seed
        The slice, and the seed of the run.
    values
        The metrics, in percent, by name.
    seconds
        CPU time of training and prediction.
    folder
        Where the tables are.
    """
    row = {
        "variant": variant,
        "status": "listed",
        "method": method,
        "augment": "+".join(augment),
        "dataset": dataset,
        "fold": fold,
        "seed": seed,
        "vocabulary": "slice",
        "seconds": f"{seconds:.1f}",
    }
    for metric in METRICS:
        row[metric] = f"{values[metric]:.2f}"

    path = folder / f"{name}.csv"
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
