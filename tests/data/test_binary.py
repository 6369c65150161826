"""The stored form gives the same dataset back, maps it, and refuses what was damaged."""

import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.toy import random_dataset
from xcbench.data.assemble import assemble
from xcbench.data.binary import is_stored, load_stored, store_dataset
from xcbench.data.readers import read_raw
from xcbench.data.writers import write_dataset
from xcbench.errors import DataError


def without_cached(dataset):
    """The fingerprint computed from what was loaded rather than the stored one."""
    del dataset.__dict__["fingerprint"]
    return dataset.fingerprint


@pytest.mark.parametrize("titles", [True, False])
def test_round_trip(tmp_path, titles):
    dataset = random_dataset(titles=titles)
    store_dataset(dataset, tmp_path / "toy")
    assert is_stored(tmp_path / "toy")
    loaded = load_stored(tmp_path / "toy")
    assert loaded.fingerprint == dataset.fingerprint
    assert without_cached(loaded) == dataset.fingerprint
    assert loaded.propensity == dataset.propensity


def test_text_and_encoder_come_back(tmp_path):
    write_dataset(random_dataset(), tmp_path / "json", "json")
    dataset = assemble(read_raw(tmp_path / "json"), "toy")
    store_dataset(dataset, tmp_path / "toy")
    loaded = load_stored(tmp_path / "toy")
    assert list(loaded.train.titles) == list(dataset.train.titles)
    assert loaded.manifest == dataset.manifest
    assert abs(loaded.encoder.encode(["red tree"]) - dataset.encoder.encode(["red tree"])).max() == 0


def test_arrays_are_mapped_and_the_files_stay_as_they_are(tmp_path):
    dataset = random_dataset()
    store_dataset(dataset, tmp_path / "toy")
    loaded = load_stored(tmp_path / "toy")
    for matrix in (loaded.train.X, loaded.test.Y, loaded.Z):
        base = matrix.data
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert not isinstance(base, np.ndarray), "copied rather than mapped"
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    loaded.train.X.data[:] = 0
    assert load_stored(tmp_path / "toy").train.X.data.any()


def test_empty_matrices_can_be_mapped(tmp_path):
    dataset = random_dataset()
    dataset.test.Y.data = dataset.test.Y.data[:0]
    dataset.test.Y.indices = dataset.test.Y.indices[:0]
    dataset.test.Y.indptr[:] = 0
    store_dataset(dataset, tmp_path / "toy")
    assert without_cached(load_stored(tmp_path / "toy")) == dataset.fingerprint


def test_every_missing_or_shortened_file_is_refused(tmp_path):
    write_dataset(random_dataset(), tmp_path / "json", "json")
    folder = tmp_path / "toy"
    store_dataset(assemble(read_raw(tmp_path / "json"), "toy"), folder)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for damaged in (content[:-2], content[: len(content) // 2], b""):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=path.name):
                load_stored(folder)
        path.unlink()
        with pytest.raises(DataError, match=path.name):
            load_stored(folder)
        path.write_bytes(content)
    assert load_stored(folder).name == "toy"


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("train.X.indices", lambda a: a + 30),
        ("train.X.indices", lambda a: -a - 1),
        ("train.X.indices", lambda a: a.astype(np.int64)),
        ("train.Y.indptr", lambda a: a[::-1].copy()),
        ("train.Y.indptr", lambda a: a[:-1]),
        ("test.Y.data", lambda a: a.astype(np.float64)),
        ("test.filter", lambda a: a[:, :1].copy()),
        ("test.filter", lambda a: a + 100),
        ("labels.titles.offsets", lambda a: a[::-1].copy()),
        ("labels.titles.offsets", lambda a: a[1:].copy()),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, array, change):
    store_dataset(random_dataset(), tmp_path / "toy")
    path = tmp_path / "toy" / f"{array}.npy"
    np.save(path, change(np.load(path)))
    with pytest.raises(DataError):
        load_stored(tmp_path / "toy")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 99},
        {"matrices": None},
        {"matrices": {"train.X": [40]}},
        {"matrices": {"train.X": ["a", "b"]}},
        {"titles": 3},
        {"titles": ["../../etc"]},
        {"propensity": {"A": "x"}},
        {"manifest": {"nme": "x"}},
        {"encoder": True},
    ],
)
def test_facts_that_do_not_fit_are_refused(tmp_path, change):
    store_dataset(random_dataset(), tmp_path / "toy")
    path = tmp_path / "toy" / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError):
        load_stored(tmp_path / "toy")


def test_objects_that_could_run_code_are_refused(tmp_path):
    store_dataset(random_dataset(), tmp_path / "toy")

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.save(tmp_path / "toy" / "train.X.data.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(DataError):
        load_stored(tmp_path / "toy")
    assert not (tmp_path / "sprung").exists()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_bytes_gives_a_dataset_or_a_data_error(tmp_path, data):
    folder = tmp_path / "toy"
    if not folder.exists():
        store_dataset(random_dataset(), folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    garbage = data.draw(st.binary(max_size=40))
    path.write_bytes(content[:place] + garbage + content[place + len(garbage) :])
    try:
        loaded = load_stored(folder)
        assert loaded.train.X.toarray().shape == loaded.train.X.shape
    except DataError:
        pass
    finally:
        path.write_bytes(content)
