"""Some of the training points in the place of the test points: what a setting is chosen on, or a calibration learnt."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data.assemble import text_features
from xcbench.data.dataset import Dataset, Split, TextColumn, pairs_of_rows


def hold_out(data: Dataset, rows: npt.NDArray[np.int64]) -> Dataset:
    """The dataset whose test points are these rows of the training points, and whose training points are the others.

    The vocabulary is learnt anew from what is left: a word of one label and one point held out would be known only
    because it was counted there.
    """
    out = np.zeros(len(data.train), bool)
    out[rows] = True
    inside, outside = (_part(data.train, np.flatnonzero(chosen)) for chosen in (~out, out))
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
