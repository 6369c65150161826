"""What a plug-in promises to the runner, and what the runner gives it.

A method is one class with a typed config. It names the variations of its paper (`ablations`), the settings with which
the paper ran it (`presets`), its steps (`stages`), and says how it learns (`fit`). An augmentation changes the data
before training, a reranker the predictions afterwards; both compose with every method.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.costs import StageCost
from xcbench.data import Dataset, TopK
from xcbench.plugins.ranges import AnyRange
from xcbench.plugins.stages import Stage, Values

Patch = Mapping[str, Any]
"""Dotted config keys and the values they take: `{"graph.kind": "cooccurrence"}`."""

Config = TypeVar("Config")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Ablation:
    """One row of a paper's ablation table: the name it has there, and the settings it changes."""

    title: str
    patch: Patch


@dataclass(frozen=True)
class NoConfig:
    """The config of a plug-in without settings."""


class Predictor(Protocol):
    """A trained model. It is saved in one folder and needs nothing of the training data.

    A method's own predictor is a subclass; predictors of the core (`xcbench.shortlist.predictors`) have the same
    methods. A predictor that can compute on a GPU also has the method of `MovablePredictor`; all others predict on the
    CPU, whichever device a run has.
    """

    @abstractmethod
    def predict(self, X: sp.csr_array, k: int) -> TopK:
        """The k best labels of each row of X, k columns wide; -1 where there are fewer labels than that."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything `load` needs; `xcbench.plugins.save_values` does it for arrays and tensors."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Predictor:
        """What `save` wrote. Nothing in the folder may run code: arrays, tensors and JSON, never a pickle."""


class PlacedPredictor(Protocol):
    """A predictor wherever its tables live. It is saved from there, but loaded by the type that it came from."""

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        """The k best labels of each row of X, in main memory."""

    def save(self, folder: Path) -> None:
        """Write what the predictor on the CPU would write."""


@runtime_checkable
class MovablePredictor(Protocol):
    """A predictor that can compute on a device."""

    def to(self, device: str) -> PlacedPredictor:
        """A copy whose tables live on the device (`cuda`, `cuda:1` ...); for `cpu`, the predictor itself.

        Its predictions are those of the CPU up to the rounding of float32.
        """


@runtime_checkable
class TextPredictor(Protocol):
    """A predictor that reads the words themselves (their order, say) is given titles instead of rows of X."""

    def predict_titles(self, titles: Sequence[str], k: int) -> TopK: ...


@runtime_checkable
class VectorPredictor(Protocol):
    """A predictor that can say which vectors it gives to points: a reranker may read them beside the words."""

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> npt.NDArray[np.float32]:
        """The vectors [n, D] of the rows of X; `titles` are the same points as text."""


class Ranking(Protocol):
    """A trained method with all members of its ensemble: what a reranker reranks."""

    def predict(self, X: sp.csr_array, k: int, titles: Sequence[str] | None = None) -> TopK:
        """The k best labels of each row; `titles` are the same points as text, for methods that read words."""

    def with_vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> sp.csr_array:
        """X with the vector of each point behind its features: of unit length, those of an ensemble side by side."""


class Trained(Ranking, Protocol):
    """The method, trained on the data that a reranker is given."""

    def retrain(self, data: Dataset) -> tuple[Dataset, Ranking]:
        """Train the same method with the same settings and seed on other data.

        Returns that data as it was augmented, and the trained method. What the latter predicts for points that this
        training left out is what it would predict for new points.
        """


class Rescorer(ABC):
    """A trained reranker: predictions in, better predictions out. It is saved in one folder like a predictor."""

    reads_vectors: bool = False
    """Whether X is given to `rescore` as `Ranking.with_vectors` returns it."""

    @abstractmethod
    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        """Predictions of the same shape for the same points (rows of X, titles); labels may enter and leave."""

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Rescorer: ...


class Run(Protocol):
    """What a plug-in is given beside the data."""

    @property
    def seed(self) -> int:
        """The seed of this run, or of this member of an ensemble; a stage has its own, made of it."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda`, `cuda:1` ...: what torch calls it."""

    @property
    def unaugmented(self) -> Dataset:
        """The data before any augmentation: what graphs, clusters and propensities should be counted on."""

    def stage(self, stage: Stage, data: Dataset) -> Values:
        """The output of one of the plug-in's stages: from the cache, or computed now.

        Parameters
        ----------
        stage
            A function under `@stage`, listed in the plug-in's `stages`.
        data
            What `fit` was given; a stage that reads `data` reads this.
        """

    def log(self, message: str) -> None:
        """One line for the user and for the run's log."""

    def report(self, name: str, value: Any) -> None:
        """Keep a measurement (JSON: a curve, a count) in the run's record, for a figure that metrics cannot give."""

    def progress(self, items: Iterable[Item], title: str, total: int | None = None) -> Iterable[Item]:
        """Iterate under a progress bar; plain lines where there is no terminal."""

    def owned_by(self, plugin: PlugIn[Any]) -> Run:
        """The same run for a plug-in that this one calls: its stages are then shared with its own runs."""


class PlugIn(ABC, Generic[Config]):
    """What methods, augmentations and rerankers have in common."""

    name: ClassVar[str]
    code_version: ClassVar[str]
    """Set by the registry: `version`, and for plug-ins from elsewhere also what identifies their code."""

    config_type: ClassVar[type] = NoConfig
    version: ClassVar[str] = "1"
    """Raise it whenever the same config gives another result than before; stored results are then not reused."""
    stages: ClassVar[tuple[Stage, ...]] = ()
    """Its steps, in order. `fit` runs them; a dry run shows them."""
    citation: ClassVar[str] = ""

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def unavailable(cls) -> str | None:
        """Why it cannot run on this machine although all that it imports is there; None if it can."""
        return None


