"""Training points and the batches that are cut from them by compiled loops: no Python runs per point."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import pad

from xcbench.data import Split
from xcbench.data.points import take_points
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import MixedRows, SparseRows
from xcbench.kernels.random import word_at
from xcbench.nn.device_arrays import on_device, pin
from xcbench.nn.label_parts import LabelRange
from xcbench.nn.losses import Shortlists
from xcbench.train.mixing import DrawnPairs, MixedPairs, mixed_pairs
from xcbench.train.processes import differentiable_sum

_NO_PARTNERS = np.zeros(0, np.int64)
_NO_LABELS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class Candidates:
    """Candidate labels of each point: the members of some groups of labels.

    Groups are clusters (DECAF), clusters grown along a label graph (ECLARE), or single labels. A label that is in
    several groups of a point is its candidate once.

    Parameters
    ----------
    groups
        The groups of each point, [N, g] of int32; -1 where a point has fewer than g.
    members
        The labels of each group, [groups, L].
    with_positives
        Whether a point's true labels are added to its candidates.
    random
        How many random labels are added to them. They differ between steps.
    """

    groups: Ints
    members: SparseRows
    with_positives: bool = False
    random: int = 0

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.dtype != np.int32:
            raise ValueError(f"groups are an int32 array [N, g], got {self.groups.dtype} {self.groups.shape}")
        if self.groups.size and not -1 <= self.groups.min() <= self.groups.max() < len(self.members):
            raise ValueError(f"group numbers are -1 (none) to {len(self.members) - 1}")

    @classmethod
    def of_labels(cls, labels: Ints, label_count: int, with_positives: bool = False, random: int = 0) -> Candidates:
        """Return candidates that are given label by label.

        Parameters
        ----------
        labels
            The candidates of each point, [N, k] of int32, -1 where a point has fewer than k: as in `TopK.indices`.
        label_count
            L, the number of all labels.
        with_positives, random
            As above.
        """
        single = SparseRows(
            indptr=np.arange(label_count + 1),
            indices=np.arange(label_count, dtype=np.int32),
            data=np.ones(label_count, np.float32),
            width=label_count,
        )
        return cls(labels, single, with_positives, random)


@dataclass(frozen=True)
class Share:
    """What one process works on, where several split both the points and the labels of a batch.

    Its batch then has X of its own points, and targets and shortlists of all points for its own labels.
    """

    labels: Longs  # its own labels
    points: int  # of the whole batch
    first_point: int  # the position of its first point in the whole batch
    first_label: int  # the position of its first label among those of the whole batch
    pairs: int  # the (point, label) pairs of the whole batch

    def gather(self, x: Tensor) -> Tensor:
        """Return the vectors of all points of the batch, from those of this process's points.

        The gradient comes back as the sum over all processes.
        """
        after = self.points - self.first_point - len(x)
        among_zeros = pad(x, (0, 0, self.first_point, after))
        # Processes have unlike numbers of points. A sum of tables that are zero elsewhere needs no equal sizes.
        vectors: Tensor = differentiable_sum(among_zeros)
        return vectors


@dataclass(frozen=True)
class Batch:
    """What a module's loss is given."""

    rows: Longs  # the row numbers of X's points within the training points
    X: SparseRows | MixedRows | Tensor
    targets: SparseRows
    shortlists: Shortlists | None
    share: Share | None = None
    """Given to losses that are marked as `splits_labels`, where several processes train."""

    @property
    def labels(self) -> Longs | None:
        """The labels that this process ranks all points against, if there are no shortlists; None for all labels."""
        if self.share is None:
            return None
        return self.share.labels

    @property
    def pairs(self) -> int | None:
        """The (point, label) pairs of the whole batch, if this process has only some of them."""
        if self.share is None:
            return None
        return self.share.pairs

    def gather(self, x: Tensor) -> Tensor:
        """Return the vectors of all points of the batch, given those of X."""
        if self.share is None:
            return x
        return self.share.gather(x)


