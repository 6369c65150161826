"""Held-out training points in the place of the test points: for choosing a setting or learning a calibration."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data.assemble import text_features
from xcbench.data.dataset import Dataset
from xcbench.data.points import take_points
from xcbench.errors import InputError


def random_slice(data: Dataset, share: float, seed: int) -> Dataset:
    """Return a dataset that is tested on a random share of the training points and trained on the others.

    Parameters
    ----------
    data
        The dataset whose training points are divided.
    share
        Which share becomes test points, between 0 and 1.
    seed
        Another seed holds out other points.
    """
    if not 0 < share < 1:
        raise InputError(f"the held-out share lies between 0 and 1, got {share}")
    points = len(data.train)
    count = round(points * share)
    if not 0 < count < points:
        raise InputError(f"{points} training points are too few to hold out a share of {share:g}")
    order = np.random.default_rng(seed).permutation(points)
    return hold_out(data, np.sort(order[:count]))


def hold_out(data: Dataset, rows: npt.NDArray[np.int64]) -> Dataset:
    """Return a dataset that is tested on some of the training points and trained on the others.

    Where the features come from text, the vocabulary is learned again from the remaining training points and the
    labels. Otherwise a word of one label and one held-out point would be known only because it was counted there.

    Parameters
    ----------
    data
        The dataset whose training points are divided. Its test points are not used.
    rows
        The rows of `data.train` that become the test points; all other rows stay training points.
    """
    is_held_out = np.zeros(len(data.train), bool)
    is_held_out[rows] = True

    divided = dataclasses.replace(
        data,
        name=f"{data.name}-slice",
        train=take_points(data.train, np.flatnonzero(~is_held_out)),
        test=take_points(data.train, np.flatnonzero(is_held_out)),
        manifest=None,
    )
    if data.encoder is None:
        return divided
    return _with_new_vocabulary(divided, dataclasses.asdict(data.encoder.options))


def _with_new_vocabulary(data: Dataset, options: dict[str, Any]) -> Dataset:
    encoder, features = text_features(
        data.train.titles or (),
        data.test.titles or (),
        data.label_titles,
        options,
    )
    return dataclasses.replace(
        data,
        train=dataclasses.replace(data.train, X=features.train),
        test=dataclasses.replace(data.test, X=features.test),
        Z=features.labels,
        encoder=encoder,
    )
