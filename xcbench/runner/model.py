"""A run's whole model: the predictors of all ensemble members, the rescorer after them, and the text encoder.

It needs neither the training data nor the dataset's folder, so a record can be moved to another machine and used.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xcbench.data import TextColumn, TopK
from xcbench.data.matrices import unit_vectors
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError, XCBenchError
from xcbench.kernels.allocations import META, MetaAllocations
from xcbench.kernels.memory import binary_size, free_memory
from xcbench.plugins import registry
from xcbench.plugins.codec import load_values, save_values
from xcbench.plugins.contract import (
    Method,
    MovablePredictor,
    PlacedPredictor,
    Predictor,
    Rescorer,
    TextPredictor,
    VectorPredictor,
)
from xcbench.runner.store import Record
from xcbench.shortlist import blend
from xcbench.shortlist.device.blocks import LEAST_BYTES_AT_ONCE, TENSORS_AT_ONCE

_log = logging.getLogger(__name__)

_MIN_DEPTH = 100
"""How many labels per point each member predicts at least: averaging and rescoring need some room below the cut."""


@dataclass(frozen=True)
class Model:
    """Predicts from rows of X, from titles, or from both, depending on what its predictors read."""

    members: tuple[PlacedPredictor, ...]
    """One predictor per ensemble member; their scores are averaged."""
    label_count: int
    rescorer: Rescorer | None = None
    """Applied to the averaged predictions."""
    encoder: TextEncoder | None = None
    """Turns text into rows of X; None if the features were not made of text."""
    label_titles: TextColumn | None = None

    def to(self, device: str) -> Model:
        """Return a model whose members predict on a device, as far as they can. Rescorers stay on the CPU.

        A device that cannot hold the tables of all members is refused before anything is copied.

        Parameters
        ----------
        device
            `cpu`, `cuda`, `cuda:1` ...: what torch calls it.
        """
        if device != "cpu":
            _check_fits(self.members, device)
        members = tuple(_on_device(member, device) for member in self.members)
        return dataclasses.replace(self, members=members)

    def predict(self, X: sp.csr_array, k: int, titles: Sequence[str] | None = None) -> TopK:
        """Return the k best labels per row.

        Parameters
        ----------
        X
            Features, a row per point.
        k
            How many labels per point. Where a point has fewer, the rest is padding (label -1).
        titles
            The same points as text, for predictors that read words.
        """
        depth = min(max(k, _MIN_DEPTH), self.label_count)
        by_member = [self._predict_member(member, X, depth, titles) for member in self.members]

        predictions = by_member[0]
        if len(by_member) > 1:
            predictions = blend(by_member, depth)
        if self.rescorer is not None:
            if self.rescorer.reads_vectors:
                X = self.with_vectors(X, titles)
            predictions = self.rescorer.rescore(predictions, X, titles)

        if predictions.k < k:
            return predictions.padded(k)
        return predictions.cut(k)

    def with_vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> sp.csr_array:
        """Return X with the vector of each point behind its features: of unit length, those of members side by side.

        Parameters
        ----------
        X
            Features, a row per point.
        titles
            The same points as text, for predictors that read words.
        """
        parts = [X]
        for member in self.members:
            if not isinstance(member, VectorPredictor):
                raise XCBenchError(f"{type(member).__name__} has no vectors of points")
            vectors = unit_vectors(member.vectors(X, titles))
            parts.append(sp.csr_array(vectors / math.sqrt(len(self.members))))
        return sp.csr_array(sp.hstack(parts, format="csr", dtype=np.float32))

    def predict_text(self, titles: Sequence[str], k: int) -> TopK:
        """Return the k best labels per title.

        Parameters
        ----------
        titles
            New text, a title per point.
        k
            How many labels per title.
        """
        X = self.features(titles)
        if self.encoder is not None:
            _warn_of_unknown_words(X, titles)
        return self.predict(X, k, titles)

    def features(self, titles: Sequence[str]) -> sp.csr_array:
        """Return the rows of X of new text: without columns where the model reads words alone.

        Raises `InputError` where the model reads features that were not made of text.

        Parameters
        ----------
        titles
            New text, a title per point.
        """
        if self.encoder is not None:
            return self.encoder.encode(titles)
        if not all(isinstance(member, TextPredictor) for member in self.members):
            raise InputError("this run was trained on features without text, so it cannot read text")
        return sp.csr_array((len(titles), 0))

    def _predict_member(self, member: PlacedPredictor, X: sp.csr_array, k: int, titles: Sequence[str] | None) -> TopK:
        if not isinstance(member, TextPredictor):
            predictions = member.predict(X, k)
        elif titles is None:
            raise InputError("this method reads the words of a title, but the dataset has no titles")
        else:
            predictions = member.predict_titles(titles, k)

        _check_predictions(predictions, X.shape[0], self.label_count, type(member).__name__)
        return predictions

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder."""
        for number, member in enumerate(self.members):
            member.save(_make_folder(folder / f"member-{number}"))

        if self.rescorer is not None:
            self.rescorer.save(_make_folder(folder / "rescorer"))

        if self.encoder is not None:
            text = json.dumps(self.encoder.to_dict(), ensure_ascii=False)
            (folder / "encoder.json").write_text(text, "utf-8")

        labels = {"count": self.label_count, "titles": self.label_titles}
        save_values(_make_folder(folder / "labels"), labels)