class Points:
    """Training points.

    Parameters
    ----------
    X
        Features, one row per point: sparse, or dense and constant.
    targets
        One row per point and one column per label. Values may be real numbers; nan means that the pair is ignored.
    candidates
        The labels against which each point is ranked; None for all labels.
    split
        The points as they are in the data, if some of them may be label titles or may have to be mixed: a title has its
        own label among its candidates; a mixed point has the candidates of both, and an ignored pair of either is
        ignored.
    ordered
        Whether the entries of a sparse row stand in an order, as the words of a title do. Then rows are not summed up
        where points are mixed: the encoder is given both.
    """

    def __init__(
        self,
        X: sp.csr_array | Floats | Tensor,
        targets: sp.csr_array,
        candidates: Candidates | None = None,
        split: Split | None = None,
        ordered: bool = False,
    ) -> None:
        self.X = SparseRows.of(X) if sp.issparse(X) else torch.as_tensor(X)
        self.targets = SparseRows.of(targets)
        self.candidates = candidates
        self.ordered = ordered
        self.mixed: MixedPairs | None = None
        self.label_of = _NO_LABELS
        if split is not None:
            self.mixed = mixed_pairs(split)
        if split is not None and split.label_of is not None:
            self.label_of = split.label_of
        self._X_on_device: Tensor | None = None

        sizes = {len(self.X), len(self.targets)}
        if candidates is not None:
            sizes.add(len(candidates.groups))
        if split is not None:
            sizes.add(len(split))
        if len(sizes) != 1:
            raise ValueError(f"features, targets and candidates must have one row per point, got {sorted(sizes)} rows")

    def __len__(self) -> int:
        """Return the number of points that an epoch has."""
        if self.mixed is not None:
            return len(self.mixed.points)
        return len(self.targets)

    @property
    def titles(self) -> int:
        """How many of the points that an epoch has are label titles."""
        if self.mixed is not None and self.mixed.mixing.partners == "labels":
            return 0
        return int((self.label_of >= 0).sum())

    def cut(self, rows: Longs, key: int = 0, device: torch.device | str = "cpu") -> Batch:
        """Return the batch of some points.

        Parameters
        ----------
        rows
            The row numbers of the points.
        key
            The seed of random candidates.
        device
            Where dense features are. Everything else stays in main memory.
        """
        return self.prepare(rows, key).finish(torch.device(device))

    def prepare(self, rows: Longs, key: int = 0) -> PreparedBatch:
        """Return the batch of some points without its dense features: what can be done in another thread."""
        rows, mixed = self._mixed_rows(rows, key)
        X = self._sparse_features(rows, mixed)
        targets = _rows_of(self.targets, rows, mixed)
        shortlists = None
        if self.candidates is not None:
            shortlists = cut_shortlists(rows, self.candidates, targets, key, mixed, self.label_of)
        return PreparedBatch(self, rows, X, targets, shortlists, mixed)

    def prepare_share(self, rows: Longs, key: int, points: slice, labels: LabelRange) -> PreparedBatch:
        """Return one process's share of a batch; see `Share`.

        Parameters
        ----------
        rows
            The row numbers of all points of the batch.
        key
            The seed of random candidates.
        points
            Which of them are this process's.
        labels
            The labels of this process.
        """
        rows, mixed = self._mixed_rows(rows, key)
        own = rows[points]
        own_mixed = None
        if mixed is not None:
            own_mixed = mixed.part(points)
        X = self._sparse_features(own, own_mixed)

        targets = _rows_of(self.targets, rows, mixed)
        pairs = len(rows) * targets.width
        first_label = labels.first
        shortlists = None
        if self.candidates is not None:
            # The union is in ascending order, so this process's labels are side by side in it.
            whole = cut_shortlists(rows, self.candidates, targets, key, mixed, self.label_of)
            first_label, end = np.searchsorted(whole.labels, (labels.first, labels.last)).tolist()
            shortlists = Shortlists(whole.labels[first_label:end], whole.entries.columns(first_label, end))
            pairs = len(whole.entries.indices)

        share = Share(labels.labels, len(rows), points.start, first_label, pairs)
        own_targets = targets.columns(labels.first, labels.last)
        return PreparedBatch(self, own, X, own_targets, shortlists, own_mixed, share)

    def _mixed_rows(self, rows: Longs, key: int) -> tuple[Longs, DrawnPairs | None]:
        """Return the rows of a batch, and what they are mixed with; None where points are not mixed."""
        if self.mixed is None:
            return rows, None
        return self.mixed.draw(rows, key)

    def _sparse_features(self, rows: Longs, mixed: DrawnPairs | None) -> SparseRows | MixedRows | None:
        """Return the features of some points; None where features are dense."""
        if not isinstance(self.X, SparseRows):
            return None
        if mixed is None or not self.ordered:
            return _rows_of(self.X, rows, mixed)
        return MixedRows(self.X.take(rows), self.X.take(mixed.partners_of(rows)), mixed.weights)

    def dense_features(self, rows: Longs, device: torch.device) -> Tensor:
        """Return the dense features of some points on a device. All points' features move there at the first call."""
        if isinstance(self.X, SparseRows):
            raise TypeError("these points have sparse features")
        if self._X_on_device is None or self._X_on_device.device != device:
            self._X_on_device = self.X.to(device)
        return self._X_on_device[on_device(rows, device)]


