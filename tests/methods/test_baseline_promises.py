"""What every baseline promises beyond the contract (tests/runner/test_check.py), asked of each in turn."""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.methods.problems import csr, gappy, needs, quick, separable, train
from xcbench.cli import main
from xcbench.data import Dataset, Split
from xcbench.errors import InputError
from xcbench.plugins import extras, registry
from xcbench.plugins.registry import get_method
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset

NAMES = [
    "parabel",
    "bonsai",
    "plt",
    "dismec",
    "mach",
    "siamese",
    "slice",
    "pfastrexml",
    "annexml",
    "siamesexml",
    "glas",
    "overlap-xmc",
]
baselines = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in NAMES])


@baselines
def test_learns_a_separable_problem_perfectly(name):
    data = separable()
    found = train(name, data).predict(data.test.X, 3)
    assert found.indices[:, 0].tolist() == list(range(12))


@baselines
def test_survives_labels_without_points_and_points_without_words(name):
    data = gappy()
    found = train(name, data).predict(data.test.X, 3)
    assert found.indices[2:, 0].tolist() == [1, 2]


@baselines
def test_one_label(name):
    X, Y = csr([[1, 0], [0, 1], [1, 1]]), csr([[1], [1], [1]])
    found = train(name, Dataset("one", Split(X, Y), Split(X, Y), Z=csr([[1, 0]]))).predict(X, 2)
    assert found.indices.tolist() == [[0, -1]] * 3


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in ["parabel", "bonsai", "plt", "dismec"]])
def test_data_without_a_learnable_point_is_refused(name):
    X, Y = csr([[1, 0], [0, 0]]), csr([[0, 0], [1, 0]])
    with pytest.raises(InputError, match="no training point with both features and labels"):
        train(name, Dataset("none", Split(X, Y), Split(X, Y)))


@baselines
def test_takes_label_text_as_points_and_game_behind_it(name, tmp_path):
    """No two labels come together here, so neither may move a label from the place that is its own."""
    spec = RunSpec(name, augment=("metadata",), rerank="game")
    record = run(spec, data=separable(), store=tmp_path / "runs", cache=tmp_path / "stages")
    assert record.metrics["P@1"].value == 100
    assert (record.augment, record.rerank) == (("metadata",), "game")


@pytest.fixture
def fresh_registry():
    """What packages are there is looked up once a process: look again before and after."""
    registry._built_in.cache_clear()
    yield
    registry._built_in.cache_clear()


@pytest.fixture
def activated(monkeypatch):
    """Our environment is the first that the shell looks at, and we came from an index of packages."""
    monkeypatch.setattr(shutil, "which", lambda _: str(Path(sys.executable).with_name("pip")))
    monkeypatch.setattr(extras, "_origin", dict)


def test_without_its_library_a_method_says_what_to_install(monkeypatch, fresh_registry, activated):
    importable = registry._importable
    monkeypatch.setattr(registry, "_importable", lambda root: root != "omikuji" and importable(root))
    problems = {entry.name: entry.problem for entry in registry.entries("method")}
    assert problems["parabel"] == problems["bonsai"] == "not available: pip install 'xcbench[baselines]'"
    assert problems["knn"] is None


def test_a_library_in_a_version_nobody_tried_is_refused(monkeypatch, fresh_registry, activated, capsys):
    installed = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.4" if name == "omikuji" else installed(name))
    with pytest.raises(InputError, match=r"needs omikuji<0.6,>=0.5, found 0.3.4: pip install 'xcbench\[baselines\]'"):
        registry.get_method("parabel")
    with pytest.raises(SystemExit):
        main(["list", "ablations"])
    out, err = capsys.readouterr()
    assert "DECAF-lite" in out
    assert "parabel is not available: needs omikuji" in err


def test_remedies_name_extras_where_they_bring_the_package(activated):
    assert extras.install_command(("omikuji", "sklearn")) == "pip install 'xcbench[baselines]'"
    assert extras.install_command(("no_such_package",)) == "pip install no_such_package"
    assert extras.version_problem("numpy") is None


@pytest.mark.parametrize(
    ("editable", "here", "expected"),
    [(True, ".", "-e '.[baselines]'"), (True, "docs", "-e '{root}[baselines]'"), (False, ".", "'.[baselines]'")],
)
def test_what_came_from_a_folder_is_installed_from_there(activated, monkeypatch, tmp_path, editable, here, expected):
    (tmp_path / "docs").mkdir()
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True} if editable else {}}
    monkeypatch.setattr(extras, "_origin", lambda: origin)
    monkeypatch.chdir(tmp_path / here)
    assert extras.install_command(("omikuji",)) == f"pip install {expected.format(root=tmp_path)}"


@pytest.mark.parametrize("pip", [None, "/usr/bin/pip"])
def test_the_pip_of_another_environment_is_not_meant(activated, monkeypatch, tmp_path, pip):
    python = tmp_path / ".venv" / "bin" / "python"
    monkeypatch.setattr(shutil, "which", lambda _: pip)
    monkeypatch.setattr(sys, "executable", str(python))
    assert extras.extra("ray") == f"{python} -m pip install 'xcbench[ray]'"
    monkeypatch.chdir(tmp_path)
    assert extras.extra("ray") == ".venv/bin/python -m pip install 'xcbench[ray]'"


@baselines
def test_predictions_go_down_and_name_no_label_twice(name):
    data = separable()
    found = train(name, data).predict(data.train.X, 12)
    for row in found.indices:
        labels = row[row >= 0]
        assert len(np.unique(labels)) == len(labels)
    assert (found.scores[:, :-1] >= found.scores[:, 1:]).all()


@pytest.mark.parametrize("name", ["siamesexml", "glas", "attentionxml", "overlap-xmc", "pfastrexml", "annexml"])
def test_a_stored_model_answers_a_test_title_as_the_run_did(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    spec = RunSpec(name, overrides=quick(get_method(name)))
    record = run(spec, data=data, store=tmp_path / "runs", cache=tmp_path / "stages")
    expected = record.predictions().indices[0, :3].tolist()
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["predict", "--run", str(record.folder), "--text", data.test.titles[0], "--k", "3", "--json"])
    assert not end.value.code
    (answer,) = json.loads(capsys.readouterr().out)
    assert [found["label"] for found in answer["labels"]] == expected
