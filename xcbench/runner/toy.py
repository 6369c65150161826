"""A dataset small enough to reason about: fifty labels with text, whose words say which points they belong to."""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.text import TextEncoder

_GROUP_SIZE = 5
_NOISE_WORDS = 20


def toy_dataset(labels: int = 50, train: int = 200, test: int = 60, seed: int = 0) -> Dataset:
    """Make a dataset on which a method that learns anything does well.

    Each label has a word of its own, and a word that it shares with the other labels of its group. A point is made of
    the words of its labels, one or two of the same group, and of a few words of noise. Every label has a training point
    where there are enough points.

    Parameters
    ----------
    labels
        How many labels there are.
    train
        How many training points there are.
    test
        How many test points there are.
    seed
        Another seed gives other points.
    """
    rng = np.random.default_rng(seed)
    label_titles = [f"topic{label} group{label // _GROUP_SIZE}" for label in range(labels)]

    titles = []
    labels_by_point = []
    for label in _main_labels(labels, train + test, rng):
        chosen = _with_neighbour(label, labels, rng)
        words = [label_titles[each] for each in chosen]
        noise = rng.integers(0, _NOISE_WORDS, 3).tolist()
        words += [f"word{number}" for number in noise]
        titles.append(" ".join(words))
        labels_by_point.append(chosen)

    encoder = TextEncoder.fit([*titles[:train], *label_titles])
    Y = _label_matrix(labels_by_point, labels)
    return Dataset(
        f"toy-{labels}",
        Split(encoder.encode(titles[:train]), Y[:train], TextColumn.of(titles[:train])),
        Split(encoder.encode(titles[train:]), Y[train:], TextColumn.of(titles[train:])),
        encoder.encode(label_titles),
        TextColumn.of(label_titles),
        encoder=encoder,
    )


def _main_labels(labels: int, points: int, rng: np.random.Generator) -> list[int]:
    """Return a label per point: all labels in random order, again and again."""
    rounds = 1 + points // labels
    permutations = [rng.permutation(labels) for _ in range(rounds)]
    main_labels: list[int] = np.concatenate(permutations)[:points].tolist()
    return main_labels


def _with_neighbour(label: int, labels: int, rng: np.random.Generator) -> list[int]:
    """Return a label and, for half of the points, another one of its group (which may be the same)."""
    first_of_group = label // _GROUP_SIZE * _GROUP_SIZE
    neighbour = first_of_group + int(rng.integers(_GROUP_SIZE))
    neighbour = min(neighbour, labels - 1)

    if rng.random() < 0.5:
        return sorted({label, neighbour})
    return [label]


def _label_matrix(labels_by_point: list[list[int]], labels: int) -> sp.csr_array:
    """Return the matrix Y with a row per point and ones at its labels."""
    sizes = [len(chosen) for chosen in labels_by_point]
    indptr = np.cumsum([0, *sizes])
    indices: npt.NDArray[np.int32] = np.array([*chain.from_iterable(labels_by_point)], np.int32)
    ones = np.ones(len(indices), np.float32)
    return sp.csr_array((ones, indices, indptr), shape=(len(labels_by_point), labels))