@dataclass(frozen=True)
class PreparedBatch:
    """A batch that is cut, but whose dense features are not gathered yet."""

    points: Points
    rows: Longs
    X: SparseRows | MixedRows | None  # None where features are dense
    targets: SparseRows
    shortlists: Shortlists | None
    mixed: DrawnPairs | None = None  # None where points are not mixed
    share: Share | None = None

    def finish(self, device: torch.device) -> Batch:
        """Return the batch, with dense features on a device."""
        X: SparseRows | MixedRows | Tensor
        if self.X is None:
            X = self.points.dense_features(self.rows, device)
            if self.mixed is not None:
                others = self.points.dense_features(self.mixed.partners_of(self.rows), device)
                weights = torch.from_numpy(self.mixed.weights).to(X)[:, None]
                X = weights * X + (1 - weights) * others
        else:
            X = self.X
        return Batch(self.rows, X, self.targets, self.shortlists, self.share)

    def pin(self) -> None:
        """Copy the arrays that a step reads to page-locked memory."""
        tables = []
        if self.X is None:
            pin(self.rows)
        elif isinstance(self.X, MixedRows):
            tables += [self.X.first, self.X.second]
        else:
            tables.append(self.X)
        if self.shortlists is None:
            tables.append(self.targets)
        else:
            pin(self.shortlists.labels)
            tables.append(self.shortlists.entries)

        for table in tables:
            pin(table.indptr)
            pin(table.indices)
            pin(table.data)


def _rows_of(matrix: SparseRows, rows: Longs, mixed: DrawnPairs | None) -> SparseRows:
    """Return rows of a matrix, mixed with those of their partners if there are any."""
    taken = matrix.take(rows)
    if mixed is None:
        return taken
    has_partner = mixed.partners >= 0
    partners = matrix.take(mixed.partners[has_partner])
    own_weights = sp.diags_array(mixed.weights, format="csr")
    # A row without a partner has weight 1, and nothing is added to it.
    places = sp.csr_array(
        (1 - mixed.weights[has_partner], np.flatnonzero(has_partner), np.arange(len(partners) + 1)),
        shape=(len(partners), len(rows)),
    ).T
    total = own_weights @ taken.to_scipy() + places.tocsr() @ partners.to_scipy()
    return SparseRows.of(sp.csr_array(total))


def cut_shortlists(
    rows: Longs,
    candidates: Candidates,
    targets: SparseRows,
    key: int = 0,
    mixed: DrawnPairs | None = None,
    label_of: Ints | None = None,
) -> Shortlists:
    """Return the shortlists of a batch.

    Parameters
    ----------
    rows
        The batch's points, as rows of `candidates.groups`.
    candidates
        The groups of labels of each point.
    targets
        One row per point of the batch.
    key
        The seed of random candidates.
    mixed
        What the points are mixed with, if they are: a point then has its partner's candidates, too.
    label_of
        The label whose title each point is, of all points, which is added to its candidates; -1 for other points. Empty
        or None where no point is a title.
    """
    partners = _NO_PARTNERS
    if mixed is not None:
        partners = mixed.partners
    own = _NO_LABELS
    if label_of is not None:
        own = label_of
    labels, indptr, positions, values = _cut_shortlists(
        rows,
        partners,
        own,
        candidates.groups,
        candidates.members.indptr,
        candidates.members.indices,
        candidates.members.width,
        targets.indptr,
        targets.indices,
        targets.data,
        candidates.with_positives,
        candidates.random,
        np.uint64(key),
    )
    return Shortlists(labels, SparseRows(indptr, positions, values, len(labels)))


def learnable_rows(split: Split) -> Longs:
    """Return the points that have a feature and a label: from the others there is nothing to learn."""
    has_features = np.diff(split.X.indptr) > 0
    has_labels = np.diff(split.Y.indptr) > 0
    return np.flatnonzero(has_features & has_labels)


def learnable(split: Split) -> Split:
    """Return a split without the points that have no feature or no label: there is nothing to learn from them."""
    rows = learnable_rows(split)
    if len(rows) == len(split):
        return split

    return take_points(dataclasses.replace(split, titles=None), rows)


def targets_of(split: Split) -> sp.csr_array:
    """Return Y, with nan at the ignored pairs, so that these have no loss."""
    if not len(split.ignored):
        return split.Y

    rows, labels = split.ignored.T
    nans = np.full(len(rows), np.nan, np.float32)
    marks = sp.csr_array((nans, (rows, labels)), shape=split.Y.shape)
    # No ignored pair is in Y, so the sum changes no target.
    return sp.csr_array(split.Y + marks)


