"""Manifests: what is written is read back, and what is wrong is refused in one clear line."""

import json
from pathlib import Path

import pytest

from xcbench.data import Propensity
from xcbench.data.manifest import Manifest, Sizes
from xcbench.errors import DataError

FULL = {
    "name": "lf-toys-2k",
    "title": "Toys",
    "task": "toy -> toys bought with it",
    "source": "a shop",
    "licence": "CC0-1.0",
    "citation": "Someone, 2020",
    "sizes": {"train": 10, "test": 4, "labels": 3, "features": 7},
    "files": {"trn.json.gz": "0" * 64},
    "propensity": {"A": 0.6, "B": 2.6},
    "filter_rule": "self pairs",
    "split_rule": "by hash",
    "text": {"tokenizer": "wordpieces", "min_count": 2},
}


def test_a_full_manifest_survives_the_way_through_json():
    manifest = Manifest.from_dict(FULL)
    assert manifest.sizes == Sizes(train=10, test=4, labels=3, features=7)
    assert manifest.propensity == Propensity(0.6, 2.6)
    assert json.loads(json.dumps(manifest.to_dict())) == FULL
    assert Manifest.from_dict(manifest.to_dict()) == manifest


def test_only_the_name_is_needed_and_nothing_unsaid_is_written():
    manifest = Manifest.from_dict({"name": "x"})
    assert manifest == Manifest("x")
    assert manifest.to_dict() == {"name": "x"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"propensty": {"A": 1}}, "did you mean propensity"),
        ({"sizes": {"train": 1, "test": 1, "lables": 1}}, "did you mean labels"),
        ({"propensity": {"a": 0.5}}, "unknown key in manifest key 'propensity': 'a'"),
        ({"text": {"min_cuont": 2}}, "did you mean min_count"),
        ({"text": {"tokenizer": "word"}}, "did you mean words"),
        ({"text": {"min_count": 0}}, "min_count must be a whole number from 1 up"),
        ({"text": {"lowercase": 1}}, "lowercase must be true or false"),
        ({"text": ["words"]}, "must be an object"),
        ({"name": 3}, "'name' must be a text, got 3"),
        ({"name": "../up"}, "letters, digits"),
        ({"title": None}, "'title' must be a text"),
        ({"sizes": {"train": 1, "test": 1}}, "needs labels"),
        ({"sizes": {"train": 1.5, "test": 1, "labels": 1}}, "whole number"),
        ({"sizes": {"train": True, "test": 1, "labels": 1}}, "whole number"),
        ({"sizes": {"train": -1, "test": 1, "labels": 1}}, "whole number"),
        ({"propensity": {"A": "0.5"}}, "finite number"),
        ({"propensity": {"A": float("nan")}}, "finite number"),
        ({"propensity": {"B": float("inf")}}, "finite number"),
        ({"propensity": {"A": 10**400}}, "finite number"),
        ({"files": {"a": "123"}}, "64 hex digits"),
        ({"files": {"../a": "0" * 64}}, "own folder"),
        ({"files": {"/a": "0" * 64}}, "own folder"),
        ({3: "x"}, "unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(change, said):
    with pytest.raises(DataError) as caught:
        Manifest.from_dict(FULL | change, Path("somewhere/manifest.json"))
    assert said in str(caught.value)
    assert str(caught.value).startswith("somewhere/manifest.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "name", 3, {}, {"title": "no name"}])
def test_what_is_no_manifest_is_refused(value):
    with pytest.raises(DataError):
        Manifest.from_dict(value)
