"""Selecting and joining the points of a split, with all that belongs to a point."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Pairs, Split, TextColumn, pairs_of_rows


def take_points(split: Split, rows: npt.NDArray[np.integer]) -> Split:
    """Return some of the points, in the order given.

    Parameters
    ----------
    split
        The points to select from.
    rows
        Distinct rows; `rows[i]` becomes point i.
    """
    titles = None
    if split.titles is not None:
        titles = split.titles.take(rows)
    label_of = None
    if split.label_of is not None:
        label_of = split.label_of[rows]
    return dataclasses.replace(
        split,
        X=split.X[rows],
        Y=split.Y[rows],
        titles=titles,
        filter=pairs_of_rows(split.filter, rows, len(split)),
        ignored=pairs_of_rows(split.ignored, rows, len(split)),
        label_of=label_of,
    )


def join_points(first: Split, second: Split) -> Split:
    """Return the points of one split and behind them those of another.

    They have titles only if both splits have them. How training mixes points stays as in the first split.
    """
    label_of = None
    if first.label_of is not None or second.label_of is not None:
        label_of = np.concatenate([_label_of(first), _label_of(second)])
    return dataclasses.replace(
        first,
        X=sp.vstack([first.X, second.X], format="csr"),
        Y=sp.vstack([first.Y, second.Y], format="csr"),
        titles=_join_titles(first.titles, second.titles),
        filter=_join_pairs(first.filter, second.filter, len(first)),
        ignored=_join_pairs(first.ignored, second.ignored, len(first)),
        label_of=label_of,
    )


def _label_of(split: Split) -> npt.NDArray[np.int32]:
    if split.label_of is not None:
        return split.label_of
    return np.full(len(split), -1, np.int32)


def _join_titles(first: TextColumn | None, second: TextColumn | None) -> TextColumn | None:
    if first is None or second is None:
        return None
    titles = itertools.chain(first, second)
    return TextColumn.of(list(titles))


def _join_pairs(first: Pairs, second: Pairs, points: int) -> Pairs:
    """Join pairs, and renumber the points of the second ones, which come behind `points` others."""
    renumbered = second + np.array([points, 0])
    return np.concatenate([first, renumbered])
