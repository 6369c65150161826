"""The dataset contract: what every method, metric and table of xcbench reads."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    from xcbench.data.manifest import Manifest
    from xcbench.data.text import TextEncoder


@dataclass(frozen=True)
class TextColumn(Sequence[str]):
    """Many strings in two arrays, so that a million titles load (or map from disk) at once."""

    utf8: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]  # [n + 1]; string i is utf8[offsets[i]:offsets[i + 1]]

    @classmethod
    def of(cls, strings: Sequence[str]) -> TextColumn:
        encoded = [s.encode("utf-8", "replace") for s in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        return self.utf8[self.offsets[i] : self.offsets[i + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        text, offsets = self.utf8.tobytes(), self.offsets.tolist()
        for start, end in itertools.pairwise(offsets):
            yield text[start:end].decode("utf-8")

    def take(self, rows: npt.NDArray[np.integer]) -> TextColumn:
        """The strings of some rows, in that order."""
        return TextColumn.of([self[int(i)] for i in rows])


@dataclass(frozen=True)
class Propensity:
    """The constants A and B of Jain et al.'s propensity model (see docs/metrics.md)."""

    A: float = 0.55
    B: float = 1.5


@dataclass(frozen=True)
class Split:
    """The points of one side: features, targets, and what is known of them beyond that."""

    X: sp.csr_array  # [n, V] float32, rows of unit length
    Y: sp.csr_array  # [n, L] float32; soft targets are legal
    titles: TextColumn | None = None
    filter: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Pairs (point, label) that count neither as truth nor as prediction; sorted, unique."""
    ignored: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Pairs that training is to count neither as true nor as false; none is in Y. An augmentation sets them."""

    def __len__(self) -> int:
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Dataset:
    """Immutable. Train and test points, labels with their text, and the facts that evaluation needs.

    X of both splits and Z share one vocabulary. Nothing here is ever made dense.
    """

    name: str
    train: Split
    test: Split
    Z: sp.csr_array | None = None  # [L, V] float32, label text; a label without text is an empty row
    label_titles: TextColumn | None = None
    propensity: Propensity = Propensity()
    encoder: TextEncoder | None = None
    """Turns new raw text into rows of X; None where the data came as features without text."""
    manifest: Manifest | None = None

    @property
    def label_count(self) -> int:
        return int(self.train.Y.shape[1])

    @property
    def feature_count(self) -> int:
        return int(self.train.X.shape[1])

    @cached_property
    def label_frequency(self) -> npt.NDArray[np.int64]:
        """n_l: in how many training points each label is a target."""
        return np.bincount(self.train.Y.indices, minlength=self.label_count)

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
        _feed_csr(digest, self.Z)
        _feed_text(digest, self.label_titles)
        digest.update(repr(self.propensity).encode())
        return digest.hexdigest()


def pairs_of_rows(
    pairs: npt.NDArray[np.int64], rows: npt.NDArray[np.integer], points: int
) -> npt.NDArray[np.int64]:  # fmt: skip
    """The pairs (point, label) of some rows of a split of so many points, under the points' new numbers."""
    place = np.full(points, -1)
    place[rows] = np.arange(len(rows))
    kept = pairs[place[pairs[:, 0]] >= 0]
    return np.column_stack([place[kept[:, 0]], kept[:, 1]])


def _feed_array(digest: hashlib._Hash, array: npt.NDArray[np.generic]) -> None:
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)


def _feed_csr(digest: hashlib._Hash, matrix: sp.csr_array | None) -> None:
    if matrix is None:
        digest.update(b"none")
        return
    digest.update(f"csr{matrix.shape}".encode())
    # Index widths differ between ways of building the same matrix; the content must not.
    _feed_array(digest, matrix.indptr.astype(np.int64, copy=False))
    _feed_array(digest, matrix.indices.astype(np.int32, copy=False))
    _feed_array(digest, matrix.data.astype(np.float32, copy=False))


def _feed_text(digest: hashlib._Hash, text: TextColumn | None) -> None:
    if text is None:
        digest.update(b"none")
        return
    _feed_array(digest, text.offsets)
    _feed_array(digest, text.utf8)
