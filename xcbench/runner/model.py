"""What a run has learnt, whole: the predictors of all members, the rescoring after them, and the way in from text.

It needs neither the training data nor the dataset's folder, so a record can be moved to another machine and used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data import TextColumn, TopK
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError, XCBenchError
from xcbench.plugins import registry
from xcbench.plugins.codec import load_values, save_values
from xcbench.plugins.contract import Predictor, Rescorer, TextPredictor
from xcbench.runner.store import Record
from xcbench.shortlist import blend

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Model:
    """Predicts from rows of X, from titles, or from whatever of both its predictors read."""

    members: tuple[Predictor, ...]
    label_count: int
    rescorer: Rescorer | None = None
    encoder: TextEncoder | None = None
    label_titles: TextColumn | None = None

    def predict(self, X: sp.csr_array, k: int, titles: Sequence[str] | None = None) -> TopK:
        """The k best labels of each row; `titles` are the same points as text, for predictors that read words."""
        # A rescorer and a mean over members need some room below the cut.
        depth = min(max(k, 100), self.label_count)
        predicted = [self._member(member, X, depth, titles) for member in self.members]
        found = predicted[0] if len(predicted) == 1 else blend(predicted, depth)
        if self.rescorer is not None:
            found = self.rescorer.rescore(found, X, titles)
        return found.cut(k) if found.k >= k else found.padded(k)

    def predict_text(self, titles: Sequence[str], k: int) -> TopK:
        """The k best labels of new text."""
        if self.encoder is None:
            if all(isinstance(member, TextPredictor) for member in self.members):
                return self.predict(sp.csr_array((len(titles), 0)), k, titles)
            raise InputError("this run was trained on features without text, so it cannot read text")
        X = self.encoder.encode(titles)
        if len(strange := np.flatnonzero(np.diff(X.indptr) == 0)):
            some = f"{len(strange)} of {len(titles)} titles"
            _log.warning("%s have no word that the model knows, such as %r", some, titles[strange[0]])
        return self.predict(X, k, titles)

    def _member(self, member: Predictor, X: sp.csr_array, k: int, titles: Sequence[str] | None) -> TopK:
        if not isinstance(member, TextPredictor):
            found = member.predict(X, k)
        elif titles is None:
            raise InputError("this method reads the words of a title, but the dataset has no titles")
        else:
            found = member.predict_titles(titles, k)
        _check(found, X.shape[0], self.label_count, type(member).__name__)
        return found

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder."""
        for number, member in enumerate(self.members):
            member.save(_made(folder / f"member-{number}"))
        if self.rescorer is not None:
            self.rescorer.save(_made(folder / "rescorer"))
        if self.encoder is not None:
            (folder / "encoder.json").write_text(json.dumps(self.encoder.to_dict(), ensure_ascii=False), "utf-8")
        save_values(_made(folder / "labels"), {"count": self.label_count, "titles": self.label_titles})


def load_model(record: Record, method: str | None = None) -> Model:
    """The model of a stored run. `method` is the file of a method that is not installed: a record only names it."""
    try:
        method_type = registry.get_method(method or record.method)
        rescorer_type = registry.get_reranker(record.rerank).rescorer_type if record.rerank else None
    except InputError as error:
        raise InputError(f"run {record.id} cannot be loaded: {error} (--method FILE names a method's file)") from None
    folder = record.folder / "model"
    if not folder.exists():
        raise InputError(f"run {record.id} was kept without its model: {record.folder} holds figures and predictions")
    encoder = folder / "encoder.json"
    try:
        labels = load_values(folder / "labels")
        return Model(
            tuple(method_type.predictor_type.load(folder / f"member-{i}") for i in range(record.ensemble)),
            labels["count"],
            rescorer_type.load(folder / "rescorer") if rescorer_type else None,
            TextEncoder.from_dict(json.loads(encoder.read_text("utf-8"))) if encoder.exists() else None,
            labels["titles"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the model of this run cannot be read ({error})", folder) from error


def _check(found: TopK, points: int, labels: int, who: str) -> None:
    if len(found) != points:
        raise XCBenchError(f"{who} predicted {len(found)} points instead of {points}")
    if found.indices.size and int(found.indices.max()) >= labels:
        raise XCBenchError(f"{who} predicted label {found.indices.max()}, but there are only {labels}")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
