"""Plain lists of a caller, checked: titles, labels, and what is asked for them."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.matrices import unit_rows
from xcbench.errors import InputError

LabelName = str | int


def as_titles(titles: Any, name: str = "titles") -> list[str]:
    """Return titles as a list of texts.

    Parameters
    ----------
    titles
        A list, a column of a frame, an array: a text per point.
    name
        What the caller knows them by.
    """
    if isinstance(titles, str | bytes):
        raise InputError(f"{name} is a list of titles, got a single one; write [title]")
    if hasattr(titles, "columns"):
        columns = ", ".join(map(str, titles.columns))
        raise InputError(f"{name} is a list of titles, got a frame; write frame[column] with one of {columns}")
    if not isinstance(titles, Iterable) or isinstance(titles, Mapping):
        raise InputError(f"{name} is a list of titles, got {type(titles).__name__}")

    listed = list(titles)
    for row, title in enumerate(listed):
        if not isinstance(title, str):
            raise InputError(f"{name}[{row}] is {_shown(title)}; expected a text ('' where there is none)")
    return listed


def as_features(X: Any, feature_count: int | None = None) -> sp.csr_array:
    """Return sparse features as methods expect them: csr, float32, rows of unit length.

    Parameters
    ----------
    X
        A row per point.
    feature_count
        The number of columns that a trained model expects; None accepts any.
    """
    matrix = sp.csr_array(X).astype(np.float32)
    if feature_count is not None and matrix.shape[1] != feature_count:
        raise InputError(f"X has {matrix.shape[1]} features, but the model was trained on {feature_count} features")
    if not np.isfinite(matrix.data).all():
        raise InputError("X holds a number that is not finite (NaN or infinity)")
    matrix.sum_duplicates()
    return unit_rows(matrix)


@dataclass(frozen=True)
class Labels:
    """The labels of points: their names, and which point has which."""

    names: tuple[LabelName, ...]
    Y: sp.csr_array
    """[n, L] ones."""

    @property
    def are_text(self) -> bool:
        """Whether the names are texts, which methods may read."""
        return all(isinstance(name, str) for name in self.names)

    @property
    def index(self) -> dict[LabelName, int]:
        """The column of each label."""
        return {name: column for column, name in enumerate(self.names)}


def as_labels(labels: Any, points: int) -> Labels:
    """Return the labels of points.

    Parameters
    ----------
    labels
        A list of labels per point (texts or whole numbers), or a matrix of zeros and ones, points by labels.
    points
        How many points there are.
    """
    if sp.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim == 2):
        return _labels_of_matrix(labels, points)
    return _labels_of_lists(as_label_lists(labels), points)


def as_label_lists(labels: Any, name: str = "labels") -> list[list[LabelName]]:
    """Return a list of labels per point, all of one type."""
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise InputError(f"{name} is a list with a list of labels per point, got {type(labels).__name__}")
    return [_labels_of_point(each, f"{name}[{row}]") for row, each in enumerate(labels)]


def _labels_of_point(labels: Any, place: str) -> list[LabelName]:
    if isinstance(labels, str):
        raise InputError(f"{place} is the text {labels!r}; expected a list of labels, such as [{labels!r}]")
    if not isinstance(labels, Iterable) or isinstance(labels, Mapping):
        raise InputError(f"{place} is {_shown(labels)}; expected a list of labels")

    found: list[LabelName] = []
    for label in labels:
        if isinstance(label, bool | np.bool_) or not isinstance(label, str | numbers.Integral):
            raise InputError(f"{place} holds {_shown(label)}; a label is a text or a whole number")
        if isinstance(label, str):
            found.append(label)
        else:
            found.append(int(label))
    return found


def _labels_of_lists(lists: Sequence[Sequence[LabelName]], points: int) -> Labels:
    check_same_length(points, len(lists))
    distinct = set(itertools.chain.from_iterable(lists))
    if not distinct:
        raise InputError("labels: no point has a label")
    if len({type(label) for label in distinct}) > 1:
        raise InputError("labels: some are texts and some are numbers; expected one of the two")
    if "" in distinct:
        row = next(row for row, each in enumerate(lists) if "" in each)
        raise InputError(f"labels[{row}] holds an empty text")

    names = tuple(sorted(distinct))
    return Labels(names, indicator(lists, {name: column for column, name in enumerate(names)}))


def _labels_of_matrix(matrix: Any, points: int) -> Labels:
    check_same_length(points, matrix.shape[0])
    Y = sp.csr_array(matrix).astype(np.float32)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    if not np.all(Y.data == 1):
        raise InputError("labels: expected a matrix of zeros and ones")
    if Y.nnz == 0:
        raise InputError("labels: no point has a label")
    return Labels(tuple(range(Y.shape[1])), Y)


def indicator(lists: Sequence[Sequence[LabelName]], index: Mapping[LabelName, int]) -> sp.csr_array:
    """Return [n, L] ones at the labels of each point; a label named twice counts once.

    Parameters
    ----------
    lists
        The labels of each point.
    index
        The column of each label.
    """
    columns = [sorted({index[label] for label in each}) for each in lists]
    indptr = np.cumsum([0, *map(len, columns)])
    indices: npt.NDArray[np.int32] = np.fromiter(itertools.chain.from_iterable(columns), np.int32, int(indptr[-1]))
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(lists), len(index)))


def check_same_length(points: int, labels: int) -> None:
    """Raise an `InputError` unless each point has its labels."""
    if points != labels:
        raise InputError(f"there are {points} points but labels of {labels}")


def check_k(k: Any) -> int:
    """Return how many labels are asked for, a whole number from 1 up."""
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or k < 1:
        raise InputError(f"k is a whole number from 1 up, got {_shown(k)}")
    return int(k)


def as_names(names: Any, what: str) -> tuple[str, ...]:
    """Return names of plug-ins: one text is one name."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} is a list of names, got {_shown(names)}")
    return tuple(names)


def as_settings(settings: Any) -> dict[str, Any]:
    """Return config keys and values."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise InputError(f"settings is a dict of config keys and values, got {_shown(settings)}")
    return dict(settings)


def check_whole(value: Any, what: str) -> int:
    """Return a whole number such as a seed; how small it may be is checked with the run."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{what} is a whole number, got {_shown(value)}")
    return int(value)


def check_text(value: Any, what: str) -> str:
    """Return a name given as text."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is a name, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Return a value as a message of one line can show it."""
    if value is None:
        return "None"
    text = " ".join(repr(value).split())
    if len(text) > 40:
        text = f"{text[:37]}..."
    return text
