"""A slice of the training points that stands in for the test set."""

import re
import zlib
from collections import Counter

import numpy as np

from xcbench.data import Dataset
from xcbench.data.holdout import hold_out
from xcbench.errors import InputError


def held_out(data: Dataset, share: float = 0.2, fold: int = 0) -> Dataset:
    """The dataset with a share of its training points as test points; folds share none of these.

    Points whose titles begin alike (packages of one source, forms of one word) stay on the same side: a sibling that
    is trained on would make a nearest neighbour look far better than it is. Families of more than 1% of all points
    stay inside: a hundred translations of one browser would decide every comparison.
    """
    if data.train.titles is None:
        raise InputError(f"dataset {data.name!r} has no titles to tell siblings by")
    families = ["-".join(re.split(r"[:,]", title, maxsplit=1)[0].split("-")[:2]) for title in data.train.titles]
    size = Counter(families)
    place = np.array([zlib.crc32(family.encode()) % 1000 for family in families])
    small = np.array([size[family] <= 0.01 * len(families) for family in families])
    out = small & ((place - round(1000 * share * fold)) % 1000 < 1000 * share)
    return hold_out(data, np.flatnonzero(out))
