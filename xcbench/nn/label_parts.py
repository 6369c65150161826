"""Parts of a label side that can do with the rows of some labels: where several processes share the labels."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from xcbench.kernels.arrays import Longs


class LabelRange:
    """The labels of one process: `first` to `last - 1`.

    Parameters
    ----------
    first, last
        The range; it may be empty.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.labels: Longs = np.arange(first, last)
        self._asked: Longs = self.labels
        self._rows: Longs | None = None

    def rows_of(self, labels: Longs | None) -> Longs | None:
        """Return the rows of labels in a table that has the range only; None for `self.labels`, which means all rows.

        The tables of a label side are all asked for the same labels. So the last answer is kept, and goes to a device
        once.
        """
        if labels is None:
            raise ValueError(f"this process has labels {self.first} to {self.last - 1} only: all cannot be asked for")
        if labels is not self._asked:
            if len(labels) and not self.first <= labels[0] <= labels[-1] < self.last:
                raise ValueError(f"labels from {self.first} to {self.last - 1} were expected, in ascending order")
            self._asked = labels
            self._rows = None
            if labels is not self.labels:
                self._rows = labels - self.first
        return self._rows


class LabelPart(nn.Module):
    """A module with tables of one row per label. `train` may take rows away for the time of a training."""

    kept: LabelRange | None = None

    @property
    def row_count(self) -> int:
        """The number of labels that it has rows of."""
        raise NotImplementedError

    def label_tables(self) -> list[Tensor]:
        """Return the parameters and buffers that have one row per label."""
        raise NotImplementedError

    def keep(self, labels: LabelRange | None) -> None:
        """Note which labels the tables have rows of; None for all. Callers still pass the labels' own numbers."""
        self.kept = labels

    def rows_of(self, labels: Longs | None) -> Longs | None:
        """Return the rows of labels in the tables; None means all rows."""
        if self.kept is None:
            return labels
        return self.kept.rows_of(labels)
