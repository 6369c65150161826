"""Which file names mean what. Where several are listed, the first that is present is read."""

from __future__ import annotations

import re

from xcbench.data.manifest import MANIFEST_FILE

Names = dict[str, tuple[str, ...]]
SIDES = {"train": "trn", "test": "tst"}
"""The two splits, and how most files abbreviate them."""

LABEL_FEATURES = ("lbl_X_Xf.txt", "Yf.txt", "lbl_X_Xf.npz", "Yf.npz", "Z.npz")
LABEL_JSON = ("lbl.json", "lbl.json.gz")
LABEL_LINES = ("Y.txt",)
LABEL_TABLE = ("labels.csv",)

FEATURES: Names = {side: (f"{s}_X_Xf.txt", f"{s}_X_Xf.npz", f"X.{s}.npz") for side, s in SIDES.items()}
TARGETS: Names = {side: (f"{s}_X_Y.txt", f"{s}_X_Y.npz", f"Y.{s}.npz") for side, s in SIDES.items()}
POINTS: Names = {
    side: (f"{side}.txt", f"*_{side}.txt", f"{side}.svm", f"{side}.svmlight", f"{side}.libsvm") for side in SIDES
}
"""Features and targets in one file; the star stands for a dataset's name, as in `eurlex_train.txt`."""
JSON: Names = {side: (f"{s}.json", f"{s}.json.gz") for side, s in SIDES.items()}
LINES: Names = {side: (f"{s}_X.txt",) for side, s in SIDES.items()}
TABLE: Names = {side: (f"{side}.csv",) for side in SIDES}
FILTERS: Names = {side: (f"filter_labels_{side}.txt", f"{s}_filter_labels.txt") for side, s in SIDES.items()}

_ALL = {
    name for group in (FEATURES, TARGETS, POINTS, JSON, LINES, TABLE, FILTERS) for side in SIDES for name in group[side]
}
_ALL |= {*LABEL_FEATURES, *LABEL_JSON, *LABEL_LINES, *LABEL_TABLE, MANIFEST_FILE}


def is_known(name: str) -> bool:
    """Whether a file of this name can be part of a dataset."""
    return any(matches(name, pattern) for pattern in _ALL)


def matches(name: str, pattern: str) -> bool:
    """Whether a file name is the one meant; a star never stands for another known name's beginning."""
    if not pattern.startswith("*"):
        return name == pattern
    return name.endswith(pattern[1:]) and not re.match(r"filter_labels_|\.", name)
