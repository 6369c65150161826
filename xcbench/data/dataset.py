"""The dataset contract: what every method, metric and table of xcbench reads."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    from xcbench.data.manifest import Manifest
    from xcbench.data.text import TextEncoder


Pairs = npt.NDArray[np.int64]
"""[m, 2] pairs (point, label)."""

POSITIVE = 0.5
"""From here on a soft target makes a label true, where that is all that counts; see docs/guides/soft-targets.md."""


@dataclass(frozen=True)
class TextColumn(Sequence[str]):
    """A sequence of strings in two arrays, so that a million titles load (or map from disk) at once.

    Make one of ordinary strings with `TextColumn.of`.

    Parameters
    ----------
    utf8
        The UTF-8 bytes of all strings, one after the other.
    offsets
        [n + 1]; string i is `utf8[offsets[i]:offsets[i + 1]]`.
    """

    utf8: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, strings: Sequence[str]) -> TextColumn:
        """Store the given strings; half a character (a lone surrogate) becomes a question mark."""
        encoded = [string.encode("utf-8", "replace") for string in strings]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))

        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            positions = range(*i.indices(len(self)))
            return [self[position] for position in positions]
        if not -len(self) <= i < len(self):
            raise IndexError(i)

        i %= len(self)
        start = self.offsets[i]
        end = self.offsets[i + 1]
        return self.utf8[start:end].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        content = self.utf8.tobytes()
        for start, end in itertools.pairwise(self.offsets.tolist()):
            yield content[start:end].decode("utf-8")

    def take(self, rows: npt.NDArray[np.integer]) -> TextColumn:
        """Return the strings of the given rows, in the given order."""
        return TextColumn.of([self[int(i)] for i in rows])


@dataclass(frozen=True)
class Propensity:
    """The constants A and B of Jain et al.'s propensity model (see docs/reference/metrics.md)."""

    A: float = 0.55
    B: float = 1.5


def no_pairs() -> Pairs:
    """Return an empty [0, 2] array of pairs (point, label)."""
    return np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Mixing:
    """MixUp: whenever a point is trained on, it is mixed with another one, features and targets alike.

    Parameters
    ----------
    partners
        What a point is mixed with: any other training point, or a point that is a label's title. In the latter case the
        titles are partners only, and no points of their own.
    alpha
        The weight of the point itself is max(w, 1 - w) with w from Beta(alpha, alpha), drawn anew at every step.
    weight
        A fixed weight in the place of a drawn one; 1 mixes nothing.
    """

    partners: Literal["points", "labels"] = "points"
    alpha: float = 0.2
    weight: float | None = None

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"alpha is greater than 0, got {self.alpha}")
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise ValueError(f"weight lies between 0 and 1, got {self.weight}")


@dataclass(frozen=True)
class Split:
    """The training points or the test points of a dataset.

    Parameters
    ----------
    X
        [n, V] float32 features; each row has unit length or is empty.
    Y
        [n, L] float32 targets, above 0 and at most 1: how true a label is for a point (docs/guides/soft-targets.md).
    titles
        One title per point, or None.
    filter
        [m, 2] pairs (point, label) that the metrics leave out: such a label is neither a target nor a prediction of
        this point. An example is a label that is the point itself. The pairs are sorted and distinct.
    ignored
        [m, 2] pairs (point, label) that training leaves out: such a label is neither a positive nor a negative of
        this point. None of them is in `Y`. Files never hold such pairs; an augmentation may add them.
    label_of
        [n] the label whose title each point is, -1 for points that are no titles. None where no point is one, as in all
        files; an augmentation may add such points.
    mixing
        How training mixes the points, None if it does not; an augmentation may ask for it.
    """

    X: sp.csr_array
    Y: sp.csr_array
    titles: TextColumn | None = None
    filter: Pairs = field(default_factory=no_pairs)
    ignored: Pairs = field(default_factory=no_pairs)
    label_of: npt.NDArray[np.int32] | None = None
    mixing: Mixing | None = None

    def __len__(self) -> int:
        """Return the number of points."""
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Dataset:
    """Training and test points, labels with their text, and the constants that evaluation needs. Immutable.

    `X` of both splits and `Z` share one vocabulary. No matrix is ever made dense.

    Parameters
    ----------
    name
        The name of the dataset.
    train, test
        The training points and the test points.
    Z
        [L, V] float32 features of the labels' titles; a label without text is an empty row. None where no label has
        text.
    label_titles
        One title per label, or None.
    propensity
        The constants of the propensity model, for the metrics PSP@k and PSnDCG@k.
    encoder
        Turns new titles into rows of `X`; None where the data came as features without text.
    manifest
        Source, licence and further facts about the dataset, or None.
    """

    name: str
    train: Split
    test: Split
    Z: sp.csr_array | None = None
    label_titles: TextColumn | None = None
    propensity: Propensity = Propensity()
    encoder: TextEncoder | None = None
    manifest: Manifest | None = None

    @property
    def label_count(self) -> int:
        """The number of labels, L."""
        return int(self.train.Y.shape[1])

    @property
    def feature_count(self) -> int:
        """The size of the vocabulary, V."""
        return int(self.train.X.shape[1])

    @cached_property
    def label_frequency(self) -> npt.NDArray[np.int64]:
        """n_l: the number of training points per label. A soft target counts from one half on."""
        is_positive = self.train.Y.data >= POSITIVE
        return np.bincount(self.train.Y.indices[is_positive], minlength=self.label_count)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of everything that training or evaluation reads; equal data has equal fingerprints."""
        digest = hashlib.sha256()
        for split in (self.train, self.test):
            _feed_csr(digest, split.X)
            _feed_csr(digest, split.Y)
            _feed_array(digest, split.filter)
            _feed_text(digest, split.titles)
            if len(split.ignored):
                _feed_array(digest, split.ignored)
            if split.label_of is not None:
                _feed_array(digest, split.label_of)
            if split.mixing is not None:
                digest.update(repr(split.mixing).encode())
        _feed_csr(digest, self.Z)
        _feed_text(digest, self.label_titles)
        digest.update(repr(self.propensity).encode())
        return digest.hexdigest()


def pairs_of_rows(pairs: Pairs, rows: npt.NDArray[np.integer], points: int) -> Pairs:
    """Select the pairs (point, label) of some rows of a split, and renumber their points.

    Parameters
    ----------
    pairs
        [m, 2] pairs of the whole split.
    rows
        The selected points; `rows[i]` becomes point i.
    points
        The number of points of the whole split.
    """
    new_row = np.full(points, -1)
    new_row[rows] = np.arange(len(rows))

    pair_rows = new_row[pairs[:, 0]]
    is_selected = pair_rows >= 0
    return np.column_stack([pair_rows[is_selected], pairs[is_selected, 1]])


def _feed_array(digest: hashlib._Hash, array: npt.NDArray[np.generic]) -> None:
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)


def _feed_csr(digest: hashlib._Hash, matrix: sp.csr_array | None) -> None:
    if matrix is None:
        digest.update(b"none")
        return

    digest.update(f"csr{matrix.shape}".encode())
    # Index widths differ between ways of building the same matrix; the digest must not.
    _feed_array(digest, matrix.indptr.astype(np.int64, copy=False))
    _feed_array(digest, matrix.indices.astype(np.int32, copy=False))
    _feed_array(digest, matrix.data.astype(np.float32, copy=False))


def _feed_text(digest: hashlib._Hash, text: TextColumn | None) -> None:
    if text is None:
        digest.update(b"none")
        return

    _feed_array(digest, text.offsets)
    _feed_array(digest, text.utf8)
