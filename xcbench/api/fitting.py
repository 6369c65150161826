"""`fit`: train a method on plain lists, without a dataset or a store."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import scipy.sparse as sp

from xcbench.api.answers import Prediction
from xcbench.api.inputs import (
    LabelName,
    Labels,
    as_features,
    as_labels,
    as_names,
    as_settings,
    as_titles,
    check_text,
    check_whole,
)
from xcbench.api.predicting import LoadedModel
from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.assemble import text_features
from xcbench.errors import InputError
from xcbench.evaluation.thresholds import Thresholds
from xcbench.runner.environment import check_device, choose_device
from xcbench.runner.model import Model
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.training import context_of, train
from xcbench.threads import set_threads

if TYPE_CHECKING:
    import pandas as pd


class Fitted:
    """A method trained on plain lists. Made by `fit`.

    Parameters
    ----------
    method
        The method's name.
    model
        The trained model with the names of its labels.
    points
        How many points it was trained on.
    """

    def __init__(self, method: str, model: LoadedModel, points: int) -> None:
        self.method = method
        self.model = model
        self.points = points

    def __repr__(self) -> str:
        return f"<{self.method} fitted on {self.points} points with {len(self.labels)} labels>"

    @property
    def labels(self) -> list[LabelName]:
        """The labels that it can predict, sorted."""
        return list(self.model.label_names)

    @overload
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = ...,
        *,
        threshold: float | Thresholds | None = ...,
        as_frame: Literal[False] = ...,
    ) -> list[list[Prediction]]: ...
    @overload
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = ...,
        *,
        threshold: float | Thresholds | None = ...,
        as_frame: Literal[True],
    ) -> pd.DataFrame: ...
    def predict(
        self,
        titles: Sequence[str] | sp.sparray,
        k: int = 10,
        *,
        threshold: float | Thresholds | None = None,
        as_frame: bool = False,
    ) -> list[list[Prediction]] | pd.DataFrame:
        """Predict labels of new points; see `Run.predict`.

        Parameters
        ----------
        titles
            Titles, or sparse features if it was fitted on features.
        k
            How many labels per point, at most.
        threshold
            Keep only labels whose scores reach it.
        as_frame
            Return a pandas frame in the place of lists.
        """
        return self.model.predict(titles, k, threshold, as_frame)


def fit(
    method: str,
    titles: Sequence[str] | sp.sparray,
    labels: Sequence[Sequence[LabelName]] | sp.sparray,
    *,
    ablations: Sequence[str] = (),
    augment: Sequence[str] = (),
    rerank: str | None = None,
    settings: Mapping[str, Any] | None = None,
    text_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    ensemble: int = 1,
    device: str = "auto",
) -> Fitted:
    """Train a method on titles and their labels. Nothing is kept but what is returned.

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    titles
        A title per point; or sparse features, a row per point, for methods that read no text.
    labels
        The labels of each point, as texts or whole numbers; or a sparse matrix of zeros and ones, points by labels.
        Labels that are texts are read by methods that read label text.
    ablations
        Named variations of the method.
    augment
        Augmentations of the training data.
    rerank
        A reranker of the predictions.
    settings
        Config keys and values: `{"neighbours": 20}`.
    text_options
        How titles become features: the options of `xcbench data import`, such as `{"tokenizer": "ngrams"}`.
    seed
        Decides everything random.
    ensemble
        How many members are trained and averaged.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.

    Returns
    -------
    Fitted
        What predicts new points.
    """
    spec = RunSpec(
        method=check_text(method, "method"),
        ablations=as_names(ablations, "ablations"),
        augment=as_names(augment, "augment"),
        rerank=rerank,
        preset="none",
        overrides=as_settings(settings),
        seed=check_whole(seed, "seed"),
        ensemble=check_whole(ensemble, "ensemble"),
    )
    check_device(device)
    data, names = dataset_of(titles, labels, text_options)
    model = train_alone(spec, data, device)
    return Fitted(spec.method, LoadedModel(model, names, data.feature_count), len(data.train))


def dataset_of(
    titles: Any,
    labels: Any,
    text_options: Mapping[str, Any] | None = None,
) -> tuple[Dataset, tuple[LabelName, ...]]:
    """Return a dataset without test points, and the names of its labels.

    Parameters
    ----------
    titles
        A title per point, or sparse features.
    labels
        The labels of each point.
    text_options
        Options of `TextEncoder.fit`.
    """
    if sp.issparse(titles):
        X = as_features(titles)
        _check_points(X.shape[0])
        found = as_labels(labels, X.shape[0])
        return _without_test("features", X, found), found.names

    listed = as_titles(titles)
    _check_points(len(listed))
    found = as_labels(labels, len(listed))
    label_titles = None
    if found.are_text:
        label_titles = TextColumn.of([str(name) for name in found.names])
    try:
        encoder, features = text_features(listed, [], label_titles, dict(text_options or {}))
    except TypeError:
        raise InputError(f"text_options: unknown option in {', '.join(map(str, text_options or {}))}") from None
    data = _without_test("titles", features.train, found, TextColumn.of(listed))
    return dataclasses.replace(data, Z=features.labels, label_titles=label_titles, encoder=encoder), found.names


def _check_points(points: int) -> None:
    if points == 0:
        raise InputError("there are no points to fit on")


def _without_test(name: str, X: sp.csr_array, labels: Labels, titles: TextColumn | None = None) -> Dataset:
    no_titles = None
    if titles is not None:
        no_titles = TextColumn.of([])
    test = Split(X[:0], labels.Y[:0], no_titles)
    return Dataset(name, Split(X, labels.Y, titles), test)


def train_alone(spec: RunSpec, data: Dataset, device: str = "auto") -> Model:
    """Train without a store; finished stages are kept only as long as the training takes.

    Parameters
    ----------
    spec
        The method with its settings.
    data
        What to train on.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    resolved = resolve(spec, data)
    set_threads()
    chosen = choose_device(device)
    with tempfile.TemporaryDirectory(prefix="xcbench-") as folder:
        context = context_of(resolved, StageCache(Path(folder)), chosen, OverwriteStrategy.KEEP)
        return train(resolved, context)
