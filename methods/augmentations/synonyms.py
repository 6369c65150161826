"""Synonym replacement: a copy of every training point, in which some words are replaced by their nearest ones.

Nearest is by the cosine of word vectors, which are learnt on the training text (`xcbench.data.word_vectors`), so that
nothing is downloaded. Gandalf's Table 6 takes BERT's nearest words and does not state its rate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.matrices import unit_rows
from xcbench.data.word_vectors import learn_vectors
from xcbench.kernels.arrays import Ints
from xcbench.plugins import Augmentation, Run, register_augmentation
from xcbench.shortlist import exact_topk

from ._label_points import with_points


@dataclass(frozen=True)
class SynonymsConfig:
    """One word in ten, as in EDA (Wei and Zou, 2019)."""

    rate: float = 0.1
    """The share of words that are replaced."""
    dim: int = 128
    """The length of a word vector."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate lies between 0 and 1, got {self.rate}")
        if self.dim < 1:
            raise ValueError(f"dim is at least 1, got {self.dim}")


def nearest_words(X: sp.csr_array, c: SynonymsConfig, seed: int) -> Ints:
    """[V] the nearest other word of each word, or the word itself where it shares no title with others."""
    words = np.arange(X.shape[1], dtype=np.int32)
    if len(words) < 2:
        return words
    vectors = learn_vectors(X, c.dim, seed)
    best = exact_topk(vectors, vectors, 2)
    # A word is its own nearest, unless another one has the same vector.
    second = (best.indices[:, 0] == words).astype(np.int64)
    nearest = best.indices[words, second]
    cosine = best.scores[words, second]
    return np.where(cosine > 0, nearest, words).astype(np.int32)


def with_synonyms(rows: sp.csr_array, nearest: Ints, rate: float, seed: int) -> sp.csr_array:
    """Rows of words, bags or sequences, with some of the words replaced. A bag may then have a word twice."""
    is_replaced = np.random.default_rng(seed).random(rows.nnz) < rate
    words = np.where(is_replaced, nearest[rows.indices], rows.indices)
    return sp.csr_array((rows.data.copy(), words, rows.indptr), shape=rows.shape)


def copy_of(data: Dataset, nearest: Ints, rate: float, seed: int) -> Split:
    """The training points with synonyms: their titles where these are made of words, else their rows of X."""
    points = data.train
    encoder = data.encoder
    if points.titles is None or encoder is None or encoder.options.tokenizer != "words":
        X = with_synonyms(points.X, nearest, rate, seed)
        X.sum_duplicates()
        return Split(unit_rows(X), points.Y)

    replaced = with_synonyms(encoder.sequences(points.titles), nearest, rate, seed)
    words = np.array(encoder.vocabulary, object)[replaced.indices]
    titles = [" ".join(words[start:end]) for start, end in itertools.pairwise(replaced.indptr)]
    return Split(encoder.encode(titles), points.Y, TextColumn.of(titles))


@register_augmentation("synonyms")
class Synonyms(Augmentation[SynonymsConfig]):
    """A copy of every training point with some of its words replaced by the nearest ones"""

    config_type = SynonymsConfig
    citation = "Wei and Zou, EDA: Easy Data Augmentation Techniques for Boosting Performance, EMNLP 2019"

    def apply(self, data: Dataset, run: Run) -> Dataset:
        c = self.config
        original = run.unaugmented
        nearest = nearest_words(original.train.X, c, run.seed)
        return with_points(data, copy_of(original, nearest, c.rate, run.seed))