@njit(cache=True, nogil=True)
def _cut_shortlists(
    rows: Longs,
    partners: Longs,
    label_of: Ints,
    groups: Ints,
    member_indptr: Longs,
    members: Ints,
    label_count: int,
    y_indptr: Longs,
    y_labels: Ints,
    y_values: Floats,
    with_positives: bool,
    random: int,
    key: np.uint64,
) -> tuple[Longs, Longs, Ints, Floats]:
    """Return the union of all candidates, and CSR arrays with each point's: positions in the union, and targets.

    `partners` has for each point the one that it is mixed with, -1 for none, and no entry where nothing is mixed;
    `label_of` has an entry for each point of all, or none where no point is a title.
    """
    max_entries = 0
    for i, row in enumerate(rows):
        max_entries += random + y_indptr[i + 1] - y_indptr[i]
        for source in (row, _partner_of(partners, i)):
            if source < 0:
                continue
            max_entries += 1
            for group in groups[source]:
                if group >= 0:
                    max_entries += member_indptr[group + 1] - member_indptr[group]

    indptr = np.zeros(len(rows) + 1, np.int64)
    labels = np.empty(max_entries, np.int32)
    targets = np.empty(max_entries, np.float32)
    # By label: the last point that has it as a candidate, the last point that has it as a target, and that target.
    candidate_of = np.full(label_count, -1, np.int32)
    target_of = np.full(label_count, -1, np.int32)
    target_value = np.empty(label_count, np.float32)
    is_used = np.zeros(label_count, np.bool_)

    end = 0
    for i, row in enumerate(rows):
        for e in range(y_indptr[i], y_indptr[i + 1]):
            target_of[y_labels[e]] = i
            target_value[y_labels[e]] = y_values[e]

        if with_positives:
            end = _append_new(y_labels[y_indptr[i] : y_indptr[i + 1]], i, candidate_of, labels, end)
        for source in (row, _partner_of(partners, i)):
            if source < 0:
                continue
            if len(label_of) and label_of[source] >= 0:
                end = _append_new(label_of[source : source + 1], i, candidate_of, labels, end)
            for group in groups[source]:
                if group >= 0:
                    end = _append_new(
                        members[member_indptr[group] : member_indptr[group + 1]], i, candidate_of, labels, end
                    )
        for draw in range(random):
            word = word_at(word_at(key, row), draw) >> np.uint64(32)
            drawn = np.int32((word * np.uint64(label_count)) >> np.uint64(32))
            if candidate_of[drawn] != i:
                candidate_of[drawn] = i
                labels[end] = drawn
                end += 1

        end = _write_targets(indptr[i], end, labels, targets, target_of, target_value, i, is_used)
        indptr[i + 1] = end

    union = np.flatnonzero(is_used)
    position = target_of  # reuses the memory
    for u, label in enumerate(union):
        position[label] = u
    for e in range(end):
        labels[e] = position[labels[e]]
    return union, indptr, labels[:end], targets[:end]


@njit(inline="always")
def _partner_of(partners: Longs, i: int) -> int:
    """Return the point that point i of a batch is mixed with, or -1."""
    partner = -1
    if len(partners):
        partner = partners[i]
    return partner


@njit(inline="always")
def _write_targets(
    start: int,
    end: int,
    labels: Ints,
    targets: Floats,
    target_of: Ints,
    target_value: Floats,
    i: int,
    is_used: npt.NDArray[np.bool_],
) -> int:
    """Write the targets of point i's candidates, and remove those whose target is nan. Returns the new end."""
    new_end = start
    for e in range(start, end):
        target = target_value[labels[e]] if target_of[labels[e]] == i else np.float32(0)
        counts = not np.isnan(target)
        is_used[labels[e]] |= counts
        labels[new_end] = labels[e]
        targets[new_end] = target
        new_end += np.int64(counts)
    return new_end


@njit(inline="always")
def _append_new(new_labels: Ints, i: int, candidate_of: Ints, labels: Ints, end: int) -> int:
    """Append labels to the candidates of point i, as far as they are not among them yet. Returns the new end.

    Every label is written, but `end` moves on only for new ones. Whether a label is new is as good as random, and a
    branch on it would often be mispredicted.
    """
    for label in new_labels:
        labels[end] = label
        end += np.int64(candidate_of[label] != i)
        candidate_of[label] = i
    return end
