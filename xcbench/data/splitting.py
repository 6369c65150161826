"""Dividing the rows of one table into train and test so that near-duplicates stay on one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.words import count_words
from xcbench.errors import InputError

TEST_SHARE = 0.2
SIGNATURE_SEED = 7


def check_share(share: float) -> None:
    """Raise `InputError` unless a share of test points lies between 0 and 1."""
    if not 0 < share < 1:
        raise InputError(f"the share of test points lies between 0 and 1, such as 0.2; got {share:g}")


def near_duplicates(titles: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a group per title: titles with the same set of words are in one, whatever their order and numbers.

    So variants that differ in a size or a version are near-duplicates. A title of numbers alone is compared by these,
    and titles without words are groups of their own.

    Parameters
    ----------
    titles
        The titles.
    """
    counts, words = count_words(titles)
    numeric = (any(character.isdigit() for character in word) for word in words)
    is_numeric = np.fromiter(numeric, bool, len(words))

    signatures = _signatures(counts, ~is_numeric)
    has_no_word = signatures == 0
    signatures[has_no_word] = _signatures(counts, is_numeric)[has_no_word]

    groups = np.unique(signatures, return_inverse=True)[1].astype(np.int64)
    is_empty = signatures == 0
    groups[is_empty] = len(titles) + np.arange(int(is_empty.sum()))
    return groups


def groups_of(values: Sequence[str], titles: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a group per row: rows with the same value are in one; rows without a value go by their titles.

    Parameters
    ----------
    values
        The value of each row, empty where it has none.
    titles
        The title of each row.
    """
    number: dict[str, int] = {}
    groups = near_duplicates(titles)
    first_free = int(groups.max(initial=-1)) + 1
    for row, value in enumerate(values):
        if value:
            groups[row] = first_free + number.setdefault(value, len(number))
    return groups


def choose_test_rows(groups: npt.NDArray[np.int64], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Draw whole groups at random until the test side has its share of the rows; return whether each row is in it.

    Both sides get at least one group, and a group that is larger than the test side is drawn last. Raises `InputError`
    where all rows are of one group.

    Parameters
    ----------
    groups
        The group of each row.
    share
        The share of rows to draw.
    seed
        Decides which groups are drawn.
    """
    check_share(share)
    if np.all(groups == groups[:1]):
        raise InputError("all rows are in one group (near-duplicates of each other), so they cannot be split")
    rows = share * len(groups)
    return draw_groups(groups, rows, rows, seed)


def draw_groups(groups: npt.NDArray[Any], rows: float, largest: float, seed: int) -> npt.NDArray[np.bool_]:
    """Draw whole groups at random until they have so many rows; return whether each row is drawn. One group stays.

    Parameters
    ----------
    groups
        The group of each row; two groups or more.
    rows
        How many rows to draw. The last group may bring more.
    largest
        Groups of more rows than this are drawn last.
    seed
        Decides which groups are drawn.
    """
    group_of_row, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(sizes[order] > largest, kind="stable")]
    rows_before = np.cumsum(sizes[order]) - sizes[order]
    drawn = min(int(np.count_nonzero(rows_before < rows)), len(sizes) - 1)

    is_drawn = np.zeros(len(sizes), bool)
    is_drawn[order[:drawn]] = True
    return is_drawn[group_of_row]


def _signatures(counts: sp.csr_array, is_counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return a number per row that depends on its set of counted words alone; 0 where there is none.

    It is the sum of a random number per word. Two different sets have the same sum once in 2^64 pairs.
    """
    random = np.random.default_rng(SIGNATURE_SEED).integers(1, 2**63, counts.shape[1], np.uint64)
    random[~is_counted] = 0
    sums = np.zeros(len(counts.indices) + 1, np.uint64)
    np.cumsum(random[counts.indices], out=sums[1:])
    return sums[counts.indptr[1:]] - sums[counts.indptr[:-1]]
