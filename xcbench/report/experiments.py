"""A paper's table or figure as data: what its rows run, what it measures, and what the paper concludes from it.

Each is a YAML file below `experiments/`, named by its path there: `eclare/table5`. A user's own file is named by its
path on disk. This module reads them; `tables` runs and fills them, `claims` tests what they claim.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Literal

from xcbench.defaults import DEFAULT_DATASET
from xcbench.errors import InputError, unknown_name
from xcbench.report.typed_yaml import read_yaml
from xcbench.runner.spec import Curve, RunSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One run of a table, or several that differ by seed and dataset only."""

    label: str
    method: str
    ablation: tuple[str, ...] = ()
    augment: tuple[str, ...] = ()
    rerank: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    ensemble: int = 1
    curve: Curve = "none"
    """Whether its runs have a learning curve, and on which points."""
    paper: str | None = None
    """The row's name in `experiments/paper/results.csv`, where it is not the label."""
    series: str | None = None
    """In a figure of lines: the line that this row is a point of."""
    x: float | None = None
    """In a figure of lines: where on the horizontal axis."""
    note: str = ""
    shared_note: str | None = None
    """The name of a note in `experiments/notes.yaml`, where many rows have the same; `load` makes it the note."""
    added: bool = False
    """Whether `method` names predictions of another program, which `xcbench add` put into the store."""

    def __post_init__(self) -> None:
        if self.ensemble < 1:
            raise ValueError(f"row {self.label!r}: an ensemble has at least 1 member, got {self.ensemble}")

    @property
    def paper_row(self) -> str:
        """What the paper calls this row."""
        return self.paper or self.label

    def spec(self, dataset: str, seed: int) -> RunSpec:
        """Return the run of this row on one dataset with one seed."""
        return RunSpec(
            method=self.method,
            dataset=dataset,
            ablations=self.ablation,
            augment=self.augment,
            rerank=self.rerank,
            overrides=self.overrides,
            seed=seed,
            ensemble=self.ensemble,
            curve=self.curve,
        )


@dataclass(frozen=True)
class Claim:
    """What the paper concludes from its table, in a form that can be tested on our runs.

    Either `better` beats each of `worse`, or the gain of the first row of `gain` over the second is larger than the
    same difference in `exceeds`. `margin` (in the metric's unit) is what the difference must exceed; a negative one
    says that no more than so much is lost.
    """

    says: str
    metrics: tuple[str, ...]
    better: str | None = None
    worse: tuple[str, ...] = ()
    gain: tuple[str, ...] = ()
    exceeds: tuple[str, ...] = ()
    margin: float = 0.0
    datasets: tuple[str, ...] = ()
    """Where the paper draws this conclusion, if not on all its datasets; the claim is tested only there."""
    labels_apart: bool = False
    """Whether test points that are themselves labels are also shown apart from all others."""

    def __post_init__(self) -> None:
        names_rows = self.better is not None or bool(self.worse)
        names_gains = bool(self.gain) or bool(self.exceeds)
        is_pair = self.better is not None and bool(self.worse) and not names_gains
        is_comparison_of_gains = len(self.gain) == 2 and len(self.exceeds) == 2 and not names_rows
        if not is_pair and not is_comparison_of_gains:
            raise ValueError("a claim has either `better` and `worse`, or two rows in `gain` and two in `exceeds`")
        if self.better in self.worse:
            raise ValueError(f"a claim compares different rows, but {self.better!r} stands on both sides")

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of all rows that the claim is about."""
        if self.better is None:
            return (*self.gain, *self.exceeds)
        return (self.better, *self.worse)


@dataclass(frozen=True)
class Figure:
    """How an experiment is drawn. Without one it is only a table."""

    kind: Literal["bins", "lines", "frequency", "measured"]
    x: str = ""
    y: str = ""
    bins: int = 5
    """In `bins`: how many groups of labels, equal in training pairs, from rare to popular."""
    by_k: bool = False
    """In `bins`: whether a panel to the left shows the metrics, which then differ by k alone, against k."""
    log_x: bool = False
    """In `measured`: whether the horizontal axis is logarithmic."""
    quantity: str = ""
    """In `measured`: the name under which a method reports the curve (see docs/guides/tables.md)."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper (or of a user)."""

    name: str
    title: str
    rows: tuple[Row, ...]
    metrics: tuple[str, ...] = ()
    paper: str = ""
    place: str = ""
    """Where in the paper, as `experiments/paper/results.csv` calls it: T5, Fig 6."""
    datasets: tuple[str, ...] = (DEFAULT_DATASET,)
    seeds: tuple[int, ...] = (0,)
    reference: str | None = None
    """The row that differences are taken to, usually the full method."""
    claims: tuple[Claim, ...] = ()
    figure: Figure | None = None
    examples: int = 0
    """How many test points are shown with their predictions, side by side, in the place of metrics."""
    note: str = ""

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        shows_only_data = self.figure is not None and self.figure.kind == "frequency"
        if not labels and not shows_only_data:
            raise ValueError("an experiment needs at least one row")
        if labels and not self.metrics and not self.examples:
            raise ValueError("an experiment with rows needs at least one metric")
        if not self.datasets or not self.seeds:
            raise ValueError("an experiment needs at least one dataset and one seed")
        if not _are_seeds(self.seeds):
            raise ValueError(f"seeds are different whole numbers from 0 up, got {list(self.seeds)}")

        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"two rows are called {repeated[0]!r}")
        if self.reference is not None:
            _check_row("reference", self.reference, labels)
        for claim in self.claims:
            for label in claim.rows:
                _check_row("claim", label, labels)

    def row(self, label: str) -> Row:
        """Return the row with this label."""
        return next(row for row in self.rows if row.label == label)


