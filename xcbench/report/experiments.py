"""A paper's table or figure as data: what its rows run, what it measures, and what the paper concludes from it.

Each is a YAML file below `experiments/`, named by its path: `eclare/table5`. A user's own file is named by its path
on disk. This module reads them; `tables` runs and fills them, `claims` tests what they claim.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Literal

from xcbench.errors import InputError, unknown_name
from xcbench.report.typed_yaml import read_yaml
from xcbench.runner.spec import DEFAULT_DATASET, RunSpec

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
    paper: str | None = None
    """The row's name in `experiments/paper/results.csv`, where it is not the label."""
    series: str | None = None
    """In a figure of lines: the line that this row is a point of."""
    x: float | None = None
    """In a figure of lines: where on the horizontal axis."""
    note: str = ""

    def __post_init__(self) -> None:
        if self.ensemble < 1:
            raise ValueError(f"row {self.label!r}: an ensemble has at least 1 member, got {self.ensemble}")

    @property
    def paper_row(self) -> str:
        return self.paper or self.label

    def spec(self, dataset: str, seed: int) -> RunSpec:
        """The run behind this row on one dataset with one seed."""
        return RunSpec(
            method=self.method,
            dataset=dataset,
            ablations=self.ablation,
            augment=self.augment,
            rerank=self.rerank,
            overrides=self.overrides,
            seed=seed,
            ensemble=self.ensemble,
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

    def __post_init__(self) -> None:
        pair = self.better is not None and bool(self.worse)
        interaction = len(self.gain) == 2 and len(self.exceeds) == 2
        if pair == interaction or (not pair and (self.better or self.worse)) or (pair and (self.gain or self.exceeds)):
            raise ValueError("a claim has either `better` and `worse`, or two rows in `gain` and two in `exceeds`")
        if self.better in self.worse:
            raise ValueError(f"a claim compares different rows, but {self.better!r} stands on both sides")

    @property
    def rows(self) -> tuple[str, ...]:
        first = () if self.better is None else (self.better,)
        return (*first, *self.worse, *self.gain, *self.exceeds)


@dataclass(frozen=True)
class Figure:
    """How an experiment is drawn. Without one it is only a table."""

    kind: Literal["bins", "lines", "frequency", "measured"]
    x: str = ""
    y: str = ""
    bins: int = 5
    """In `bins`: how many groups of labels, equal in training pairs, from rare to popular."""
    quantity: str = ""
    """In `measured`: the name under which a method reports the curve (see docs/tables.md)."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper (or of a user)."""

    name: str
    title: str
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    paper: str = ""
    place: str = ""
    """Where in the paper, as `experiments/paper/results.csv` calls it: T5, Fig 6."""
    datasets: tuple[str, ...] = (DEFAULT_DATASET,)
    seeds: tuple[int, ...] = (0,)
    reference: str | None = None
    """The row that differences are taken to, usually the full method."""
    claims: tuple[Claim, ...] = ()
    figure: Figure | None = None
    note: str = ""

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        if not labels and (self.figure is None or self.figure.kind != "frequency"):
            raise ValueError("an experiment needs at least one row")
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"two rows are called {twice[0]!r}")
        if not self.datasets or not self.seeds:
            raise ValueError("an experiment needs at least one dataset and one seed")
        if len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds are different whole numbers from 0 up, got {list(self.seeds)}")
        if labels and not self.metrics:
            raise ValueError("an experiment with rows needs at least one metric")
        for where, named in [("reference", (self.reference,)), *(("claim", claim.rows) for claim in self.claims)]:
            for label in named:
                if label is not None and label not in labels:
                    raise ValueError(f"{where}: {unknown_name('row', label, labels)}")

    def row(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)


def folder() -> Path:
    """Where the shipped experiments are: beside the sources, or inside the installed package."""
    return Path(str(resources.files("xcbench.experiments")))


def names() -> list[str]:
    """Every experiment that has a name: papers in alphabetical order, tables before figures."""
    found = [f"{group}/{path.stem}" for group, place in _groups().items() for path in place.glob("*.yaml")]
    return sorted(found, key=_by_group_and_number)


def load(name: str) -> Experiment:
    """The experiment of that name (`eclare/table5`), or in that file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        return read_yaml(path, Experiment, name=path.stem)
    known = names()
    if name not in known:
        raise unknown_name("table or figure", name, known)
    group, _, stem = name.partition("/")
    return read_yaml(_groups()[group] / f"{stem}.yaml", Experiment, name=name)


def _groups() -> dict[str, Path]:
    """The folders of experiments by name: one a paper, and those that entry points in `xcbench.tables` name.

    A folder of ours with code in it is no paper: `search/` lists how defaults were chosen.
    """
    theirs = {point.name: _folder_of(point) for point in metadata.entry_points(group="xcbench.tables")}
    papers = (p for p in folder().iterdir() if any(p.glob("*.yaml")) and not any(p.glob("*.py")))
    ours = {place.name: place for place in papers}
    return {name: place for name, place in theirs.items() if place is not None} | ours


def _folder_of(point: metadata.EntryPoint) -> Path | None:
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
    return read_yaml(folder() / "planned.yaml", Planned)


def _by_group_and_number(name: str) -> tuple[str, bool, int, str]:
    group, _, place = name.partition("/")
    digits = "".join(c for c in place if c.isdigit())
    return group, not place.startswith("table"), int(digits or 0), place


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2` as seeds."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"seeds are whole numbers with commas between them, as in 0,1,2; got {text!r}") from None
    if len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise InputError(f"seeds are different whole numbers from 0 up, got {text!r}")
    return seeds
