"""What Python programs call, on plain lists and stored runs."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import xcbench
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation import Thresholds
from xcbench.evaluation import evaluate as evaluate_topk
from xcbench.runner.toy import toy_dataset

TITLES = ["red apple", "green apple", "blue sky", "red evening sky", "apple pie"]
LABELS = [["fruit"], ["fruit"], ["nature"], ["nature", "evening"], ["fruit", "food"]]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))


@pytest.fixture
def stored():
    return xcbench.run("knn", toy_dataset(), name="base")


def test_what_is_exported_is_all_that_dir_shows():
    assert dir(xcbench) == [
        *("XCClassifier", "__version__", "evaluate", "fit", "load_dataset", "load_run", "results", "run"),
    ]
    for name in set(dir(xcbench)) - {"__version__"}:
        assert "Parameters\n" in getattr(xcbench, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = xcbench.fitt


def test_importing_it_loads_no_library():
    code = "import sys, xcbench; print({'torch', 'numba', 'numpy', 'pandas', 'scipy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_fit_on_lists_predicts_labels_by_name():
    fitted = xcbench.fit("knn", TITLES, LABELS)
    assert repr(fitted) == "<knn fitted on 5 points with 4 labels>"
    assert fitted.labels == ["evening", "food", "fruit", "nature"]
    apple, nothing, sky = fitted.predict(["an apple", " ", "sky"], k=3)
    assert apple[0].label == "fruit"
    assert nothing == []
    assert [each.label for each in sky] == ["nature", "evening"]
    assert sky[0].score >= sky[1].score


def test_a_frame_has_a_row_per_label_and_says_whose_it_is():
    frame = xcbench.fit("knn", np.array(TITLES), LABELS).predict(["apple", "", "sky"], k=1, as_frame=True)
    assert list(frame.columns) == ["row", "title", "rank", "label", "score"]
    assert frame[["row", "title", "rank", "label"]].values.tolist() == [
        [0, "apple", 1, "fruit"],
        [2, "sky", 1, "nature"],
    ]


def test_fit_on_features_and_a_matrix_of_labels():
    rng = np.random.default_rng(0)
    X = sp.random_array((40, 9), density=0.5, rng=rng, format="csr") * 7
    Y = sp.csr_array((rng.random((40, 4)) < 0.4).astype(int))
    fitted = xcbench.fit("knn", X, Y)
    assert fitted.labels == [0, 1, 2, 3]
    longer, same = fitted.predict(X * 4, k=4), fitted.predict(X, k=4)
    assert [[each.label for each in answer] for answer in longer] == [
        [each.label for each in answer] for answer in same
    ]
    (row,) = fitted.predict(X[[5]], k=1)
    assert 0 <= row[0].label < 4


def test_fitting_again_gives_the_same_and_leaves_nothing_behind(home, tmp_path):
    settings = {f"{module}.training.steps": 4 for module in ("surrogate", "shortlister", "extreme")} | {"dim": 8}
    first, second = (xcbench.fit("decaf", TITLES, LABELS, settings=settings, seed=3) for _ in range(2))
    assert first.predict(TITLES, k=3) == second.predict(TITLES, k=3)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_made_once_and_found_by_its_names(stored):
    assert repr(stored) == f"<Run 'base' {stored.id} on toy-50: P@1 {stored.metrics['P@1']:.2f}>"
    for name in ("base", "latest", "knn@toy-50", stored.id, stored.id[:8], stored.record.folder):
        assert xcbench.load_run(name).id == stored.id
    again = xcbench.run("knn", toy_dataset())
    assert again.record.finished == stored.record.finished
    assert set(xcbench.results().run) == {stored.id}


def test_a_loaded_run_predicts_what_its_model_does(stored):
    titles = ["topic7 group1", "topic3 group0"]
    loaded = xcbench.load_run("base")
    predictions = stored.model.model.predict_text(titles, 3)
    answers = loaded.predict(titles, k=3)
    names = list(toy_dataset().label_titles)
    assert [[each.label for each in answer] for answer in answers] == [
        [names[label] for label in row if label >= 0] for row in predictions.indices
    ]
    assert answers[0][0].label == "topic7 group1"


def test_a_run_on_features_predicts_from_features():
    data = toy_dataset()
    without_text = dataclasses.replace(data, encoder=None)
    run = xcbench.run("knn", without_text)
    answers = run.predict(data.test.X[:3] * 2, k=1)
    assert [answer[0].label for answer in answers] == [
        data.label_titles[label] for label in run.test_predictions().indices[:3, 0]
    ]
    with pytest.raises(InputError, match="the model was trained on 80 features"):
        run.predict(data.test.X[:, :3])


def test_a_threshold_keeps_what_reaches_it(stored):
    titles = list(toy_dataset().test.titles)
    everything = stored.predict(titles, k=5)
    limit = everything[0][1].score
    kept = stored.predict(titles, k=5, threshold=limit)
    assert kept == [[each for each in answer if each.score >= limit] for answer in everything]
    assert kept != everything


def test_evaluate_gives_the_same_figures_in_every_form(stored, tmp_path):
    data = toy_dataset()
    predictions = stored.test_predictions()
    expected = evaluate_topk(predictions, data).values()
    path = tmp_path / "p.npz"
    predictions.save(path)
    scores = predictions.to_csr(data.label_count)
    assert stored.evaluate() == expected
    assert xcbench.evaluate(predictions, data) == expected
    assert xcbench.evaluate(path, data) == pytest.approx(expected)
    assert xcbench.evaluate(scores, data, metrics=["precision@1"]) == {"P@1": expected["P@1"]}

    names = list(data.label_titles)
    truth = [[names[label] for label in row.indices] for row in data.test.Y]
    answers = stored.predict(list(data.test.titles), k=20)
    by_name = xcbench.evaluate(answers, truth, metrics=["P@1", "R@10"])
    assert by_name == pytest.approx({name: expected[name] for name in ("P@1", "R@10")})
    ranked = [[each.label for each in answer] for answer in answers]
    assert xcbench.evaluate(ranked, truth, metrics=["P@1", "R@10"]) == by_name
    assert "PSP@1" not in xcbench.evaluate(ranked, truth)


def test_decisions_are_evaluated_at_a_threshold():
    true = [["a"], ["b"], ["a", "b"]]
    predicted = [[("a", 0.9), ("b", 0.6)], [("a", 0.7)], [("b", 0.8)]]
    values = xcbench.evaluate(predicted, true, threshold=0.65)
    # Decided: a, a, b. Right: the first and the last, of four true labels.
    assert values["micro-P"] == pytest.approx(200 / 3)
    assert values["micro-R"] == 50
    assert values["answered"] == 100
    assert xcbench.evaluate(predicted, true, threshold=Thresholds.everywhere(0.65)) == values


def test_predictions_of_other_programs_need_no_model():
    assert xcbench.evaluate(sp.csr_array([[0.1, 0.9]]), sp.csr_array([[0, 1]]), metrics=["P@1"]) == {"P@1": 100}
    ranked = TopK.of(np.array([[0, 1]]), np.array([[0.1, 0.9]]))
    assert xcbench.evaluate(ranked, sp.csr_array([[0, 1]]), metrics=["P@1"]) == {"P@1": 100}
