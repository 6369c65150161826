"""`xcbench tune`: what it searches, what it never looks at, and how it goes on after a break."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("optuna")

from tests.cli.test_run import call, one_line, toy
from xcbench.data import TextColumn
from xcbench.data.holdout import random_slice
from xcbench.errors import XCBenchError
from xcbench.evaluation import evaluate
from xcbench.plugins import Choice, IntRange, LogIntRange, LogRange, Range, registry
from xcbench.plugins.config import build, known_keys, leaves
from xcbench.runner import tuning
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset
from xcbench.runner.tuning import tune

__all__ = ["call", "toy"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def searched(trials, **options):
    return tune(RunSpec("knn"), trials, data=options.pop("data", toy_dataset()), **options)


def test_the_best_trial_is_one_of_the_records_and_no_worse_than_the_start(home):
    search = searched(5, metric="precision@3")
    assert search.metric == "P@3"
    assert search.trials[0].settings == {"neighbours": 50, "power": 2.0}
    assert search.best.value == max(trial.value for trial in search.trials)
    assert len({str(trial.settings) for trial in search.trials}) > 3

    data = random_slice(toy_dataset(), 0.2, 0)
    for trial in search.trials:
        record = Store(search.folder / "runs").find(trial.run)
        assert evaluate(record.predictions(), data, ["P@3"]).values()["P@3"] == trial.value
        assert {key: record.config[key] for key in trial.settings} == trial.settings
        assert not (record.folder / "model").exists()
    assert Store().ids() == []
    assert not (search.folder / "stages").exists()


def test_a_search_that_was_broken_off_proposes_what_an_unbroken_one_does(home, monkeypatch):
    unbroken = [trial.settings for trial in searched(13).trials]
    monkeypatch.setenv("XCBENCH_HOME", str(home.with_name("other")))
    real = tuning.run
    calls = iter(range(100))

    def killed_at_the_fourth(*arguments, **options):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(tuning, "run", killed_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        searched(13)
    assert [trial.settings for trial in searched(4).trials] == unbroken[:4]
    assert [trial.settings for trial in searched(13).trials] == unbroken
    done = next(calls)
    assert [trial.settings for trial in searched(13).trials] == unbroken
    assert next(calls) == done + 1  # nothing ran again


def test_test_points_have_no_say(home, monkeypatch):
    data = toy_dataset()
    expected = searched(4)
    rng = np.random.default_rng(0)
    other_test = dataclasses.replace(
        data.test,
        Y=data.test.Y[rng.permutation(len(data.test))],
        titles=TextColumn.of(["unlike any training title"] * len(data.test)),
    )
    monkeypatch.setenv("XCBENCH_HOME", str(home.with_name("other")))
    again = searched(4, data=dataclasses.replace(data, test=other_test))
    assert again.trials == expected.trials
    assert again.folder.name == expected.folder.name


def test_a_failed_trial_is_kept_and_the_search_goes_on(monkeypatch):
    real = tuning.run
    calls = iter(range(100))

    def failing(*arguments, **options):
        if next(calls) == 1:
            raise XCBenchError("out of memory")
        return real(*arguments, **options)

    monkeypatch.setattr(tuning, "run", failing)
    search = searched(3)
    assert [trial.failure for trial in search.trials] == [None, "out of memory", None]
    assert search.trials[1].value is None

    monkeypatch.setattr(tuning, "run", lambda *_, **__: (_ for _ in ()).throw(XCBenchError("no luck")))
    with pytest.raises(XCBenchError, match="every trial failed; the last one: no luck"):
        _ = searched(2, metric="R@10").best


def test_settings_that_are_set_are_not_searched():
    search = tune(RunSpec("knn", overrides={"power": "1.5"}), 3, data=toy_dataset())
    assert {tuple(trial.settings) for trial in search.trials} == {("neighbours",)}
    record = Store(search.folder / "runs").find(search.trials[-1].run)
    assert record.config["power"] == 1.5


def test_the_command_ends_with_flags_that_run_takes(call, toy):
    code, out, err = call("tune", "--method", "knn", "--dataset", toy, "--trials", 3)
    assert code == 0
    assert "trial 3 of 3: " in err
    words = out.splitlines()[-1].split()
    assert words[:2] == ["xcbench", "run"]
    assert "--set" in words
    assert call(*words[1:])[0] == 0
    found = json.loads(call("tune", "knn", "--dataset", toy, "--trials", 3, "--json")[1])
    assert len(found["trials"]) == 3
    for key, value in found["settings"].items():
        assert f"{key}={value}" in words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("popularity",), "method 'popularity' declares no ranges to search; try settings with --set"),
        (("knn", "--trials", 0), "a search has at least 1 trial, got 0"),
        (("knn", "--metric", "Q@1"), "unknown metric 'Q@1'"),
        (("knn", "--share", 1), "the held-out share lies between 0 and 1"),
        (("knn", "--set", "power=1", "--set", "neighbours=3"), "--set fixes all settings of 'knn'"),
        (("knm",), "did you mean knn"),
        (("knn", "--device", "gpu"), "unknown device 'gpu'"),
    ],
)
def test_bad_requests_are_one_line(call, toy, words, message):
    code, _, err = call("tune", *words, "--dataset", toy)
    assert code == 2
    assert message in one_line(err)


def test_without_optuna_one_line_says_what_to_install(call, toy, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    code, _, err = call("tune", "knn", "--dataset", toy)
    assert code == 2
    assert "tuning needs Optuna: " in one_line(err)
    assert "[tune]" in err


SEARCHED = ("decaf", "eclare", "astec", "inceptionxml", "knn")


@pytest.mark.parametrize("name", SEARCHED)
def test_declared_ranges_hold_the_defaults_and_nothing_that_is_refused(name):
    method = registry.get_method(name)
    assert method.search_space
    defaults = leaves(method.config_type())
    for key, each in method.search_space.items():
        assert key in known_keys(method.config_type)
        assert defaults[key] in each
        ends = each.options if isinstance(each, Choice) else (each.low, each.high)
        for value in ends:
            build(method.config_type, {key: value}, owner=name)


def test_ranges_that_are_none_are_refused():
    for wrong in (lambda: Range(2, 1), lambda: LogRange(0, 1), lambda: IntRange(3, 3), lambda: LogIntRange(0, 5)):
        with pytest.raises(ValueError, match="range"):
            wrong()
