"""A slice of the training points that takes the place of the test set."""

import zlib
from collections import Counter

import numpy as np

from xcbench.data import Dataset
from xcbench.data.holdout import family_of, hold_out
from xcbench.errors import InputError

PARTS = 1000  # families are spread over so many parts; a slice is a range of them


def held_out(data: Dataset, share: float = 0.2, fold: int = 0) -> Dataset:
    """The dataset with a share of its training points as test points; folds share none of these.

    Points whose titles begin alike (packages of one source, forms of one word) stay on the same side: a sibling in the
    training set would make a nearest neighbour look far better than it is. This is stricter than the test set, of whose
    titles a quarter to a third begin like a training title. Families of more than 1% of all points are never held out:
    a hundred translations of one browser would decide every comparison.

    Parameters
    ----------
    data
        A dataset with titles.
    share
        The share of families to hold out.
    fold
        Which slice, from 0.
    """
    if data.train.titles is None:
        raise InputError(f"dataset {data.name!r} has no titles to tell siblings by")

    families = [family_of(title) for title in data.train.titles]
    size = Counter(families)
    is_small = np.array([size[family] <= 0.01 * len(families) for family in families])
    part = np.array([zlib.crc32(family.encode()) % PARTS for family in families])

    first = round(PARTS * share * fold)
    in_slice = (part - first) % PARTS < PARTS * share
    return hold_out(data, np.flatnonzero(is_small & in_slice))
