"""What is allowed in a dataset, but worth knowing before a model is trained on it or a figure believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Split

_MAX_SHOWN = 40


def dataset_notes(dataset: Dataset) -> list[str]:
    """Return everything about a dataset that its user should know, a line for each finding.

    Parameters
    ----------
    dataset
        The dataset, which is only read.
    """
    notes = []
    notes += _overlap_notes(dataset)
    notes += _split_notes("training", dataset.train)
    notes += _split_notes("test", dataset.test)
    notes += _filter_notes(dataset)
    notes += _label_notes(dataset)
    notes += _nul_notes(dataset)
    notes += _vocabulary_notes(dataset)
    return notes


def points_without_truth(split: Split) -> int:
    """Return how many points have no true label once filtered pairs are gone. They count as zeros in every mean."""
    true_pairs = _true_pairs(split)
    kept = true_pairs[~_is_filtered(split, true_pairs)]
    return len(split) - len(np.unique(kept // split.Y.shape[1]))


def filtered_true_pairs(split: Split) -> int:
    """Return how many true pairs (point, label) the filter removes."""
    return int(_is_filtered(split, _true_pairs(split)).sum())


def _overlap_notes(dataset: Dataset) -> list[str]:
    train = dataset.train
    test = dataset.test
    if (
        _are_equal(train.X, test.X)
        and _are_equal(train.Y, test.Y)
        and len(train.titles or ()) == len(test.titles or ())
    ):
        return ["test is train: the same points with the same labels, so that no figure says anything about new points"]
    if train.titles is None or test.titles is None:
        return []

    known = {title.strip() for title in train.titles} - {""}
    seen = [title for title in test.titles if title.strip() in known]
    if not seen:
        return []
    share = len(seen) / len(test)
    return [f"test titles that occur in train: {len(seen):,} ({share:.1%}), such as {_shown(seen[0])}"]


def _split_notes(name: str, split: Split) -> list[str]:
    notes = []
    without_labels = _empty_rows(split.Y)
    if without_labels:
        notes.append(f"{name} points without labels: {without_labels:,}")
    without_features = _empty_rows(split.X)
    if without_features:
        notes.append(f"{name} points without features: {without_features:,}")
    return notes


def _filter_notes(dataset: Dataset) -> list[str]:
    removed = filtered_true_pairs(dataset.test)
    if not removed:
        return []

    left = points_without_truth(dataset.test)
    true_pairs = dataset.test.Y.nnz
    return [
        f"the filter removes {removed:,} of {true_pairs:,} true test pairs; test points without truth: {left:,}, "
        "which count as zeros in every mean"
    ]


def _label_notes(dataset: Dataset) -> list[str]:
    notes = []
    in_train = np.zeros(dataset.label_count, bool)
    in_train[dataset.train.Y.indices] = True
    only_in_test = np.setdiff1d(dataset.test.Y.indices, np.flatnonzero(in_train))
    untrained = dataset.label_count - int(in_train.sum())
    if untrained:
        notes.append(f"labels without training points: {untrained:,}, of which {len(only_in_test):,} occur in test")

    if dataset.label_titles is not None:
        notes += _same_text_notes(list(dataset.label_titles))
    if dataset.Z is None:
        notes.append("labels have no text; methods that need it cannot be used")
        return notes

    without_text = _empty_rows(dataset.Z)
    if without_text:
        notes.append(f"labels without text: {without_text:,}")
    return notes


def _same_text_notes(titles: list[str]) -> list[str]:
    notes = []
    filled = [title for title in titles if title.strip()]
    same = _repeated(filled, str)
    if same:
        notes.append(f"labels with the text of another label: {len(same):,}, such as {_shown(same[0])}")

    distinct = list(dict.fromkeys(filled))
    alike = _repeated(distinct, str.casefold)
    if alike:
        first = [title for title in distinct if title.casefold() == alike[0].casefold()]
        examples = " and ".join(_shown(title) for title in first[:2])
        notes.append(f"labels that differ from another only in case: {len(alike):,}, such as {examples}")
    return notes


def _repeated(titles: list[str], key: Callable[[str], str]) -> list[str]:
    """Return the titles that share their key with another title."""
    counts = Counter(map(key, titles))
    return [title for title in titles if counts[key(title)] > 1]


def _nul_notes(dataset: Dataset) -> list[str]:
    notes = []
    columns = {"training": dataset.train.titles, "test": dataset.test.titles, "label": dataset.label_titles}
    for name, column in columns.items():
        if column is None:
            continue
        places = np.flatnonzero(column.utf8 == 0)
        rows = np.unique(np.searchsorted(column.offsets, places, side="right"))
        if len(rows):
            notes.append(f"{name} titles with NUL bytes: {len(rows):,}, first in title {rows[0]}; they separate words")
    return notes


def _vocabulary_notes(dataset: Dataset) -> list[str]:
    encoder = dataset.encoder
    if encoder is None or encoder.options.tokenizer != "words" or dataset.test.titles is None:
        return []

    unknown, total = encoder.unknown_words(dataset.test.titles)
    if not unknown:
        return []
    effect = "they are left out (--cut-unknown looks for known words in them)"
    if encoder.options.cut_unknown:
        effect = "known words in them count"
    return [f"test words that are not in the vocabulary: {unknown:,} of {total:,} distinct ones; {effect}"]


def _true_pairs(split: Split) -> npt.NDArray[np.int64]:
    """Return each true pair as one number, point * labels + label."""
    rows = np.repeat(np.arange(len(split), dtype=np.int64), np.diff(split.Y.indptr))
    pairs = rows * split.Y.shape[1] + split.Y.indices
    return pairs[split.Y.data > 0]


def _is_filtered(split: Split, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    filtered = split.filter[:, 0] * split.Y.shape[1] + split.filter[:, 1]
    return np.isin(pairs, filtered)


def _are_equal(first: sp.csr_array, second: sp.csr_array) -> bool:
    if first.shape != second.shape or first.nnz != second.nnz:
        return False
    return (
        np.array_equal(first.indptr, second.indptr)
        and np.array_equal(first.indices, second.indices)
        and np.array_equal(first.data, second.data)
    )


def _empty_rows(matrix: sp.csr_array) -> int:
    return int(np.count_nonzero(np.diff(matrix.indptr) == 0))


def _shown(text: str) -> str:
    shown = repr(text)
    if len(shown) > _MAX_SHOWN:
        return f"{shown[: _MAX_SHOWN - 3]}..."
    return shown
