"""Which file names mean what. Where several names are listed, the first that is present is read."""

from __future__ import annotations

import re

from xcbench.data.manifest import MANIFEST_FILE

Names = dict[str, tuple[str, ...]]
"""File names by split, "train" and "test"."""


def _for_both(*patterns: str) -> Names:
    """Fill in `{side}` (train, test) and `{short}`, the abbreviation of most files (trn, tst)."""
    train = [pattern.format(side="train", short="trn") for pattern in patterns]
    test = [pattern.format(side="test", short="tst") for pattern in patterns]
    return {"train": tuple(train), "test": tuple(test)}


LABEL_FEATURES = ("lbl_X_Xf.txt", "Yf.txt", "lbl_X_Xf.npz", "Yf.npz", "Z.npz")
LABEL_JSON = ("lbl.json", "lbl.json.gz")
LABEL_LINES = ("Y.txt",)
LABEL_TABLE = ("labels.csv",)

FEATURES = _for_both("{short}_X_Xf.txt", "{short}_X_Xf.npz", "X.{short}.npz")
TARGETS = _for_both("{short}_X_Y.txt", "{short}_X_Y.npz", "Y.{short}.npz")
POINTS = _for_both("{side}.txt", "*_{side}.txt", "{side}.svm", "{side}.svmlight", "{side}.libsvm")
"""Features and targets in one file; the star is a dataset's name, as in `eurlex_train.txt`."""
JSON = _for_both("{short}.json", "{short}.json.gz")
LINES = _for_both("{short}_X.txt")
TABLE = _for_both("{side}.csv")
FILTERS = _for_both("filter_labels_{side}.txt", "{short}_filter_labels.txt")

_ALL = {*LABEL_FEATURES, *LABEL_JSON, *LABEL_LINES, *LABEL_TABLE, MANIFEST_FILE}
for _group in (FEATURES, TARGETS, POINTS, JSON, LINES, TABLE, FILTERS):
    _ALL.update(_group["train"], _group["test"])


def is_known(name: str) -> bool:
    """Whether a file of this name can be part of a dataset."""
    return any(matches(name, pattern) for pattern in _ALL)


def matches(name: str, pattern: str) -> bool:
    """Whether a file name matches a pattern. The star matches no name of a filter or a hidden file."""
    if not pattern.startswith("*"):
        return name == pattern
    if re.match(r"filter_labels_|\.", name):
        return False
    return name.endswith(pattern[1:])
