"""A dataset small enough to reason about: fifty labels with text, whose words say which points they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.text import TextEncoder


def toy_dataset(labels: int = 50, train: int = 200, test: int = 60, seed: int = 0) -> Dataset:
    """Each label has a word of its own and shares another with its neighbours; a point is made of its labels' words.

    Every label has a training point where there are enough points, so a method that learns anything does well.
    """
    rng = np.random.default_rng(seed)
    label_titles = [f"topic{label} group{label // 5}" for label in range(labels)]
    first = np.concatenate([rng.permutation(labels) for _ in range(1 + (train + test) // labels)])[: train + test]
    titles, targets = [], []
    for own in first.tolist():
        near = own // 5 * 5 + int(rng.integers(5))
        chosen = sorted({own, min(near, labels - 1)} if rng.random() < 0.5 else {own})
        noise = " ".join(f"word{w}" for w in rng.integers(0, 20, 3).tolist())
        titles.append(" ".join(label_titles[label] for label in chosen) + f" {noise}")
        targets.append(chosen)
    encoder = TextEncoder.fit([*titles[:train], *label_titles])
    Y = _targets(targets, labels)
    return Dataset(
        f"toy-{labels}",
        Split(encoder.encode(titles[:train]), Y[:train], TextColumn.of(titles[:train])),
        Split(encoder.encode(titles[train:]), Y[train:], TextColumn.of(titles[train:])),
        encoder.encode(label_titles),
        TextColumn.of(label_titles),
        encoder=encoder,
    )


def _targets(targets: list[list[int]], labels: int) -> sp.csr_array:
    indices: npt.NDArray[np.int32] = np.array([label for chosen in targets for label in chosen], np.int32)
    indptr = np.cumsum([0, *map(len, targets)])
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(targets), labels))
