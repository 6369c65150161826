"""From "these things are related to those" to a dataset in the XC repository's raw form.

The split hashes keys and so is the same on every machine. Points of one group go to the same split: near-duplicates in
both splits would make nearest neighbours look far better than they are.
"""

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xcbench.data.manifest import MANIFEST_FILE, Manifest, Sizes
from xcbench.errors import DataError
from xcbench.files import atomic_folder, sha256_of, write_json

TEST_SHARE = 0.3
SPLIT_SEED = 7
MIN_TRAIN_POINTS = 2
FILTER_RULE = (
    "Train: the point is itself the label, or has the very same text. "
    "Test: these, and pairs whose mirror (label, point) is a training pair."
)

_WORD = re.compile(r"[a-z0-9+#]+")

Targets = dict[str, set[str]]
"""The labels of each point, all by their ids."""
Titles = Mapping[str, str]
"""Titles by the ids of points or labels."""


@dataclass(frozen=True)
class Relations:
    """Points and labels by their ids: the labels of each point, the titles of both, and the groups of points."""

    targets: Targets
    point_titles: Titles
    label_titles: Titles
    group: Mapping[str, str] = field(default_factory=dict)
    """Points of one group go to the same split; a point without a group is its own."""


@dataclass(frozen=True)
class SplitRelations:
    """What remains after splitting and pruning, in the order of the files."""

    train: Targets
    test: Targets
    label_id: dict[str, int]


def words(title: str) -> list[str]:
    """Return the words by which these builders compare and count titles."""
    return _WORD.findall(title.lower())


def without_heads(targets: Targets, max_share: float) -> Targets:
    """Drop labels that more than a share of all points have, since they say nothing about a point.

    Points without labels are dropped, too.
    """
    labelled = {point: labels for point, labels in targets.items() if labels}
    count = _points_per_label(labelled)
    max_points = max_share * len(labelled)
    heads = {label for label, points in count.items() if points > max_points}
    return _without_empty({point: labels - heads for point, labels in labelled.items()})


def split(relations: Relations) -> SplitRelations:
    """Assign each group to train or test, then keep only labels with enough training points."""
    targets = {}
    for point, labels in relations.targets.items():
        if words(relations.point_titles[point]):
            targets[point] = labels & relations.label_titles.keys()

    in_test = set()
    for point in targets:
        group = relations.group.get(point, point)
        if _uniform(group, SPLIT_SEED) < TEST_SHARE:
            in_test.add(point)

    targets = _prune(targets, in_test)
    if not targets:
        raise DataError(f"no label has {MIN_TRAIN_POINTS} training points; nothing is left to write")

    # A second hash orders the points, so that the order of the files carries no information.
    ordered = sorted(targets)
    ordered.sort(key=lambda point: _uniform(point, SPLIT_SEED + 1))
    all_labels = set().union(*targets.values())
    return SplitRelations(
        train={point: targets[point] for point in ordered if point not in in_test},
        test={point: targets[point] for point in ordered if point in in_test},
        label_id={label: number for number, label in enumerate(sorted(all_labels))},
    )


def write(
    out: Path,
    relations: Relations,
    manifest: Manifest,
    notices: Mapping[str, str],
) -> Manifest:
    """Write a dataset: points, labels, filters, notices and the manifest.

    Parameters
    ----------
    out
        The folder to write.
    relations
        Points and labels.
    manifest
        The facts about the dataset, to which sizes and files are added.
    notices
        Further files by name, such as a licence that must be distributed with the data.

    Returns the manifest that was written.
    """
    parts = split(relations)
    titles = relations.point_titles
    label_id = parts.label_id
    same_text = _labels_of_text(label_id, relations.label_titles)

    with atomic_folder(out) as folder:
        _write_rows(folder / "trn.json.gz", _point_rows(parts.train, titles, label_id))
        _write_rows(folder / "tst.json.gz", _point_rows(parts.test, titles, label_id))
        _write_rows(folder / "lbl.json.gz", _label_rows(label_id, relations.label_titles))

        train_filter = _filter_pairs(parts.train, {}, titles, label_id, same_text)
        test_filter = _filter_pairs(parts.test, parts.train, titles, label_id, same_text)
        _write_pairs(folder / "filter_labels_train.txt", train_filter)
        _write_pairs(folder / "filter_labels_test.txt", test_filter)
        for name, text in notices.items():
            (folder / name).write_text(text, "utf-8")

        manifest = replace(
            manifest,
            sizes=Sizes(train=len(parts.train), test=len(parts.test), labels=len(label_id)),
            files={path.name: sha256_of(path) for path in sorted(folder.iterdir())},
        )
        write_json(folder / MANIFEST_FILE, manifest.to_dict())
    return manifest


def _uniform(key: str, seed: int) -> float:
    """Return a number in [0, 1) that depends on a text, the same on every machine and Python."""
    digest = hashlib.sha1(f"{seed}|{key}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def _points_per_label(targets: Targets) -> Counter[str]:
    count: Counter[str] = Counter()
    for labels in targets.values():
        count.update(labels)
    return count


def _without_empty(targets: Targets) -> Targets:
    return {point: labels for point, labels in targets.items() if labels}


def _prune(targets: Targets, in_test: set[str]) -> Targets:
    """Drop labels with too few training points, and points left without a label."""
    train = {point: labels for point, labels in targets.items() if point not in in_test}
    count = _points_per_label(train)
    frequent = {label for label, points in count.items() if points >= MIN_TRAIN_POINTS}
    return _without_empty({point: labels & frequent for point, labels in targets.items()})


def _labels_of_text(
    label_id: Mapping[str, int],
    titles: Titles,
) -> dict[str, set[int]]:
    """Return the labels by their text, as words."""
    labels: defaultdict[str, set[int]] = defaultdict(set)
    for label, number in label_id.items():
        labels[_plain(titles[label])].add(number)
    return labels


def _plain(title: str) -> str:
    return " ".join(words(title))


def _point_rows(
    targets: Targets,
    titles: Titles,
    label_id: Mapping[str, int],
) -> Iterator[dict[str, Any]]:
    for point, labels in targets.items():
        yield {
            "uid": point,
            "title": titles[point],
            "target_ind": sorted(label_id[label] for label in labels),
        }


def _label_rows(label_id: Mapping[str, int], titles: Titles) -> Iterator[dict[str, Any]]:
    for label in label_id:
        yield {"uid": label, "title": titles[label]}


def _filter_pairs(
    targets: Targets,
    mirrored: Targets,
    titles: Titles,
    label_id: Mapping[str, int],
    same_text: Mapping[str, set[int]],
) -> Iterator[tuple[int, int]]:
    """Yield the pairs (row, label) to filter; see FILTER_RULE. For the test split, `mirrored` is the training split."""
    for row, (point, labels) in enumerate(targets.items()):
        text = _plain(titles[point])
        filtered = set(same_text.get(text, ()))
        if point in label_id:
            filtered.add(label_id[point])
        for label in labels:
            if point in mirrored.get(label, ()):
                filtered.add(label_id[label])

        for number in sorted(filtered):
            yield row, number


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    # A fixed time stamp: the same rows give the same bytes.
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
            file.write(f"{line}\n".encode())


def _write_pairs(path: Path, pairs: Iterable[tuple[int, int]]) -> None:
    lines = [f"{row} {label}\n" for row, label in pairs]
    path.write_text("".join(lines), "utf-8")
