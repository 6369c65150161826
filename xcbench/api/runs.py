"""Runs for Python programs: start one, or take one from the store, and predict with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import scipy.sparse as sp

from xcbench.api.answers import Prediction
from xcbench.api.inputs import as_names, as_settings, check_text, check_whole
from xcbench.api.predicting import LoadedModel
from xcbench.data import Dataset, TopK
from xcbench.data.catalog import load_dataset
from xcbench.defaults import DEFAULT_DATASET
from xcbench.errors import InputError
from xcbench.evaluation.thresholds import Thresholds
from xcbench.runner.execute import run as execute
from xcbench.runner.model import load_model
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.store import Record, Store
from xcbench.runner.thresholds import load_thresholds

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """A finished run: its figures, its predictions for the test points, and its model. Made by `run` and `load_run`.

    Parameters
    ----------
    record
        What the store keeps of it.
    data
        Its dataset, where that was handed over in Python.
    method_file
        The file of its method, if that is neither built in nor installed.
    """

    def __init__(self, record: Record, data: Dataset | None = None, method_file: str | None = None) -> None:
        self.record = record
        self._data = data
        self._method_file = method_file

    def __repr__(self) -> str:
        name = ""
        if self.record.name:
            name = f" {self.record.name!r}"
        figure = ""
        if "P@1" in self.metrics:
            figure = f": P@1 {self.metrics['P@1']:.2f}"
        return f"<Run{name} {self.id} on {self.record.dataset}{figure}>"

    @property
    def id(self) -> str:
        """The run's id in the store."""
        return self.record.id

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that the run recorded, in percent."""
        return {name: interval.value for name, interval in self.record.metrics.items()}

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset that the run was made on."""
        if self._data is not None:
            return self._data
        data = load_dataset(self.record.dataset_source)
        if data.fingerprint != self.record.fingerprint:
            raise InputError(
                f"dataset {self.record.dataset!r} is not what run {self.id} was made on: its content differs"
            )
        return data

    @cached_property
    def model(self) -> LoadedModel:
        """The trained model."""
        model = load_model(self.record, self._method_file)
        if model.encoder is None:
            return LoadedModel(model)
        return LoadedModel(model, feature_count=model.encoder.feature_count)

    def test_predictions(self) -> TopK:
        """Return the stored predictions for the test points."""
        return self.record.predictions()

    def thresholds(self) -> Thresholds:
        """Return the thresholds that `xcbench threshold` chose for the run."""
        return load_thresholds(self.record)

    @overload
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = ...,
        *,
        threshold: float | Literal["auto"] | None = ...,
        as_frame: Literal[False] = ...,
    ) -> list[list[Prediction]]: ...
    @overload
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = ...,
        *,
        threshold: float | Literal["auto"] | None = ...,
        as_frame: Literal[True],
    ) -> pd.DataFrame: ...
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = 10,
        *,
        threshold: float | Literal["auto"] | None = None,
        as_frame: bool = False,
    ) -> list[list[Prediction]] | pd.DataFrame:
        """Predict labels of new points.

        Parameters
        ----------
        titles
            A list or column of titles, or sparse features, for a run on data without text.
        k
            How many labels per point, at most.
        threshold
            Keep only labels whose scores reach it; `auto` takes what `xcbench threshold` chose.
        as_frame
            Return a pandas frame with a row per predicted label in the place of lists.

        Returns
        -------
        list or pandas.DataFrame
            For each point the pairs (label, score), best first; or columns `row, title, rank, label, score`. A title
            without text has no labels.
        """
        limit: float | Thresholds | None
        if threshold == "auto":
            limit = self.thresholds()
        elif isinstance(threshold, str):
            raise InputError(f"a threshold is a number or 'auto', got {threshold!r}")
        else:
            limit = threshold
        model = self.model
        if sp.issparse(titles) and model.feature_count is None:
            model = dataclasses.replace(model, feature_count=self.dataset.feature_count)
        return model.predict(titles, k, limit, as_frame)

    def evaluate(
        self,
        metrics: Sequence[str] | None = None,
        *,
        threshold: float | Literal["auto"] | None = None,
    ) -> dict[str, float]:
        """Evaluate the stored predictions; see `xcbench.evaluate`."""
        from xcbench.api.evaluating import evaluate

        return evaluate(self, metrics=metrics, threshold=threshold)


def run(
    method: str,
    dataset: str | Path | Dataset = DEFAULT_DATASET,
    *,
    ablations: Sequence[str] = (),
    augment: Sequence[str] = (),
    rerank: str | None = None,
    preset: str = "auto",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    ensemble: int = 1,
    name: str | None = None,
    store: str | Path | None = None,
    device: str = "auto",
    overwrite: Literal["keep", "stale", "redo"] = "keep",
) -> Run:
    """Train, predict the test points, evaluate, and keep the record; a run that is in the store returns at once.

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    dataset
        A dataset's name, the path of one, or a `Dataset`.
    ablations
        Named variations of the method.
    augment
        Augmentations of the training data, in this order.
    rerank
        A reranker of the predictions.
    preset
        A preset's name; `auto` takes the one named like the dataset, if there is one; `none` takes none.
    settings
        Config keys and values: `{"neighbours": 20}`.
    seed
        Decides everything random.
    ensemble
        How many members are trained and averaged.
    name
        What `load_run` will know it by.
    store
        The folder of run records; by default in XCBENCH_HOME.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    overwrite
        What to do about a stored run: `keep` returns it, `stale` runs again if other code made it, `redo` always.

    Returns
    -------
    Run
        Figures, predictions and model.
    """
    data = None
    source = str(dataset)
    if isinstance(dataset, Dataset):
        data = dataset
        source = dataset.name

    strategies = {strategy.value: strategy for strategy in OverwriteStrategy}
    if overwrite not in strategies:
        raise InputError(f"overwrite is one of {', '.join(strategies)}, got {overwrite!r}")

    spec = RunSpec(
        method=check_text(method, "method"),
        dataset=source,
        ablations=as_names(ablations, "ablations"),
        augment=as_names(augment, "augment"),
        rerank=rerank,
        preset=check_text(preset, "preset"),
        overrides=as_settings(settings),
        seed=check_whole(seed, "seed"),
        ensemble=check_whole(ensemble, "ensemble"),
    )
    record = execute(spec, data=data, store=store, device=device, overwrite=strategies[overwrite], name=name)
    return Run(record, data, _method_file(method))


def load_run(run: str | Path, *, store: str | Path | None = None, method: str | None = None) -> Run:
    """Take a finished run from the store.

    Parameters
    ----------
    run
        Its id or the start of it, `latest`, the name that it was given, `METHOD@DATASET`, or the folder of its record.
    store
        The folder of run records; by default in XCBENCH_HOME.
    method
        The file of the run's method, if that is neither built in nor installed.
    """
    if not isinstance(run, str | Path):
        raise InputError(f"a run is named by its id or name, got {run!r}")
    return Run(Store(store).find(str(run)), method_file=method)


def _method_file(method: str) -> str | None:
    if ".py" in method:
        return method
    return None