def load_model(record: Record, method: str | None = None) -> Model:
    """Load the model of a stored run.

    Parameters
    ----------
    record
        The run.
    method
        The file of the run's method, if that is neither built in nor installed: a record holds only its name.
    """
    if record.is_external:
        raise InputError(f"run {record.id} was added from a file, so there is no model of it")
    method_type, rescorer_type = _plugin_types(record, method)

    folder = record.folder / "model"
    if not folder.exists():
        raise InputError(
            f"run {record.id} was kept without its model: {record.folder} holds figures alone. Train it once more with "
            f"`{_command(record)}` into a store of your own, and predict with that run"
        )

    try:
        return _load(folder, record.ensemble, method_type.predictor_type, rescorer_type)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the model of this run cannot be read ({error})", folder) from error


def _command(record: Record) -> str:
    """Return the command line that trains a run again."""
    return shlex.join(["xcbench", *record.spec.arguments()])


def _plugin_types(record: Record, method: str | None) -> tuple[type[Method[Any]], type[Rescorer] | None]:
    """Return the run's method and, if it has a reranker, the type of its rescorer."""
    try:
        method_type = registry.get_method(method or record.method)
        if not record.rerank:
            return method_type, None
        return method_type, registry.get_reranker(record.rerank).rescorer_type
    except InputError as error:
        raise InputError(f"run {record.id} cannot be loaded: {error} (--method FILE names a method's file)") from None


def _load(
    folder: Path,
    member_count: int,
    predictor_type: type[Predictor],
    rescorer_type: type[Rescorer] | None,
) -> Model:
    labels = load_values(folder / "labels")
    members = tuple(predictor_type.load(folder / f"member-{number}") for number in range(member_count))

    rescorer = None
    if rescorer_type is not None:
        rescorer = rescorer_type.load(folder / "rescorer")

    encoder = None
    encoder_file = folder / "encoder.json"
    if encoder_file.exists():
        encoder = TextEncoder.from_dict(json.loads(encoder_file.read_text("utf-8")))

    return Model(
        members=members,
        label_count=labels["count"],
        rescorer=rescorer,
        encoder=encoder,
        label_titles=labels["titles"],
    )


def _on_device(member: PlacedPredictor, device: str) -> PlacedPredictor:
    if isinstance(member, MovablePredictor):
        return member.to(device)
    return member


def _check_fits(members: Sequence[PlacedPredictor], device: str) -> None:
    """Raise an error if a device has not enough free memory for the members' tables and the least work on them."""
    tables = _bytes_on_device(members)
    needed = tables + TENSORS_AT_ONCE * LEAST_BYTES_AT_ONCE
    free = free_memory(device)
    if tables and needed > free:
        raise XCBenchError(
            f"the model needs about {binary_size(needed)} on {device}, and {binary_size(free)} are free; "
            "--device cpu predicts in this machine's own memory"
        )


def _bytes_on_device(members: Sequence[PlacedPredictor]) -> int:
    """Return the bytes of the tables that predictors have on a device. Made there, tensors of `META` take no memory."""
    with MetaAllocations() as allocations:
        there = [_on_device(member, str(META)) for member in members]
        size: int = allocations.living
        del there
    return size


def _warn_of_unknown_words(X: sp.csr_array, titles: Sequence[str]) -> None:
    """Log a warning if there are titles of which the encoder knows no word."""
    empty_rows = np.flatnonzero(np.diff(X.indptr) == 0)
    if len(empty_rows) == 0:
        return

    affected = f"{len(empty_rows)} of {len(titles)} titles"
    _log.warning("%s have no word that the model knows, such as %r", affected, titles[empty_rows[0]])


def _check_predictions(predictions: TopK, points: int, labels: int, predictor: str) -> None:
    """Raise if a predictor returned another number of points, or labels that do not exist."""
    if len(predictions) != points:
        raise XCBenchError(f"{predictor} predicted {len(predictions)} points instead of {points}")

    largest = int(predictions.indices.max(initial=-1))
    if largest >= labels:
        raise XCBenchError(f"{predictor} predicted label {largest}, but there are only {labels}")


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder
