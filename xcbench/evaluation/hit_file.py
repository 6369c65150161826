"""Hits in a small file: what is kept of a run when its predictions are too large to keep.

The file answers every metric that looks at no more than the first `depth` places, with the very figures that the
predictions give. It takes about one byte per true pair before compression.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcbench.data.npz import read_npz
from xcbench.errors import DataError, InputError
from xcbench.evaluation.hits import NEVER, Hits
from xcbench.evaluation.truth import Truth
from xcbench.files import atomic_file

MISSING = np.iinfo(np.uint8).max
"""In place of a place: the label is not among the first `depth`."""


@dataclass(frozen=True)
class FirstHits:
    """The hits among the first `depth` places, in the compact form in which they are stored."""

    depth: int
    places: npt.NDArray[np.uint8]
    """The place of each true pair, in the order of `truth.positives`; or MISSING."""
    first_prediction: npt.NDArray[np.uint8]
    """Per label, the best place that any point gave it, right or wrong; or MISSING."""
    truth_digest: str
    """Identifies the true pairs and the filter for which the places were found."""

    @classmethod
    def of(cls, hits: Hits, truth: Truth, depth: int) -> FirstHits:
        """Return the compact form of hits.

        Parameters
        ----------
        hits
            What `find_hits` returned for this truth, from at least `depth` places.
        truth
            The true pairs and the filter.
        depth
            How many places to keep, from 1 to 255.
        """
        if not 1 <= depth <= MISSING:
            raise InputError(f"hits are kept for 1 to {MISSING} places, got {depth}")

        places = np.full(truth.positives.nnz, MISSING, np.uint8)
        kept = hits.place < depth
        places[_positions(hits, truth)[kept]] = hits.place[kept]

        first = np.where(hits.first_prediction < depth, hits.first_prediction, MISSING)
        return cls(depth, places, first.astype(np.uint8), _digest(truth))

    def hits(self, truth: Truth) -> Hits:
        """Return the hits; a truth other than the one that they were found for is an `InputError`."""
        if self.truth_digest != _digest(truth):
            raise InputError("these hits were found with other true labels or another filter")

        entries = np.flatnonzero(self.places != MISSING)
        points = _points(truth)[entries]
        places = self.places[entries]
        by_place = np.lexsort((places, points))

        counts = np.bincount(points, minlength=len(truth))
        labels = truth.positives.indices[entries[by_place]]
        first = self.first_prediction.astype(np.int32)
        first[first == MISSING] = NEVER
        return Hits(
            indptr=np.concatenate(([0], np.cumsum(counts))),
            place=places[by_place].astype(np.int32),
            label=labels.astype(np.int32),
            first_prediction=first,
        )

    def save(self, path: Path) -> None:
        """Write a compressed npz without pickled objects."""
        with atomic_file(path) as part, part.open("wb") as stream:
            np.savez_compressed(
                stream,
                depth=np.int64(self.depth),
                places=self.places,
                first_prediction=self.first_prediction,
                truth_digest=np.array(self.truth_digest),
            )

    @classmethod
    def load(cls, path: Path) -> FirstHits:
        """Read what `save` wrote; anything else is a `DataError`."""
        arrays = read_npz(path)
        missing = {"depth", "places", "first_prediction", "truth_digest"} - arrays.keys()
        if missing:
            raise DataError(f"hits need {', '.join(sorted(missing))} too", path)
        for name in ("places", "first_prediction"):
            if arrays[name].dtype != np.uint8 or arrays[name].ndim != 1:
                raise DataError(f"expected {name!r} as one row of bytes", path)
        return cls(
            int(_single(arrays["depth"], "iu", path)),
            arrays["places"],
            arrays["first_prediction"],
            str(_single(arrays["truth_digest"], "U", path)),
        )


def _single(array: npt.NDArray[Any], kinds: str, path: Path) -> Any:
    if array.ndim != 0 or array.dtype.kind not in kinds:
        raise DataError(f"expected a single value, got {array.dtype}{list(array.shape)}", path)
    return array.item()


def _points(truth: Truth) -> npt.NDArray[np.int64]:
    """Return the point of each true pair."""
    return np.repeat(np.arange(len(truth), dtype=np.int64), truth.true_count)


def _positions(hits: Hits, truth: Truth) -> npt.NDArray[np.int64]:
    """Return where among the true pairs each hit is."""
    points_of_hits = np.repeat(np.arange(len(truth), dtype=np.int64), np.diff(hits.indptr))
    true_pairs = _points(truth) * truth.label_count + truth.positives.indices
    return np.searchsorted(true_pairs, points_of_hits * truth.label_count + hits.label)


def _digest(truth: Truth) -> str:
    digest = hashlib.blake2b(digest_size=8)
    digest.update(np.array(truth.positives.shape, np.int64).tobytes())
    digest.update(truth.positives.indptr.astype(np.int64).tobytes())
    digest.update(truth.positives.indices.astype(np.int64).tobytes())
    digest.update(truth.filter.astype(np.int64).tobytes())
    return digest.hexdigest()
