"""What is written reads back as the same dataset, to the last bit."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from tests.data.toy import random_dataset
from xcbench.data.assemble import assemble
from xcbench.data.dataset import TextColumn
from xcbench.data.readers import read_raw
from xcbench.data.writers import write_dataset
from xcbench.errors import DataError, InputError


def read_back(folder, dataset):
    raw = read_raw(folder)
    assert not raw.findings.repaired
    return assemble(raw, dataset.name)


@pytest.mark.parametrize("form", ["split", "combined", "npz"])
@pytest.mark.parametrize("titles", [True, False])
def test_round_trip_of_features(tmp_path, form, titles):
    dataset = random_dataset(titles=titles)
    write_dataset(dataset, tmp_path / "out", form)
    assert read_back(tmp_path / "out", dataset).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("form", ["split", "npz"])
def test_round_trip_of_soft_targets(tmp_path, form):
    dataset = random_dataset(soft=True)
    write_dataset(dataset, tmp_path / "out", form)
    assert read_back(tmp_path / "out", dataset).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("soft", [True, False])
def test_round_trip_of_text(tmp_path, soft):
    dataset = random_dataset(soft=soft)
    write_dataset(dataset, tmp_path / "first", "json")
    first = read_back(tmp_path / "first", dataset)
    assert list(first.train.titles) == list(dataset.train.titles)
    assert list(first.label_titles) == list(dataset.label_titles)
    assert abs(first.train.Y - dataset.train.Y).max() == 0
    assert (first.test.filter == dataset.test.filter).all()
    write_dataset(first, tmp_path / "second", "json")
    assert read_back(tmp_path / "second", dataset).fingerprint == first.fingerprint


def test_text_features_survive_as_features(tmp_path):
    write_dataset(random_dataset(), tmp_path / "json", "json")
    dataset = assemble(read_raw(tmp_path / "json"), "toy")
    write_dataset(dataset, tmp_path / "split", "split")
    assert assemble(read_raw(tmp_path / "split"), "toy").fingerprint == dataset.fingerprint


def test_facts_travel_along(tmp_path):
    facts = {"name": "toy", "licence": "CC0", "propensity": {"A": 0.5, "B": 0.4}, "text": {"min_count": 2}}
    write_dataset(random_dataset(), tmp_path / "raw", "json")
    (tmp_path / "raw" / "manifest.json").write_text(json.dumps(facts))
    dataset = assemble(read_raw(tmp_path / "raw"), "toy")
    for form in ("json", "split"):
        write_dataset(dataset, tmp_path / form, form)
        again = read_back(tmp_path / form, dataset)
        assert again.fingerprint == dataset.fingerprint
        assert again.manifest.licence == "CC0"
        written = {path.name for path in (tmp_path / form).iterdir()} - {"manifest.json"}
        assert set(again.manifest.files) == written


def test_files_as_the_field_writes_them(tmp_path):
    dataset = random_dataset(train=3, test=2, labels=3, features=4, titles=False)
    write_dataset(dataset, tmp_path / "out", "combined")
    lines = (tmp_path / "out" / "train.txt").read_text().split("\n")
    assert lines[0] == "3 4 3"
    assert len(lines) == 5
    Y = dataset.train.Y
    assert [line.split(" ")[0] for line in lines[1:4]] == [",".join(map(str, Y[[i]].indices)) for i in range(3)]


def test_json_says_relevance_only_where_it_is_soft_and_is_the_same_every_time(tmp_path):
    write_dataset(random_dataset(), tmp_path / "hard", "json")
    write_dataset(random_dataset(), tmp_path / "again", "json")
    assert (tmp_path / "hard" / "trn.json.gz").read_bytes() == (tmp_path / "again" / "trn.json.gz").read_bytes()
    assert b"target_rel" not in gzip.decompress((tmp_path / "hard" / "trn.json.gz").read_bytes())


def test_line_breaks_within_titles_do_not_make_points(tmp_path):
    dataset = random_dataset(test=2)
    titles = TextColumn.of(["two\nlines", "sep\u2028arated\r"])
    dataset = dataclasses.replace(dataset, test=dataclasses.replace(dataset.test, titles=titles))
    write_dataset(dataset, tmp_path / "out", "split")
    assert list(read_raw(tmp_path / "out").test.titles.column) == ["two lines", "sep arated"]


def test_refusals_leave_nothing(tmp_path):
    soft = random_dataset(soft=True)
    with pytest.raises(DataError, match="no soft targets"):
        write_dataset(soft, tmp_path / "out", "combined")
    with pytest.raises(DataError, match="no titles"):
        write_dataset(random_dataset(titles=False), tmp_path / "out", "json")
    with pytest.raises(InputError, match="did you mean split"):
        write_dataset(soft, tmp_path / "out", "splt")
    assert not any(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="is there already"):
        write_dataset(soft, tmp_path / "out", "split")


def test_points_that_fill_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("xcbench.data.writers._ROWS_AT_ONCE", 7)
    dataset = random_dataset(train=50)
    write_dataset(dataset, tmp_path / "out", "split")
    assert read_back(tmp_path / "out", dataset).fingerprint == dataset.fingerprint
    assert np.diff(dataset.train.X.indptr).min() == 0
