"""Rows of a sparse matrix listed side by side, and sums over equal labels: the building blocks of beams and of GAME.

Sums are added in a fixed order. Scattered additions, whose order a GPU chooses anew each time, are not used.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from xcbench.shortlist.device.selection import NO_KEY, keys_of


class Listing(NamedTuple):
    """The entries of some rows of a CSR matrix, for each of n points: those of the first row, then the second, ..."""

    entries: Tensor  # [n, T] positions in the matrix's indices and data; 0 where there is none
    places: Tensor  # [n, T] from which of the point's rows an entry is
    is_entry: Tensor  # [n, T] False at the end of a list that is shorter than T
    ends: Tensor  # [n, m] where the entries of each row end in the list


def row_sizes(indptr: Tensor, rows: Tensor) -> Tensor:
    """Return how many entries each row has; 0 for the row -1."""
    row = rows.clamp(min=0)
    sizes = indptr[row + 1] - indptr[row]
    return sizes.masked_fill_(rows < 0, 0)


def longest_listing(indptr: Tensor, rows: Tensor) -> int:
    """Return how many entries the rows of one point have together at most. This waits for the device.

    Parameters
    ----------
    indptr
        Where the rows of the matrix start.
    rows
        [n, m] row numbers, -1 for none.
    """
    totals = row_sizes(indptr, rows).sum(dim=1)
    return int(totals.max())


def list_entries(indptr: Tensor, rows: Tensor, length: int) -> Listing:
    """List the entries of each point's rows side by side.

    Parameters
    ----------
    indptr
        Where the rows of the matrix start.
    rows
        [n, m] row numbers, -1 for none.
    length
        T, the length of the lists: at least what `longest_listing` returns.
    """
    sizes = row_sizes(indptr, rows)
    ends = sizes.cumsum(dim=1)
    positions = torch.arange(length, device=rows.device).repeat(len(rows), 1)
    places = torch.searchsorted(ends, positions, right=True)
    is_entry = places < rows.shape[1]
    places = places.clamp_(max=rows.shape[1] - 1)

    first_position = ends - sizes
    first_entry = indptr[rows.clamp(min=0)]
    entries = positions + (first_entry - first_position).gather(1, places)
    entries = entries.masked_fill_(~is_entry, 0)
    return Listing(entries, places, is_entry, ends)


def sum_runs(ids: Tensor, values: Tensor, longest: int) -> Tensor:
    """Return, at each place, the sum of the values of the same id up to that place.

    Parameters
    ----------
    ids
        [n, T] with equal ids next to each other.
    values
        [n, T] what is summed.
    longest
        How often an id occurs in a row at most. Each doubling of it costs one more pass.
    """
    distance = 1
    while distance < min(longest, ids.shape[1]):
        is_same = ids[:, distance:] == ids[:, :-distance]
        before = values[:, :-distance].masked_fill(~is_same, 0)
        sums = values.clone()
        sums[:, distance:] += before
        values = sums
        distance *= 2
    return values


def keys_of_sums(labels: Tensor, values: Tensor, longest: int) -> Tensor:
    """Sum the values of equal labels in each row, and return one key per label; all other places get `NO_KEY`.

    Parameters
    ----------
    labels
        [n, T] in any order; -1 for none.
    values
        [n, T] their values.
    longest
        How often a label occurs in a row at most.
    """
    labels, order = labels.sort(dim=1, stable=True)
    sums = sum_runs(labels, values.gather(1, order), longest)
    keys = keys_of(sums, labels)
    is_followed_by_same = labels[:, 1:] == labels[:, :-1]
    keys[:, :-1] = keys[:, :-1].masked_fill(is_followed_by_same, NO_KEY)
    return keys
