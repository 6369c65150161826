"""Names of runs that people can type, and what tells runs apart."""

import logging

import pytest

from xcbench.errors import InputError
from xcbench.runner.execute import run
from xcbench.runner.naming import differences
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    return Store(tmp_path / "runs")


def test_of_several_runs_with_a_name_the_newest_is_taken_and_said(store, caplog, monkeypatch):
    finished = iter(f"2030-01-0{day}T00:00:00+00:00" for day in range(1, 9) for _ in range(2))
    monkeypatch.setattr("xcbench.runner.execute._now", lambda: next(finished))
    first = run(RunSpec("knn"), data=toy_dataset(), name="mine")
    second = run(RunSpec("knn", seed=1, overrides={"neighbours": 3}), data=toy_dataset(), name="mine")
    caplog.set_level(logging.INFO, "xcbench")
    for name in ("mine", "knn@toy-50"):
        caplog.clear()
        assert store.find(name).id == second.id
        assert caplog.messages == [f"{name}: {second.id}, the newest of 2 runs (seed 1, neighbours=3)"]
    assert store.find("latest").id == second.id
    assert store.find(first.id).name == "mine"
    with pytest.raises(InputError, match=r"may be any of .*: write more of it") as caught:
        store.find("knn-")
    assert f"{first.id} (seed 0, neighbours=50)" in str(caught.value)
    assert f"{second.id} (seed 1, neighbours=3)" in str(caught.value)


def test_a_stored_run_can_be_renamed_and_keeps_its_figures(store):
    first = run(RunSpec("popularity"), data=toy_dataset())
    again = run(RunSpec("popularity"), data=toy_dataset(), name="head labels")
    assert again.finished == first.finished
    assert store.find("head labels").metrics == first.metrics
    with pytest.raises(InputError, match="did you mean"):
        store.find("head label")


def test_differences_say_what_a_reader_would(store):
    data = toy_dataset()
    records = [
        run(RunSpec("knn"), data=data),
        run(RunSpec("knn", ablations=("text",), augment=("gandalf",)), data=data),
        run(RunSpec("popularity", seed=2), data=data),
    ]
    assert differences(records) == [
        "knn, no ablation, no augmentation, seed 0",
        "knn, text, gandalf, seed 0",
        "popularity, no ablation, no augmentation, seed 2",
    ]
    assert differences(records[:1]) == [""]
    assert differences([records[0], records[0]]) == [f"finished {records[0].finished}"] * 2


@pytest.mark.parametrize("name", ["", " x", "a@b", "a/b", "latest", "two\nlines", "x" * 101])
def test_names_that_cannot_be_typed_are_refused_before_any_work(store, name):
    with pytest.raises(InputError, match="name"):
        run(RunSpec("no such method"), data=toy_dataset(), name=name)
