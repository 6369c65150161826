"""Thresholds of stored runs: chosen on held-out training points, kept beside the record."""

import dataclasses
import json

import numpy as np
import pytest

import xcbench
from tests.cli.test_run import call, one_line, toy
from xcbench.data import TextColumn
from xcbench.errors import InputError
from xcbench.evaluation import Thresholds, evaluate_decisions
from xcbench.runner import thresholds
from xcbench.runner.store import Store
from xcbench.runner.thresholds import load_thresholds, set_thresholds
from xcbench.runner.toy import toy_dataset

__all__ = ["call", "toy"]


def test_a_threshold_is_chosen_kept_and_used(call, toy):
    call("run", "knn", "--dataset", toy, "--rerank", "game")
    code, _, err = call("evaluate", "--run", "latest", "--threshold", "auto")
    assert code == 2
    assert "has no thresholds; choose them with `xcbench threshold" in err

    code, out, _ = call("threshold", "--run", "latest")
    assert code == 0
    assert "chosen for f1 on 40 held-out points" in out
    record = Store().find("latest")
    kept = load_thresholds(record)
    assert not kept.per_label

    by_run = json.loads(call("evaluate", "--run", "latest", "--threshold", "auto", "--json")[1])
    by_number = json.loads(call("evaluate", "--run", "latest", "--threshold", float(kept.values[0]), "--json")[1])
    file = ("evaluate", "--predictions", record.folder / "predictions.npz", "--dataset", toy, "--json")
    by_file = json.loads(call(*file, "--threshold", float(kept.values[0]))[1])
    run = xcbench.load_run("latest")
    assert by_run == by_number == by_file == run.evaluate(threshold="auto")
    # The threshold was chosen for F1; half of it and twice of it are worse on the slice's siblings, the test points.
    for factor in (0.2, 3):
        other = evaluate_decisions(
            record.predictions(), run.dataset, Thresholds.everywhere(factor * float(kept.values[0]))
        )
        assert other["micro-F1"] < by_run["micro-F1"]

    titles = list(run.dataset.test.titles)[:20]
    decided = run.predict(titles, k=20, threshold="auto")
    assert decided == run.predict(titles, k=20, threshold=float(kept.values[0]))

    asked = [argument for title in titles for argument in ("--text", title)]
    answers = json.loads(call("predict", "--run", "latest", *asked, "--k", 20, "--threshold", "auto", "--json")[1])
    assert [len(answer["labels"]) for answer in answers] == [len(labels) for labels in decided]


def test_each_label_may_have_its_own(call, toy):
    call("run", "knn", "--dataset", toy)
    out = call("threshold", "--run", "latest", "--per-label", "--goal", "precision=0.8", "--share", 0.5, "--json")[1]
    chosen = json.loads(out)
    assert chosen["goal"] == "precision=0.8"
    kept = load_thresholds(Store().find("latest"))
    assert kept.per_label
    assert kept.values.tolist() == chosen["thresholds"]
    assert len(kept.values) == 50
    assert call("threshold", "--run", "latest")[0] == 0
    assert not load_thresholds(Store().find("latest")).per_label


def test_test_points_have_no_say(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    record = xcbench.run("knn", data).record
    expected = set_thresholds(record, data=data)

    shuffled = dataclasses.replace(
        data.test,
        X=data.test.X[::-1],
        Y=data.test.Y[np.random.default_rng(0).permutation(len(data.test))],
        titles=TextColumn.of(["unlike any training title"] * len(data.test)),
    )
    other = dataclasses.replace(data, test=shuffled)
    again = set_thresholds(xcbench.run("knn", other).record, data=other)
    assert again.thresholds.values == expected.thresholds.values
    assert again.slice_metrics == expected.slice_metrics


def test_the_slice_is_unknown_to_the_model_that_predicts_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = toy_dataset()
    seen = []
    real = thresholds.train
    monkeypatch.setattr(
        thresholds, "train", lambda resolved, context: seen.append(resolved.data) or real(resolved, context)
    )
    set_thresholds(xcbench.run("knn", data).record, data=data, share=0.25)
    (divided,) = seen
    assert (len(divided.train), len(divided.test)) == (150, 50)
    assert sorted([*divided.train.titles, *divided.test.titles]) == sorted(data.train.titles)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--goal", "f2"), "unknown goal 'f2'; expected f1, or precision=0.9"),
        (("--goal", "precision=1.5"), "lies between 0 and 1, got 1.5"),
        (("--share", "0"), "share lies between 0 and 1, got 0"),
        (("--share", "0.001"), "200 training points are too few to hold out a share of 0.001"),
        (("--device", "gpu"), "unknown device 'gpu'"),
        (("--run", "nothing"), "unknown run"),
    ],
)
def test_bad_requests_are_one_line_and_leave_nothing(call, toy, words, message):
    call("run", "popularity", "--dataset", toy, "--name", "mine")
    code, _, err = call("threshold", *(() if "--run" in words else ("--run", "mine")), *words)
    assert code == 2
    assert message in one_line(err)
    assert not (Store().find("mine").folder / "thresholds").exists()


def test_other_data_or_another_method_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    record = xcbench.run("knn", toy_dataset()).record
    with pytest.raises(InputError, match="its content differs"):
        set_thresholds(record, data=toy_dataset(seed=1))
    with pytest.raises(InputError, match="another version of its method or settings"):
        set_thresholds(dataclasses.replace(record, id="knn-000000000000"), data=toy_dataset())
