"""What the augmentations that make points of label titles share. Not an augmentation."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.data.points import join_points
from xcbench.errors import InputError


def labels_with_text(data: Dataset, name: str) -> npt.NDArray[np.int64]:
    """The labels whose titles can be points: a label without words would be a point without words."""
    if data.Z is None:
        raise InputError(f"{name} needs label text, which dataset {data.name!r} does not have")
    return np.flatnonzero(np.diff(data.Z.indptr))


def label_points(data: Dataset, labels: npt.NDArray[np.integer], targets: sp.csr_array) -> Split:
    """The titles of some labels as points.

    Parameters
    ----------
    data
        The labels' text.
    labels
        Which labels.
    targets
        [L, L] row l has the targets of label l's title.
    """
    assert data.Z is not None
    titles = None
    if data.label_titles is not None:
        titles = data.label_titles.take(labels)
    return Split(data.Z[labels], targets[labels], titles, label_of=labels.astype(np.int32))


def self_targets(data: Dataset) -> sp.csr_array:
    """[L, L]: every title has itself as the only target."""
    return sp.eye_array(data.label_count, dtype=np.float32, format="csr")


def with_points(data: Dataset, points: Split) -> Dataset:
    """The data with further training points."""
    return dataclasses.replace(data, train=join_points(data.train, points))
