"""Held-out training points in the place of the test points: for choosing a setting or learning a calibration."""

import dataclasses
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data.assemble import text_features
from xcbench.data.dataset import Dataset
from xcbench.data.points import take_points
from xcbench.data.splitting import draw_groups
from xcbench.errors import InputError

_LARGE_FAMILY = 0.01
"""Families of more than this share of the points are held out last: one of them would decide everything."""


def training_slice(data: Dataset, share: float, seed: int) -> Dataset:
    """Return a dataset that is tested on a random share of the training points and trained on the others.

    Points whose titles begin alike stay on the same side: a sibling among the training points would make a model look
    surer of a point than it is of a new one.

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
    if not 0 < round(points * share) < points:
        raise InputError(f"{points} training points are too few to hold out a share of {share:g}")

    families = _families(data)
    if np.all(families == families[:1]):
        raise InputError("all training titles begin alike, so none of them can be held out")
    is_held_out = draw_groups(families, round(points * share), max(1, _LARGE_FAMILY * points), seed)
    return hold_out(data, np.flatnonzero(is_held_out))


def family_of(title: str) -> str:
    """Return the beginning of a title: `python3-numpy` of `python3-numpy-dev: headers`."""
    name = re.split(r"[:,]", title, maxsplit=1)[0]
    return "-".join(name.split("-")[:2])


def _families(data: Dataset) -> npt.NDArray[Any]:
    """Return what each training point shares with its siblings; its number where it has no title."""
    if data.train.titles is None:
        return np.arange(len(data.train))
    return np.array([family_of(title) for title in data.train.titles])


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
