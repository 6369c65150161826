"""What calibration knows of a point and a label that a method lists for it: the numbers in `PairFeatures`.

They come from the method's own score, the words (the sparse ranker, label text, centroids), the spelling of titles and
of their beginnings, and the frequency of the label. Everything is learnt from training points and label titles. What a
dataset without text lacks is zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets, unit_rows
from xcbench.data.text import TextEncoder
from xcbench.errors import DataError, InputError
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.sparse_svm import LabelWeights
from xcbench.labels.centroids import sparse_centroids
from xcbench.plugins import Ranking, Run, load_values, save_values

from .sparse import SparseRanker, SparseRescorer

RARE_NGRAM = 3
"""Letter n-grams that occur in fewer titles than this are left out."""
CLIP = 40.0
"""All features are cut to this size: beyond it, differences of margins or of scores' logarithms mean nothing."""


Feature: TypeAlias = npt.NDArray[Any]
"""One number per point and label [n, k], per point [n, 1] or per place [1, k]."""


class PairFeatures(NamedTuple):
    """The features of each point and each label listed for it.

    Networks read them in this order, also those of stored models.
    """

    log_score: Feature
    """log p, of the method's own score."""
    log_score_behind_best: Feature
    """How far that is behind the best label of the list."""
    place: Feature
    """The label's place in the method's list, from 0."""
    ranker_margin: Feature
    """<w_l, x> of the sparse ranker."""
    log_ranker_score: Feature
    """The logarithm of the sparse ranker's score, which has p in it."""
    log_ranker_score_behind_best: Feature
    """How far that is behind the best label of the list."""
    ranker_place: Feature
    """The label's place in the sparse ranker's order, from 0."""
    text_cosine: Feature
    """Of the point's words with the label's."""
    centroid_cosine: Feature
    """Of the point's words with the centroid of the label's points."""
    label_frequency: Feature
    """log((n_l + 1) / N)."""
    point_words: Feature
    """How many different words the point has."""
    label_words: Feature
    """How many different words the label's text has."""
    spelling_margin: Feature
    """<w_l, x> of a sparse ranker on letter n-grams."""
    spelling_cosine: Feature
    """Of the point's letter n-grams with the label's."""
    beginning_cosine: Feature
    """Of the letter n-grams in the first words of both titles."""
    beginning_cosine_behind_best: Feature
    """How far that is behind the best label of the list."""

    def stacked(self) -> Floats:
        """[n, k, features], in the order of the fields."""
        shape = self.log_score.shape
        stacked = np.empty((*shape, len(self)), np.float32)
        for number, feature in enumerate(self):
            np.clip(feature, -CLIP, CLIP, out=stacked[:, :, number], casting="same_kind")
        return stacked


