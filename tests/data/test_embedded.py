"""The embedded datasets are whole, are what their manifests say, and are what the project publishes about them."""

import gzip
import hashlib
import json

import numpy as np
import pytest

from xcbench.data.builders.related import words
from xcbench.data.embedded import embedded_folder, embedded_names
from xcbench.data.manifest import MANIFEST_FILE, Manifest
from xcbench.defaults import DEFAULT_DATASET
from xcbench.errors import InputError

# name: (train, test, labels, pairs of the test filter),
#       (labels/point, points/label, words/point, words/label), (median points/label, share of labels with < 5 points)
PUBLISHED = {
    "lf-debian-4k": ((7_689, 2_979, 4_390, 745), (2.98, 5.2, 9.1, 8.6), (3, 0.74)),
    "lf-debian-12k": ((25_940, 10_584, 11_932, 2_812), (3.75, 8.2, 9.9, 9.7), (3, 0.65)),
    "lf-wordnet-27k": ((77_258, 30_853, 26_773, 15_779), (1.75, 5.0, 11.0, 2.6), (3, 0.71)),
}


def read_manifest(name):
    path = embedded_folder(name) / MANIFEST_FILE
    return Manifest.from_dict(json.loads(path.read_text("utf-8")), path)


def rows(name, file):
    with gzip.open(embedded_folder(name) / file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_all_three_are_there_and_the_default_comes_first():
    assert embedded_names() == list(PUBLISHED)
    assert DEFAULT_DATASET == "lf-debian-4k"
    with pytest.raises(InputError, match="did you mean lf-debian"):
        embedded_folder("lf-debian-4")


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_file_has_the_digest_of_the_manifest(name):
    folder, manifest = embedded_folder(name), read_manifest(name)
    present = {path.name for path in folder.iterdir()} - {MANIFEST_FILE}
    assert present == set(manifest.files)
    for file, digest in manifest.files.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file


@pytest.mark.parametrize("name", PUBLISHED)
def test_manifests_say_where_the_data_comes_from_and_under_which_terms(name):
    manifest = read_manifest(name)
    assert manifest.name == name
    assert all((manifest.title, manifest.task, manifest.source, manifest.citation, manifest.split_rule))
    assert (manifest.propensity.A, manifest.propensity.B) == (0.55, 1.5)
    terms = "LICENSE.txt" if "wordnet" in name else "NOTICE.txt"
    assert terms in manifest.licence
    assert ("Princeton University" if "wordnet" in name else "Debian Project") in (
        embedded_folder(name) / terms
    ).read_text("utf-8")


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_those_that_are_published(name):
    train, test, labels = (rows(name, f"{part}.json.gz") for part in ("trn", "tst", "lbl"))
    per_label = np.bincount(np.concatenate([row["target_ind"] for row in train]), minlength=len(labels))
    filtered = (embedded_folder(name) / "filter_labels_test.txt").read_text().splitlines()
    counts, averages, tail = PUBLISHED[name]
    assert (len(train), len(test), len(labels), len(filtered)) == counts
    assert [
        np.mean([len(row["target_ind"]) for row in train]),
        per_label.mean(),
        np.mean([len(words(row["title"])) for row in train]),
        np.mean([len(words(row["title"])) for row in labels]),
    ] == pytest.approx(averages, abs=0.06)
    assert [np.median(per_label), (per_label < 5).mean()] == pytest.approx(tail, abs=0.005)
    assert per_label.min() >= 2
    sizes = read_manifest(name).sizes
    assert (sizes.train, sizes.test, sizes.labels) == counts[:3]
