"""Batches, cut out of CSR arrays by compiled loops: no Python runs once a point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor

from xcbench.data import Split
from xcbench.data.dataset import pairs_of_rows
from xcbench.kernels.parallel import Floats, Ints, Longs
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn.dropout import word_at
from xcbench.nn.losses import Shortlists


@dataclass(frozen=True)
class Candidates:
    """For each point some groups of labels, whose members are its candidates; a label in two of them counts once.

    Groups are clusters (DECAF), clusters grown along a label graph (ECLARE), or single labels.
    """

    groups: Ints  # [N, g]; -1 where a point has fewer
    members: SparseRows  # [groups, L]
    with_positives: bool = False
    """Whether a point's true labels join its candidates."""
    random: int = 0
    """How many labels drawn at random join them, others in each step."""

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.dtype != np.int32:
            raise ValueError(f"groups are an int32 array [N, g], got {self.groups.dtype} {self.groups.shape}")
        if self.groups.size and not -1 <= self.groups.min() <= self.groups.max() < len(self.members):
            raise ValueError(f"group numbers are -1 (none) to {len(self.members) - 1}")

    @classmethod
    def of_labels(cls, labels: Ints, label_count: int, with_positives: bool = False, random: int = 0) -> Candidates:
        """Candidates that are listed one by one, as `TopK.indices` lists them."""
        ones = np.ones(label_count, np.float32)
        single = SparseRows(np.arange(label_count + 1), np.arange(label_count, dtype=np.int32), ones, label_count)
        return cls(labels, single, with_positives, random)


@dataclass(frozen=True)
class Batch:
    """What a module's loss is given."""

    rows: Longs  # which points these are
    X: SparseRows | Tensor
    targets: SparseRows
    shortlists: Shortlists | None


class Points:
    """Training points: their features (sparse, or dense and constant), their targets, perhaps their candidates."""

    def __init__(
        self, X: sp.csr_array | Floats | Tensor, targets: sp.csr_array, candidates: Candidates | None = None
    ) -> None:
        self.X = SparseRows.of(X) if sp.issparse(X) else torch.as_tensor(X)
        self.targets = SparseRows.of(targets)
        self.candidates = candidates
        sizes = {len(self.X), len(self.targets)} | ({len(candidates.groups)} if candidates else set())
        if len(sizes) != 1:
            raise ValueError(f"features, targets and candidates must have one row a point, got {sorted(sizes)} rows")

    def __len__(self) -> int:
        return len(self.targets)

    def cut(self, rows: Longs, key: int = 0, device: torch.device | str = "cpu") -> Batch:
        """The batch of some points. `key` seeds what is drawn at random; dense features are moved to the device."""
        X = self.X.take(rows) if isinstance(self.X, SparseRows) else self.X[torch.from_numpy(rows)].to(device)
        targets = self.targets.take(rows)
        if self.candidates is None:
            return Batch(rows, X, targets, None)
        c = self.candidates
        labels, starts, places, truth = _cut_shortlists(
            rows, c.groups, c.members.starts, c.members.columns, c.members.width, targets.starts, targets.columns,
            targets.values, c.with_positives, c.random, np.uint64(key),
        )  # fmt: skip
        shortlists = Shortlists(labels, SparseRows(starts, places, truth, len(labels)))
        return Batch(rows, X, targets, shortlists)


def learnable(split: Split) -> Split:
    """Without the points that have no feature or no target: there is nothing to learn from them."""
    keep = np.flatnonzero((np.diff(split.X.indptr) > 0) & (np.diff(split.Y.indptr) > 0))
    if len(keep) == len(split):
        return split
    return Split(split.X[keep], split.Y[keep], ignored=pairs_of_rows(split.ignored, keep, len(split)))


def targets_of(split: Split) -> sp.csr_array:
    """Y, and at the pairs that are left open what is not a number: the losses then count them neither way."""
    if not len(split.ignored):
        return split.Y
    rows, labels = split.ignored.T
    marks = sp.csr_array((np.full(len(rows), np.nan, np.float32), (rows, labels)), shape=split.Y.shape)
    # Y has none of these pairs, so that the sum keeps every target.
    return sp.csr_array(split.Y + marks)


@njit(cache=True, nogil=True)
def _cut_shortlists(
    rows: Longs, groups: Ints, member_starts: Longs, members: Ints, label_count: int, y_starts: Longs, y_labels: Ints,
    y_values: Floats, with_positives: bool, random: int, key: np.uint64,
) -> tuple[Longs, Longs, Ints, Floats]:  # fmt: skip
    """(union of labels, row starts, places in the union, targets)."""
    most = 0
    for i, row in enumerate(rows):
        most += random + y_starts[i + 1] - y_starts[i]
        for group in groups[row]:
            if group >= 0:
                most += member_starts[group + 1] - member_starts[group]
    starts, labels, targets = np.zeros(len(rows) + 1, np.int64), np.empty(most, np.int32), np.empty(most, np.float32)
    listed_by, true_for = np.full(label_count, -1, np.int32), np.full(label_count, -1, np.int32)
    truth, used = np.empty(label_count, np.float32), np.zeros(label_count, np.bool_)
    end = 0
    for i, row in enumerate(rows):
        for e in range(y_starts[i], y_starts[i + 1]):
            true_for[y_labels[e]], truth[y_labels[e]] = i, y_values[e]
        if with_positives:
            end = _join(y_labels[y_starts[i] : y_starts[i + 1]], i, listed_by, labels, end)
        for group in groups[row]:
            if group >= 0:
                end = _join(members[member_starts[group] : member_starts[group + 1]], i, listed_by, labels, end)
        for draw in range(random):
            word = word_at(word_at(key, row), draw) >> np.uint64(32)
            drawn = np.int32((word * np.uint64(label_count)) >> np.uint64(32))
            if listed_by[drawn] != i:
                listed_by[drawn], labels[end] = i, drawn
                end += 1
        end = _leave_out_open(starts[i], end, labels, targets, true_for, truth, i, used)
        starts[i + 1] = end
    union, place = np.flatnonzero(used), true_for
    for u, label in enumerate(union):
        place[label] = u
    for e in range(end):
        labels[e] = place[labels[e]]
    return union, starts, labels[:end], targets[:end]


@njit(inline="always")
def _leave_out_open(
    start: int, end: int, labels: Ints, targets: Floats, true_for: Ints, truth: Floats, i: int,
    used: npt.NDArray[np.bool_],
) -> int:  # fmt: skip
    """Write down the targets of a point's list, and which labels are used; one whose target is no number leaves it."""
    kept = start
    for e in range(start, end):
        target = truth[labels[e]] if true_for[labels[e]] == i else np.float32(0)
        known = not np.isnan(target)
        used[labels[e]] |= known
        labels[kept], targets[kept] = labels[e], target
        kept += np.int64(known)
    return kept


@njit(inline="always")
def _join(some: Ints, i: int, listed_by: Ints, labels: Ints, end: int) -> int:
    """Append to a point's list those labels that are not on it yet.

    Every label is written and only new ones are kept: whether one is new is a toss-up that no branch could predict.
    """
    for label in some:
        labels[end] = label
        end += np.int64(listed_by[label] != i)
        listed_by[label] = i
    return end
