"""A slice of the training points that stands in for the test set."""

import dataclasses
import re
import zlib
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.assemble import text_features
from xcbench.data.dataset import pairs_of_rows
from xcbench.errors import InputError


def held_out(data: Dataset, share: float = 0.2, fold: int = 0) -> Dataset:
    """The dataset with a share of its training points as test points; folds share none of these.

    Points whose titles begin alike (packages of one source, forms of one word) stay on the same side: a sibling that
    is trained on would make a nearest neighbour look far better than it is. Families of more than 1% of all points
    stay inside: a hundred translations of one browser would decide every comparison. The vocabulary is learnt anew
    from what is inside: a word of one label and one point held out would be known only because it was counted there.
    """
    if data.train.titles is None:
        raise InputError(f"dataset {data.name!r} has no titles to tell siblings by")
    families = ["-".join(re.split(r"[:,]", title, maxsplit=1)[0].split("-")[:2]) for title in data.train.titles]
    size = Counter(families)
    place = np.array([zlib.crc32(family.encode()) % 1000 for family in families])
    small = np.array([size[family] <= 0.01 * len(families) for family in families])
    out = small & ((place - round(1000 * share * fold)) % 1000 < 1000 * share)
    inside, outside = (_part(data.train, np.flatnonzero(rows)) for rows in (~out, out))
    part = dataclasses.replace(data, name=f"{data.name}-slice", train=inside, test=outside, manifest=None)
    return part if data.encoder is None else _with_words_of_its_own(part, dataclasses.asdict(data.encoder.options))


def _with_words_of_its_own(data: Dataset, options: dict[str, Any]) -> Dataset:
    titles = data.train.titles or (), data.test.titles or ()
    encoder, (X, X_out, Z) = text_features(*titles, data.label_titles, options)
    train, test = dataclasses.replace(data.train, X=X), dataclasses.replace(data.test, X=X_out)
    return dataclasses.replace(data, train=train, test=test, Z=Z, encoder=encoder)


def _part(split: Split, rows: npt.NDArray[np.int64]) -> Split:
    titles = split.titles.take(rows) if isinstance(split.titles, TextColumn) else None
    return Split(split.X[rows], split.Y[rows], titles, pairs_of_rows(split.filter, rows, len(split)))