@dataclass(frozen=True)
class Spelling:
    """What letters tell: a second sparse ranker, on letter n-grams, can place words that no training point has.

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
        """None for a dataset without titles, or with too little text for a single frequent n-gram."""
        if data.train.titles is None or data.label_titles is None:
            return None
        all_titles = [*data.train.titles, *data.label_titles]
        beginnings = _beginnings(data.label_titles)
        try:
            encoder = TextEncoder.fit(all_titles, tokenizer="ngrams", min_count=RARE_NGRAM)
            first_words = TextEncoder.fit(beginnings, tokenizer="ngrams")
        except DataError:
            return None

        X = encoder.encode(data.train.titles)
        Z = encoder.encode(data.label_titles)
        # Label titles are no examples here: a title spelt like the label's is mostly that of the label itself or of a
        # sibling, and neither counts.
        examples_of_points = examples[:, : X.shape[0]]
        W = sparse.classifiers(X, None, examples_of_points, run)
        return cls(encoder, W, Z, first_words, first_words.encode(beginnings))

    def __call__(self, titles: Sequence[str] | None, labels: Ints) -> tuple[Floats, Floats, Floats]:
        """<w_l, x> and <z_l, x> of every listed label, and the cosine of the two beginnings."""
        if titles is None:
            raise InputError("calibration has learnt from titles, and these points have none")
        X = self.encoder.encode(titles)
        beginnings = self.first_words.encode(_beginnings(titles))
        margins = self._ranker_weights.margins(X, labels, constant=True)
        cosines = self._title_weights.margins(X, labels)
        beginning_cosines = self._beginning_weights.margins(beginnings, labels)
        return margins, cosines, beginning_cosines

    @cached_property
    def _ranker_weights(self) -> LabelWeights:
        return LabelWeights.of(self.W)

    @cached_property
    def _title_weights(self) -> LabelWeights:
        return LabelWeights.of(self.Z)

    @cached_property
    def _beginning_weights(self) -> LabelWeights:
        return LabelWeights.of(self.B)


def _beginnings(titles: Sequence[str]) -> list[str]:
    """The part of each title before the first blank, comma or colon."""
    return [re.split(r"[\s,:]", title.lstrip(), maxsplit=1)[0] for title in titles]


@dataclass(frozen=True)
class Evidence:
    """Makes the features of pairs, also of points and labels of which only the words are known."""

    COUNT: ClassVar = len(PairFeatures._fields)

    ranker: SparseRescorer
    Z: sp.csr_array | None
    C: sp.csr_array
    """Centroids of the labels' points, of unit length."""
    frequency: Floats
    """log((n_l + 1) / N)."""
    spelling: Spelling | None

    @classmethod
    def of(cls, data: Dataset, sparse: SparseRanker, run: Run, first: Ranking) -> Evidence:
        """Learn from training points, and from what the method `first` predicts for them."""
        examples, power = sparse.examples(data, run, first)
        ranker = sparse.rescorer(data, examples, power, run, first)
        centroids = sparse_centroids(binary_targets(data.train.Y), data.train.X)
        share = (data.label_frequency + 1) / max(len(data.train), 1)
        spelling = Spelling.of(data, sparse, examples, run)
        return cls(
            ranker=ranker,
            Z=data.Z,
            C=unit_rows(centroids),
            frequency=np.log(share).astype(np.float32),
            spelling=spelling,
        )

    def __call__(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None) -> Floats:
        """The features [n, k, COUNT] of predicted labels; finite but meaningless at unused places."""
        return self.features(predictions, X, titles).stacked()

    def features(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None) -> PairFeatures:
        """The features of predicted labels by name, before they are cut to size."""
        labels = predictions.indices
        words = X
        if self.ranker.reads_vectors:
            words = X[:, : self.C.shape[1]]
        log_score = _log(np.where(labels >= 0, predictions.scores, 0))
        margin = self.ranker.margins(predictions, X)
        log_ranker_score = _log(self.ranker.scores(predictions, margin))

        zeros = np.zeros_like(log_score)
        text_cosine = zeros
        if self._text_weights is not None:
            text_cosine = self._text_weights.margins(words, labels)
        spelling_margin = zeros
        spelling_cosine = zeros
        beginning_cosine = zeros
        if self.spelling is not None:
            spelling_margin, spelling_cosine, beginning_cosine = self.spelling(titles, labels)

        return PairFeatures(
            log_score=log_score,
            log_score_behind_best=_behind_best(log_score),
            place=np.arange(predictions.k)[None],
            ranker_margin=margin,
            log_ranker_score=log_ranker_score,
            log_ranker_score_behind_best=_behind_best(log_ranker_score),
            ranker_place=_places(log_ranker_score),
            text_cosine=text_cosine,
            centroid_cosine=self._centroid_weights.margins(words, labels),
            label_frequency=self.frequency[labels],
            point_words=np.diff(words.indptr)[:, None],
            label_words=self._label_words[labels],
            spelling_margin=spelling_margin,
            spelling_cosine=spelling_cosine,
            beginning_cosine=beginning_cosine,
            beginning_cosine_behind_best=_behind_best(beginning_cosine),
        )

    @cached_property
    def _text_weights(self) -> LabelWeights | None:
        if self.Z is None:
            return None
        return LabelWeights.of(self.Z)

    @cached_property
    def _centroid_weights(self) -> LabelWeights:
        return LabelWeights.of(self.C)

    @cached_property
    def _label_words(self) -> npt.NDArray[np.integer]:
        """How many words each label has."""
        if self.Z is None:
            return np.zeros(len(self.frequency), np.int32)
        return np.diff(self.Z.indptr)

    def save(self, folder: Path) -> None:
        """Write into a folder that exists."""
        spelling = None
        if self.spelling is not None:
            spelling = {"W": self.spelling.W, "Z": self.spelling.Z, "B": self.spelling.B}
            _write_encoder(self.spelling.encoder, folder / "encoder.json")
            _write_encoder(self.spelling.first_words, folder / "first_words.json")
        values = {
            "W": self.ranker.W,
            "power": self.ranker.power,
            "reads_vectors": self.ranker.reads_vectors,
            "Z": self.Z,
            "C": self.C,
            "frequency": self.frequency,
            "spelling": spelling,
        }
        save_values(folder, values)

    @classmethod
    def load(cls, folder: Path) -> Evidence:
        values = load_values(folder)
        spelling = None
        if values["spelling"] is not None:
            spelling = Spelling(
                encoder=_read_encoder(folder / "encoder.json"),
                first_words=_read_encoder(folder / "first_words.json"),
                **values["spelling"],
            )
        ranker = SparseRescorer(values["W"], values["power"], values.get("reads_vectors", False))
        return cls(ranker, values["Z"], values["C"], values["frequency"], spelling)


def _write_encoder(encoder: TextEncoder, path: Path) -> None:
    text = json.dumps(encoder.to_dict(), ensure_ascii=False)
    path.write_text(text, "utf-8")


def _read_encoder(path: Path) -> TextEncoder:
    return TextEncoder.from_dict(json.loads(path.read_text("utf-8")))


def _log(scores: Floats) -> Floats:
    """The logarithm, which for a score of zero is that of the smallest number."""
    smallest = np.finfo(np.float32).tiny
    logs: Floats = np.log(np.maximum(scores, smallest))
    return logs


def _behind_best(values: Floats) -> Floats:
    """How far each value is behind the best of its row."""
    behind: Floats = np.maximum(values, -CLIP)
    behind -= behind.max(axis=1, keepdims=True, initial=-CLIP)
    return behind


def _places(scores: Floats) -> npt.NDArray[np.int64]:
    """0 for the best of each row, 1 for the second, and so on."""
    order = np.argsort(-scores, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(scores.shape[1])[None], axis=1)
    return places