def _check_row(where: str, label: str, labels: Sequence[str]) -> None:
    if label not in labels:
        raise ValueError(f"{where}: {unknown_name('row', label, labels)}")


def _are_seeds(seeds: Sequence[int]) -> bool:
    return len(set(seeds)) == len(seeds) and min(seeds) >= 0


def folder() -> Path:
    """Return where the shipped experiments are: beside the sources, or inside the installed package."""
    return Path(str(resources.files("xcbench.experiments")))


def names() -> list[str]:
    """Return the names of all experiments: papers in alphabetical order, tables before figures."""
    result = []
    for group, group_folder in _groups().items():
        result += [f"{group}/{path.stem}" for path in group_folder.glob("*.yaml")]
    return sorted(result, key=_by_group_and_number)


def load(name: str) -> Experiment:
    """Read an experiment.

    Parameters
    ----------
    name
        The name of a shipped one (`eclare/table5`), or the path of a YAML file.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return _with_notes(read_yaml(path, Experiment, name=path.stem))
    known = names()
    if name not in known:
        raise unknown_name("table or figure", name, known)
    group, _, stem = name.partition("/")
    return _with_notes(read_yaml(_groups()[group] / f"{stem}.yaml", Experiment, name=name))


def _with_notes(experiment: Experiment) -> Experiment:
    """Return the experiment with the text of each shared note in place of its name."""
    rows = [_with_note(row) for row in experiment.rows]
    return replace(experiment, rows=tuple(rows))


def _with_note(row: Row) -> Row:
    if row.shared_note is None:
        return row
    notes = shared_notes()
    if row.shared_note not in notes:
        raise InputError(f"row {row.label!r}: {unknown_name('shared note', row.shared_note, notes)}")
    return replace(row, note=notes[row.shared_note], shared_note=None)


@dataclass(frozen=True)
class _SharedNotes:
    notes: dict[str, str]


@lru_cache(maxsize=1)
def shared_notes() -> dict[str, str]:
    """Return the notes that rows of several tables have, by name: `experiments/notes.yaml`."""
    return read_yaml(folder() / "notes.yaml", _SharedNotes).notes


def _groups() -> dict[str, Path]:
    """Return the folders of experiments by name: one per paper, and those that entry points name.

    A folder of ours with code in it is no paper: `search/` lists how defaults were chosen.
    """
    groups = {}
    for point in metadata.entry_points(group="xcbench.tables"):
        group_folder = _folder_of(point)
        if group_folder is not None:
            groups[point.name] = group_folder
    for group_folder in folder().iterdir():
        if any(group_folder.glob("*.yaml")) and not any(group_folder.glob("*.py")):
            groups[group_folder.name] = group_folder
    return groups


def _folder_of(point: metadata.EntryPoint) -> Path | None:
    """Return the folder that an entry point names; None, with a warning, if there is none."""
    try:
        return Path(str(resources.files(point.value)))
    except (ImportError, TypeError) as error:
        _log.warning("the tables of entry point %s cannot be found: %s", point.name, error)
        return None


@dataclass(frozen=True)
class Planned:
    """Names that table files may use before anyone has built them: the rows stay visible and say why they are empty.

    Anything that is neither registered nor listed here is a misspelling.
    """

    methods: dict[str, str]
    ablations: dict[str, list[str]]
    augmentations: dict[str, str]
    rerankers: dict[str, str]


@lru_cache(maxsize=1)
def planned() -> Planned:
    """Return the names that `experiments/planned.yaml` lists."""
    return read_yaml(folder() / "planned.yaml", Planned)


def _by_group_and_number(name: str) -> tuple[str, bool, int, str]:
    group, _, place = name.partition("/")
    digits = "".join(character for character in place if character.isdigit())
    return group, not place.startswith("table"), int(digits or 0), place


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds in a text such as `0,1,2`; anything else is an `InputError`."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"seeds are whole numbers with commas between them, as in 0,1,2; got {text!r}") from None
    if not _are_seeds(seeds):
        raise InputError(f"seeds are different whole numbers from 0 up, got {text!r}")
    return seeds
