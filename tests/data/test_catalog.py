"""Datasets by name and by path, and the cache that makes the embedded ones instant."""

import os

import pytest

from tests.data.test_readers import SPLIT, write
from tests.data.toy import random_dataset
from xcbench.data import catalog, dataset_names, load_dataset
from xcbench.data.binary import store_dataset
from xcbench.data.embedded import embedded_folder, embedded_names
from xcbench.errors import DataError, InputError

SMALLEST = "lf-debian-4k"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_names_of_embedded_and_imported_sets(home):
    store_dataset(random_dataset(), home / "datasets" / "zoo")
    store_dataset(random_dataset(), home / "datasets" / "animals")
    (home / "datasets" / "half").mkdir()
    assert dataset_names() == [*embedded_names(), "animals", "zoo"]
    assert {entry.origin for entry in catalog.dataset_entries()[-2:]} == {"imported"}


def test_embedded_sets_have_the_sizes_of_their_manifest(home):
    dataset = load_dataset(SMALLEST)
    sizes = dataset.manifest.sizes
    assert (len(dataset.train), len(dataset.test), dataset.label_count) == (7689, 2979, 4390)
    assert (sizes.train, sizes.test, sizes.labels) == (7689, 2979, 4390)
    assert (len(dataset.train.filter), len(dataset.test.filter)) == (1473, 745)
    assert dataset.train.Y.nnz == 22896


def test_the_second_load_of_an_embedded_set_parses_nothing(home, monkeypatch):
    first = load_dataset(SMALLEST)
    monkeypatch.setattr(catalog, "_read_dataset", lambda *_: pytest.fail("parsed again"))
    second = load_dataset(SMALLEST)
    assert second.fingerprint == first.fingerprint
    assert second.manifest == first.manifest
    assert list(second.train.titles[:3]) == list(first.train.titles[:3])


def test_a_damaged_cache_is_made_anew(home):
    first = load_dataset(SMALLEST)
    (cached,) = (home / "datasets-cache").iterdir()
    (cached / "train.X.data.npy").write_bytes(b"damaged")
    assert load_dataset(SMALLEST).fingerprint == first.fingerprint
    assert (cached / "train.X.data.npy").stat().st_size > 1000


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "file" / "home"))
    assert load_dataset(SMALLEST).name == SMALLEST


def test_the_cache_follows_the_files(tmp_path, monkeypatch):
    before = catalog._embedded_key(embedded_folder(SMALLEST))
    folder = write(tmp_path / "other", {"manifest.json": "{}"})
    assert catalog._embedded_key(folder) != before


def test_by_path(tmp_path, home):
    raw = load_dataset(write(tmp_path / "raw", SPLIT))
    assert raw.name == "raw"
    store_dataset(raw, tmp_path / "stored")
    assert load_dataset(str(tmp_path / "stored")).fingerprint == raw.fingerprint
    odd = load_dataset(write(tmp_path / "_my data (2)", SPLIT))
    assert odd.name == "my-data-2-"
    store_dataset(odd, tmp_path / "odd")
    assert load_dataset(tmp_path / "odd").fingerprint == raw.fingerprint
    assert not home.exists()


def test_names_nobody_has():
    with pytest.raises(InputError, match=f"did you mean {SMALLEST}"):
        load_dataset("lf-debian-4")
    with pytest.raises(DataError, match="no such dataset, file or folder"):
        load_dataset(f"nowhere{os.sep}data")
    with pytest.raises(InputError):
        load_dataset("")
