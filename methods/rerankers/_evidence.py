"""What calibration is told of a point and a label that a method lists for it: sixteen numbers a pair.

The method's own score, the words (the sparse ranker, label text, centroids), the spelling of titles and of their
beginnings, and how frequent the label is. Everything is learnt from training points and label titles; what is missing
in a dataset without text is zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets, unit_rows
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError
from xcbench.kernels.sparse_svm import LabelWeights
from xcbench.labels.centroids import sparse_centroids
from xcbench.plugins import Ranking, Run, load_values, save_values

from .sparse import SparseRanker, SparseRescorer

Floats = npt.NDArray[np.float32]

ENCODERS = ("encoder", "first_words")
RARE_NGRAM = 3
"""Runs of letters that fewer titles have are left out."""
FARTHEST = 40.0
"""Where scores' logarithms and margins are cut: beyond, differences say nothing."""


@dataclass(frozen=True)
class Spelling:
    """What letters tell: a second sparse ranker, on runs of them, knows what a word is like that no training point has.

    A title begins with what it is about (a name, a lemma, a brand), so the likeness of the first words counts apart.
    """

    encoder: TextEncoder
    W: sp.csr_array
    Z: sp.csr_array
    first_words: TextEncoder
    B: sp.csr_array
    """The beginnings of label titles."""

    @classmethod
    def of(cls, data: Dataset, sparse: SparseRanker, examples: sp.csr_array, run: Run) -> Spelling | None:
        """None for a dataset without titles, or with too few letters for a single run of them to come thrice."""
        if data.train.titles is None or data.label_titles is None:
            return None
        texts, beginnings = [*data.train.titles, *data.label_titles], _beginnings(data.label_titles)
        try:
            encoder = TextEncoder.fit(texts, tokenizer="ngrams", min_count=RARE_NGRAM)
            first_words = TextEncoder.fit(beginnings, tokenizer="ngrams")
        except DataError:
            return None
        X, Z = encoder.encode(data.train.titles), encoder.encode(data.label_titles)
        # Label titles are no examples here: spelt alike is soon the label itself, or its sibling, and neither counts.
        W = sparse.classifiers(X, None, examples[:, : X.shape[0]], run)
        return cls(encoder, W, Z, first_words, first_words.encode(beginnings))

    def __call__(self, titles: Sequence[str] | None, labels: npt.NDArray[np.int32]) -> tuple[Floats, Floats, Floats]:
        """<w_l, x> and <z_l, x> of every label listed, and the cosine of the two beginnings."""
        if titles is None:
            raise InputError("calibration has learnt from titles, and these points have none")
        X, beginnings = self.encoder.encode(titles), self.first_words.encode(_beginnings(titles))
        W, Z, B = self._weights
        return W.margins(X, labels, constant=True), Z.margins(X, labels), B.margins(beginnings, labels)

    @cached_property
    def _weights(self) -> tuple[LabelWeights, LabelWeights, LabelWeights]:
        return LabelWeights.of(self.W), LabelWeights.of(self.Z), LabelWeights.of(self.B)


def _beginnings(titles: Sequence[str]) -> list[str]:
    """What stands before the first blank, comma or colon."""
    return [re.split(r"[\s,:]", title.lstrip(), maxsplit=1)[0] for title in titles]


@dataclass(frozen=True)
class Evidence:
    """Makes the numbers of a pair; also for points and labels that nothing is known of but their words."""

    COUNT: ClassVar = 16

    ranker: SparseRescorer
    Z: sp.csr_array | None
    C: sp.csr_array
    """Centroids of the labels' points, of unit length."""
    frequency: Floats
    """log((n_l + 1) / N)."""
    spelling: Spelling | None

    @classmethod
    def of(cls, data: Dataset, sparse: SparseRanker, run: Run, first: Ranking) -> Evidence:
        examples, power = sparse.examples(data, run, first)
        ranker = SparseRescorer(sparse.classifiers(data.train.X, data.Z, examples, run), power)
        C = unit_rows(sparse_centroids(binary_targets(data.train.Y), data.train.X))
        frequency = np.log((data.label_frequency + 1) / max(len(data.train), 1)).astype(np.float32)
        return cls(ranker, data.Z, C, frequency, Spelling.of(data, sparse, examples, run))

    def __call__(self, listed: TopK, X: sp.csr_array, titles: Sequence[str] | None) -> Floats:
        """[n, k, 16]; whatever stands at places where nothing is listed."""
        labels = listed.indices
        tiny = np.finfo(np.float32).tiny
        margin = self.ranker.margins(listed, X)
        p = np.log(np.maximum(np.where(labels >= 0, listed.scores, 0), tiny))
        both = np.log(np.maximum(self.ranker.scores(listed, margin), tiny))
        none = np.zeros_like(p)
        words, (text, centroids, label_words) = np.diff(X.indptr)[:, None], self._of_labels
        spelt, spelt_text, begins = (none,) * 3 if self.spelling is None else self.spelling(titles, labels)
        every = (
            p, _behind_best(p), np.arange(p.shape[1])[None], margin, both, _behind_best(both), _places(both),
            none if text is None else text.margins(X, labels), centroids.margins(X, labels),
            self.frequency[labels], words, label_words[labels], spelt, spelt_text, begins, _behind_best(begins),
        )  # fmt: skip
        stacked = np.empty((*p.shape, self.COUNT), np.float32)
        for number, one in enumerate(every):
            np.clip(one, -FARTHEST, FARTHEST, out=stacked[:, :, number], casting="same_kind")
        return stacked

    @cached_property
    def _of_labels(self) -> tuple[LabelWeights | None, LabelWeights, npt.NDArray[np.integer]]:
        """Text, centroids, and how many words each label has."""
        if self.Z is None:
            return None, LabelWeights.of(self.C), np.zeros(len(self.frequency), np.int32)
        return LabelWeights.of(self.Z), LabelWeights.of(self.C), np.diff(self.Z.indptr)

    def save(self, folder: Path) -> None:
        """Into a folder that is there."""
        spelt = self.spelling and {"W": self.spelling.W, "Z": self.spelling.Z, "B": self.spelling.B}
        known = {"Z": self.Z, "C": self.C, "frequency": self.frequency}
        save_values(folder, {"W": self.ranker.W, "power": self.ranker.power, **known, "spelling": spelt})
        if self.spelling is not None:
            for name in ENCODERS:
                encoder: TextEncoder = getattr(self.spelling, name)
                (folder / f"{name}.json").write_text(json.dumps(encoder.to_dict(), ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Evidence:
        values, spelling = load_values(folder), None
        if values["spelling"] is not None:
            encoders: dict[str, Any] = {
                name: TextEncoder.from_dict(json.loads((folder / f"{name}.json").read_text("utf-8")))
                for name in ENCODERS
            }
            spelling = Spelling(**encoders, **values["spelling"])
        ranker = SparseRescorer(values["W"], values["power"])
        return cls(ranker, values["Z"], values["C"], values["frequency"], spelling)


def _behind_best(known: Floats) -> Floats:
    """How far each of a list is behind its best."""
    behind: Floats = np.maximum(known, -FARTHEST)
    behind -= behind.max(axis=1, keepdims=True, initial=-FARTHEST)
    return behind


def _places(scores: Floats) -> npt.NDArray[np.int64]:
    """0 for the best of each row, and so on."""
    order = np.argsort(-scores, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(scores.shape[1])[None], axis=1)
    return places