class Method(PlugIn[Config]):
    """Learns from a dataset. The first line of a method's docstring is its title in listings."""

    predictor_type: ClassVar[type[Predictor]]
    ablations: ClassVar[Mapping[str, Ablation]] = {}
    presets: ClassVar[Mapping[str, Patch]] = {}
    """Settings per dataset, such as the paper's. The preset named like the dataset of a run is applied by default."""
    search_space: ClassVar[Mapping[str, AnyRange]] = {}
    """Config keys and the ranges in which `xcbench tune` searches them."""
    can_ignore_pairs: ClassVar[bool] = False
    """Whether its training ignores the pairs of `data.train.ignored`: they count neither as true nor as false."""
    needs_titles: ClassVar[bool] = False
    """Whether it reads the words of a title in their order. A dataset without titles is then refused at once."""
    can_mix_points: ClassVar[bool] = False
    """Whether its training mixes points as `data.train.mixing` says: `Points` of `xcbench.train` does it."""
    augment: ClassVar[tuple[str, ...]] = ()
    """Augmentations that belong to the method; they are applied before those that a run names."""
    repeatable: ClassVar[bool] = True
    """False where a library draws random numbers that cannot be seeded: two trainings then differ."""

    @abstractmethod
    def fit(self, data: Dataset, run: Run) -> Predictor:
        """Learn from `data.train` and the label text; never look at `data.test`."""

    def reads_titles(self) -> bool:
        """Whether it reads the words of a title in their order with the settings that it has."""
        return self.needs_titles

    def check_data(self, data: Dataset) -> None:
        """Raise an `InputError` where the data lacks what the method needs; asked before anything is computed."""
        return

    def estimate_memory(self, data: Dataset) -> int | None:
        """Bytes that training will add to this process at its peak, or None if that is not known."""
        return None

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost] | None:
        """What its stages will compute and write, by their names, or None if that is not known.

        A plan makes times and sizes of it. `xcbench.train` counts for modules that rank all labels or shortlists
        (`cost_of_ranking_all`, `cost_of_ranking_shortlists`). Stages that write little and train nothing may be left
        out.
        """
        return None

    def estimate_device_memory(self, data: Dataset) -> int | None:
        """Bytes that training on a GPU will take there at its peak, or None if that is not known."""
        return None


class Augmentation(PlugIn[Config]):
    """Makes another dataset out of a dataset."""

    ignores_pairs: ClassVar[bool] = False
    """Whether it sets `train.ignored`, and so needs a method with `can_ignore_pairs`."""
    mixes_points: ClassVar[bool] = False
    """Whether it sets `train.mixing`, and so needs a method with `can_mix_points`."""

    @abstractmethod
    def apply(self, data: Dataset, run: Run) -> Dataset:
        """A dataset with other training points; labels and test points stay as they are."""


class Reranker(PlugIn[Config]):
    """Changes the predictions of any method."""

    rescorer_type: ClassVar[type[Rescorer]]

    @property
    def reads_vectors(self) -> bool:
        """Whether it asks for the vectors of points. A method without them is then refused at once."""
        return False

    @abstractmethod
    def fit(self, data: Dataset, run: Run, first: Trained) -> Rescorer:
        """Learn what rescoring needs.

        Parameters
        ----------
        data
            The data that the method was trained on. Never look at `data.test`.
        run
            Seed, device, stages, log lines and progress.
        first
            The trained method; a reranker that needs no second training may ask for a mere `Ranking`.
        """

    def retraining_data(self, run: Run) -> Sequence[Dataset]:
        """The datasets that `fit` will ask `first` to be retrained on; a dry run shows those stages, too."""
        return ()

    def estimate_memory(self, data: Dataset) -> int:
        """Bytes that `fit` will add to this process at its peak, after the method's training has ended."""
        return 0


Registered = TypeVar("Registered", bound=PlugIn[Any])


def register_method(name: str) -> Callable[[type[Registered]], type[Registered]]:
    """Give a method its name. The registry finds this line without importing the module: keep the name literal."""
    return _register(name, Method)


def register_augmentation(name: str) -> Callable[[type[Registered]], type[Registered]]:
    """Give an augmentation its name; see `register_method`."""
    return _register(name, Augmentation)


def register_reranker(name: str) -> Callable[[type[Registered]], type[Registered]]:
    """Give a reranker its name; see `register_method`."""
    return _register(name, Reranker)


def check_name(name: str, kind: str) -> None:
    """Names become parts of file names and command lines, so only plain characters are allowed."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise ValueError(f"a {kind}'s name is letters, digits and _ . + - only, got {name!r}")


def _register(name: str, kind: type[PlugIn[Any]]) -> Callable[[type[Registered]], type[Registered]]:
    check_name(name, kind.__name__.lower())

    def decorate(cls: type[Registered]) -> type[Registered]:
        if not issubclass(cls, kind):
            raise TypeError(f"{cls.__name__} is registered as {name!r} but is not a subclass of {kind.__name__}")
        if not is_dataclass(cls.config_type):
            raise TypeError(f"{cls.__name__}.config_type must be a dataclass, got {cls.config_type!r}")
        reserved = {"augment", "rerank"} & {field.name for field in fields(cls.config_type)}
        if reserved:
            raise TypeError(f"{cls.config_type.__name__}.{min(reserved)}: this key leads to the settings of plug-ins")

        cls.name = name
        cls.code_version = cls.version
        return cls

    return decorate
