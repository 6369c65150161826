"""Wrong input through Python and the command line: one line that says where and what, nothing half-written."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import xcbench
from tests.cli.test_run import call, one_line, toy
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.files import home
from xcbench.runner.toy import toy_dataset

__all__ = ["call", "toy"]

TITLES = ["red apple", "blue sky"]
LABELS = [["fruit"], ["nature"]]
X = sp.csr_array([[1.0, 0, 2], [0, 1, 0]])


def fit(titles=TITLES, labels=LABELS, method="knn", **options):
    return xcbench.fit(method, titles, labels, **options)


def fitted(points=X, **options):
    return xcbench.fit("knn", X, LABELS).predict(points, **options)


FITTING = [
    (lambda: fit("red apple"), r"titles is a list of titles, got a single one; write \[title\]"),
    (lambda: fit(pd.DataFrame({"name": TITLES, "tags": LABELS})), r"got a frame; write frame\[column\] .* name, tags"),
    (lambda: fit(["red apple", None]), r"titles\[1\] is None; expected a text"),
    (lambda: fit(pd.Series(["red apple", float("nan")])), r"titles\[1\] is nan; expected a text"),
    (lambda: fit(["red apple", b"blue sky"]), r"titles\[1\] is b'blue sky'; expected a text"),
    (lambda: fit(7), r"titles is a list of titles, got int"),
    (lambda: fit({"red apple": 1}), r"titles is a list of titles, got dict"),
    (lambda: fit([], []), r"there are no points to fit on"),
    (lambda: fit(["", " "], [[1], [2]]), r"no title holds a single word"),
    (lambda: fit(labels=["fruit", "nature"]), r"labels\[0\] is the text 'fruit'; expected a list .* \['fruit'\]"),
    (lambda: fit(labels=[["fruit"]]), r"there are 2 points but labels of 1"),
    (lambda: fit(labels=[["fruit"], [3]]), r"some are texts and some are numbers"),
    (lambda: fit(labels=[["fruit"], [""]]), r"labels\[1\] holds an empty text"),
    (lambda: fit(labels=[[], []]), r"no point has a label"),
    (lambda: fit(labels=[["fruit"], None]), r"labels\[1\] is None; expected a list of labels"),
    (lambda: fit(labels=[["fruit"], [1.5]]), r"labels\[1\] holds 1.5; a label is a text or a whole number"),
    (lambda: fit(labels=[["fruit"], [None]]), r"labels\[1\] holds None; a label is a text or a whole number"),
    (lambda: fit(labels={0: ["fruit"]}), r"labels is a list with a list of labels per point, got dict"),
    (lambda: fit(labels="fruit"), r"labels is a list with a list of labels per point, got str"),
    (lambda: fit(labels=sp.csr_array([[1, 2], [0, 1]])), r"expected a matrix of zeros and ones"),
    (lambda: fit(labels=np.zeros((2, 3))), r"no point has a label"),
    (lambda: fit(sp.csr_array([[np.nan, 1], [0, 1]])), r"X holds a number that is not finite"),
    (lambda: fit(method="knm"), r"unknown method 'knm'; did you mean knn"),
    (lambda: fit(method=None), r"method is a name, got None"),
    (lambda: fit(settings={"neighbors": 3}), r"unknown config key .*'neighbors'; did you mean neighbours"),
    (lambda: fit(settings={"neighbours": "many"}), r"config key neighbours expects int, got 'many'"),
    (lambda: fit(settings=["neighbours=3"]), r"settings is a dict of config keys and values"),
    (lambda: fit(text_options={"tokeniser": "words"}), r"text_options: unknown option"),
    (lambda: fit(text_options={"tokenizer": "letters"}), r"unknown tokenizer 'letters'"),
    (lambda: fit(seed=1.5), r"seed is a whole number, got 1.5"),
    (lambda: fit(ensemble=0), r"an ensemble has at least 1 member, got 0"),
    (lambda: fit(augment=3), r"augment is a list of names, got 3"),
    (lambda: fit(device="gpu"), r"unknown device 'gpu'"),
    (lambda: fit(X, method="inceptionxml"), r"reads titles, which dataset 'features' does not have"),
]

PREDICTING = [
    (lambda: fitted(k=0), r"k is a whole number from 1 up, got 0"),
    (lambda: fitted(k="3"), r"k is a whole number from 1 up, got '3'"),
    (lambda: fitted(X[:, :2]), r"X has 2 features, but the model was trained on 3 features"),
    (lambda: fitted(["red apple"]), r"trained on features without text, so it cannot read text"),
    (lambda: fitted(threshold="high"), r"a threshold is a number, got 'high'"),
    (lambda: fitted(threshold=float("nan")), r"a threshold is a number, got nan"),
    (lambda: fit().predict(["red", 3]), r"titles\[1\] is 3; expected a text"),
    (lambda: fit().predict("red"), r"write \[title\]"),
]

TRUTH = [["a"], ["b"]]
EVALUATING = [
    (lambda: xcbench.evaluate([["a"]], TRUTH), r"there are 1 points but labels of 2"),
    (lambda: xcbench.evaluate([["a"], ["b"]]), r"say what the predictions are compared with"),
    (lambda: xcbench.evaluate([["a"], ["b", "b"]], TRUTH), r"point 1 lists a label twice"),
    (lambda: xcbench.evaluate([[("a", "high")], ["b"]], TRUTH), r"predictions\[0\]\[0\] has the score 'high'"),
    (lambda: xcbench.evaluate([[("a", 1, 2)], ["b"]], TRUTH), r"predictions\[0\]\[0\] has 3 parts; expected"),
    (lambda: xcbench.evaluate([["a"], ["b"]], toy_dataset()), r"need the true labels as lists, too"),
    (lambda: xcbench.evaluate([["a"], ["b"]], TRUTH, metrics="P@1"), r"metrics is a list of names, .* \['P@1'\]"),
    (lambda: xcbench.evaluate([["a"], ["b"]], TRUTH, metrics=["Q@1"]), r"unknown metric 'Q@1'"),
    (lambda: xcbench.evaluate([["a"], ["b"]], TRUTH, metrics=["PSP@1"]), r"need the label frequencies"),
    (lambda: xcbench.evaluate([["a"], ["b"]], TRUTH, metrics=["P@1"], threshold=1), r"give one of the two"),
    (lambda: xcbench.evaluate([["a"], ["b"]], TRUTH, threshold="auto"), r"chosen for a run; give a number"),
    (lambda: xcbench.evaluate(X, toy_dataset()), r"expected a 60 x 50 matrix of scores, got \(2, 3\)"),
    (lambda: xcbench.evaluate(TopK.from_csr(X), toy_dataset()), r"expected predictions for 60 points, got 2"),
    (lambda: xcbench.evaluate("nowhere.npz", toy_dataset()), r"there is no file nowhere.npz"),
    (lambda: xcbench.evaluate(X, 5), r"is a dataset or a matrix, got int"),
]

RUNNING = [
    (lambda: xcbench.load_run("nothing"), r"unknown run"),
    (lambda: xcbench.load_run(5), r"a run is named by its id or name, got 5"),
    (lambda: xcbench.load_run("latest"), r"unknown run"),
    (lambda: xcbench.run("knn", "no-such-data"), r"unknown dataset 'no-such-data'"),
    (lambda: xcbench.run("knn", toy_dataset(), overwrite="yes"), r"overwrite is one of keep, stale, redo"),
    (lambda: xcbench.run("knn", toy_dataset(), name="a@b"), r"a run's name is a line"),
    (lambda: xcbench.run("knn", toy_dataset(), ablations=["texd"]), r"unknown ablation of knn"),
    (lambda: xcbench.run("knn", toy_dataset(), rerank="gaem"), r"unknown reranker 'gaem'"),
    (lambda: xcbench.run("knn", toy_dataset(), preset="none such"), r"unknown preset of knn"),
    (lambda: xcbench.run("knn", toy_dataset(), seed=-1), r"a seed is at least 0, got -1"),
    (lambda: xcbench.load_dataset("no-such-data"), r"unknown dataset 'no-such-data'"),
]

COMMANDS = [
    (("run",), r"requires an argument"),
    (("run", "knn", "--name", "latest"), r"'latest' names the run that finished last"),
    (("run", "knn", "--set", "neighbours"), r"expected key.path=value, got 'neighbours'"),
    (("list", "runz"), r"runs"),
    (("compare", "latest"), r"unknown run"),
    (("data", "rm", "nothing"), r"unknown imported dataset 'nothing'"),
    (("data", "rm", "../runs"), r"unknown imported dataset"),
    (("evaluate",), r"say what to score: --predictions FILE, or --run RUN"),
    (("evaluate", "--run", "latest", "--dataset", "toy"), r"give --run alone"),
    (("evaluate", "--predictions", "P.npz", "--threshold", "1", "--metrics", "P@1"), r"give one of the two"),
    (("evaluate", "--predictions", "P.npz", "--dataset", "TOY", "--threshold", "high"), r"number or auto, got 'high'"),
    (("evaluate", "--predictions", "P.npz", "--dataset", "TOY", "--threshold", "auto"), r"it goes with --run"),
    (("add", "--predictions", "nowhere.npz", "--name", "mine", "--dataset", "TOY"), r"there is no file nowhere.npz"),
    (("add", "--predictions", "text.npz", "--name", "mine", "--dataset", "TOY"), r"text.npz: not a readable npz file"),
    (
        ("add", "--predictions", "small.npz", "--name", "mine", "--dataset", "TOY"),
        r"small.npz: expected a 60 x 50",
    ),
    (("add", "--predictions", "P.npz", "--name", "a/b", "--dataset", "TOY"), r"a run's name is a line"),
    (("add", "--predictions", "P.npz", "--name", "mine", "--dataset", "nothing"), r"unknown dataset 'nothing'"),
    (("add", "--predictions", "P.npz", "--name", "m", "--dataset", "TOY", "--seed", "-1"), r"a seed is at least 0"),
    (("threshold", "--run", "nothing"), r"unknown run"),
    (("tune", "knn", "--trials", "many"), r"many"),
]


@pytest.mark.parametrize(("wrong", "message"), [*FITTING, *PREDICTING, *EVALUATING, *RUNNING])
def test_in_python(wrong, message, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match=message) as caught:
        wrong()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("words", "message"), COMMANDS)
def test_on_the_command_line(call, toy, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    sp.save_npz("P.npz", sp.csr_array(toy_dataset().test.Y))
    sp.save_npz("small.npz", X)
    (tmp_path / "text.npz").write_text("no zip")
    code, out, err = call(*(str(toy) if word == "TOY" else word for word in words))
    assert (code, out) == (2, "")
    assert re.fullmatch(f"xcbench: .*{message}.*", one_line(err))
    assert not (home() / "runs").exists() or list((home() / "runs").glob("[!.]*")) == []
