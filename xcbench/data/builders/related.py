"""From "these things are related to those" to a dataset in the XC repository's raw form, with an honest split.

The split hashes keys and so is the same on every machine. Points that share a group go to one side: near-duplicates
across the split would make nearest neighbours look far better than they are.
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


@dataclass(frozen=True)
class Relations:
    """Things by their ids: what each is related to, the titles on both sides, and who must not be torn apart."""

    targets: Mapping[str, set[str]]
    point_titles: Mapping[str, str]
    label_titles: Mapping[str, str]
    group: Mapping[str, str] = field(default_factory=dict)
    """Points of one group go to one side of the split; a point that is not listed is a group of its own."""


@dataclass(frozen=True)
class SplitRelations:
    """What is left after splitting and pruning, in the order of the files."""

    train: dict[str, set[str]]
    test: dict[str, set[str]]
    label_id: dict[str, int]


def words(title: str) -> list[str]:
    """The words by which these builders compare and count titles."""
    return _WORD.findall(title.lower())


def without_heads(targets: Mapping[str, set[str]], max_share: float) -> dict[str, set[str]]:
    """Drop labels that more than a share of all points have: they say nothing of a point. Empty points go too."""
    related = {point: labels for point, labels in targets.items() if labels}
    count = Counter(label for labels in related.values() for label in labels)
    heads = {label for label, times in count.items() if times > max_share * len(related)}
    return {point: labels - heads for point, labels in related.items() if labels - heads}


def split(relations: Relations) -> SplitRelations:
    """Send each group to train or test, then keep only labels with enough training points."""
    targets = {
        point: labels & relations.label_titles.keys()
        for point, labels in relations.targets.items()
        if words(relations.point_titles[point])
    }
    in_test = {point for point in targets if _uniform(relations.group.get(point, point), SPLIT_SEED) < TEST_SHARE}
    targets = _prune(targets, in_test)
    if not targets:
        raise DataError(f"no label has {MIN_TRAIN_POINTS} training points; nothing is left to write")
    # A second hash orders the points, so that the order of the files carries no information.
    ordered = sorted(sorted(targets), key=lambda point: _uniform(point, SPLIT_SEED + 1))
    labels = sorted(set().union(*targets.values()))
    return SplitRelations(
        train={point: targets[point] for point in ordered if point not in in_test},
        test={point: targets[point] for point in ordered if point in in_test},
        label_id={label: number for number, label in enumerate(labels)},
    )


def write(out: Path, relations: Relations, manifest: Manifest, notices: Mapping[str, str]) -> Manifest:
    """Write the dataset's folder: points, labels, filters, the notices that must travel along, and the manifest."""
    done = split(relations)
    same_text: defaultdict[str, set[int]] = defaultdict(set)
    for label, number in done.label_id.items():
        same_text[" ".join(words(relations.label_titles[label]))].add(number)
    with atomic_folder(out) as folder:
        for short, name, side in (("trn", "train", done.train), ("tst", "test", done.test)):
            _write_rows(folder / f"{short}.json.gz", _point_rows(side, relations.point_titles, done.label_id))
            mirrored = done.train if side is done.test else {}
            pairs = _filter_pairs(side, mirrored, relations.point_titles, done.label_id, same_text)
            (folder / f"filter_labels_{name}.txt").write_text("".join(f"{i} {j}\n" for i, j in pairs), "utf-8")
        label_rows = ({"uid": label, "title": relations.label_titles[label]} for label in done.label_id)
        _write_rows(folder / "lbl.json.gz", label_rows)
        for name, text in notices.items():
            (folder / name).write_text(text, "utf-8")
        files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
        manifest = replace(manifest, sizes=Sizes(len(done.train), len(done.test), len(done.label_id)), files=files)
        write_json(folder / MANIFEST_FILE, manifest.to_dict())
    return manifest


def _uniform(key: str, seed: int) -> float:
    """A number in [0, 1) from a text, the same on every machine and Python."""
    return int.from_bytes(hashlib.sha1(f"{seed}|{key}".encode()).digest()[:7], "big") / 2**56


def _prune(targets: Mapping[str, set[str]], in_test: set[str]) -> dict[str, set[str]]:
    """Drop labels with too few training points and points left without a label."""
    count = Counter(label for point, labels in targets.items() if point not in in_test for label in labels)
    enough = {label for label, times in count.items() if times >= MIN_TRAIN_POINTS}
    return {point: labels & enough for point, labels in targets.items() if labels & enough}


def _point_rows(
    side: Mapping[str, set[str]], titles: Mapping[str, str], label_id: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    for point, labels in side.items():
        yield {"uid": point, "title": titles[point], "target_ind": sorted(label_id[label] for label in labels)}


def _filter_pairs(
    side: Mapping[str, set[str]],
    mirrored: Mapping[str, set[str]],
    titles: Mapping[str, str],
    label_id: Mapping[str, int],
    same_text: Mapping[str, set[int]],
) -> Iterator[tuple[int, int]]:
    """Pairs (row, label) to ignore; see FILTER_RULE. `mirrored` holds the training points, for the test side."""
    for row, (point, labels) in enumerate(side.items()):
        ignored = set(same_text.get(" ".join(words(titles[point])), ()))
        if point in label_id:
            ignored.add(label_id[point])
        ignored.update(label_id[label] for label in labels if point in mirrored.get(label, ()))
        for label in sorted(ignored):
            yield row, label


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        for row in rows:
            file.write((json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode())
