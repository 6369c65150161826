"""Thresholds against brute force, and the figures of decisions against scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.evaluation import Goal, Thresholds, Truth, choose_thresholds, evaluate_decisions

metrics = pytest.importorskip("sklearn.metrics")


def problem(seed, points=40, labels=12, equal_scores=False):
    rng = np.random.default_rng(seed)
    Y = rng.random((points, labels)) < 0.2
    scores = rng.random((points, labels)).astype(np.float32) + 0.5 * Y
    if equal_scores:
        scores = np.round(scores, 1)
    scores = scores.astype(np.float32)
    scores[rng.random(scores.shape) < 0.3] = 0
    filter_pairs = np.argwhere(rng.random(Y.shape) < 0.05)
    truth = Truth.of_matrix(sp.csr_array(Y.astype(np.float32)), filter_pairs)
    counted = np.ones_like(Y)
    counted[tuple(filter_pairs.T)] = False
    return TopK.from_csr(sp.csr_array(scores)), truth, Y & counted, np.where(counted, scores, 0)


def f1(Y, decisions):
    found = (Y & decisions).sum()
    return 2 * found / max(1, Y.sum() + decisions.sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("average", ["micro", "macro", "samples"])
def test_figures_are_those_of_scikit_learn(seed, average):
    predictions, truth, Y, scores = problem(seed)
    thresholds = np.random.default_rng(seed).random(Y.shape[1]).astype(np.float32)
    decisions = (scores > 0) & (scores >= thresholds)
    values = evaluate_decisions(predictions, truth, Thresholds(thresholds))
    expected = metrics.precision_recall_fscore_support(Y, decisions, average=average, zero_division=0)[:3]
    name = {"samples": "instance"}.get(average, average)
    assert [values[f"{name}-{figure}"] for figure in ("P", "R", "F1")] == pytest.approx([100 * x for x in expected])
    assert values["labels-per-point"] == pytest.approx(decisions.sum(axis=1).mean())
    assert values["answered"] == pytest.approx(100 * decisions.any(axis=1).mean())
    found = (Y & decisions).any(axis=0)[Y.any(axis=0)]
    assert values["coverage"] == pytest.approx(100 * found.mean())


@pytest.mark.parametrize("seed", range(8))
def test_the_global_threshold_has_the_highest_f1_of_all(seed):
    predictions, truth, Y, scores = problem(seed, equal_scores=seed % 2)
    chosen = choose_thresholds(predictions, truth, Goal()).values
    candidates = np.unique(scores[scores > 0])
    best = max(f1(Y, scores >= value) for value in candidates)
    assert f1(Y, scores >= chosen) == pytest.approx(best)
    assert chosen in candidates


@pytest.mark.parametrize("seed", range(8))
def test_a_wanted_precision_is_reached_with_the_highest_recall(seed):
    predictions, truth, Y, scores = problem(seed, equal_scores=seed % 2)
    chosen = choose_thresholds(predictions, truth, Goal(0.4)).values
    found = {value: (Y & (scores >= value)).sum() for value in np.unique(scores[scores > 0])}
    good = [value for value, hits in found.items() if hits >= 0.4 * (scores >= value).sum()]
    assert float(chosen[0]) in good
    assert found[chosen[0]] == max(found[value] for value in good)


@pytest.mark.parametrize("seed", range(6))
def test_labels_with_enough_positives_have_the_best_threshold_of_their_own(seed):
    predictions, truth, Y, scores = problem(seed, equal_scores=seed % 2)
    overall = choose_thresholds(predictions, truth, Goal()).values[0]
    chosen = choose_thresholds(predictions, truth, Goal(), per_label=True)
    assert chosen.per_label
    for label, value in enumerate(chosen.values):
        if Y[:, label].sum() < 5:
            assert value == overall
            continue
        column = scores[:, label]
        best = max(f1(Y[:, label], column >= each) for each in np.unique(column[column > 0]))
        assert f1(Y[:, label], column >= value) == pytest.approx(best)


def test_a_label_that_never_reaches_the_precision_is_never_predicted():
    scores = np.array([[0.9, 0.1]] * 6 + [[0.2, 0.8]] * 6, np.float32)
    Y = np.zeros_like(scores)
    Y[:6, 0] = 1
    Y[:6, 1] = 1  # found only below six wrong ones
    truth = Truth.of_matrix(sp.csr_array(Y))
    predictions = TopK.from_csr(sp.csr_array(scores))
    chosen = choose_thresholds(predictions, truth, Goal(0.9), per_label=True)
    assert chosen.values[0] == np.float32(0.9)
    assert np.isinf(chosen.values[1])
    decided = chosen.apply(predictions)
    assert decided.indices[:, 0].tolist() == [0] * 6 + [-1] * 6
    assert (decided.indices[:, 1] == -1).all()


def test_a_precision_that_no_threshold_reaches_is_said():
    predictions, truth, *_ = problem(0)
    shuffled = TopK(predictions.indices, np.full_like(predictions.scores, 0.5))
    with pytest.raises(InputError, match=r"no threshold reaches a precision of 0.9"):
        choose_thresholds(shuffled, truth, Goal(0.9))


def test_kept_labels_move_up():
    predictions = TopK.of(np.array([[0, 1, 2]]), np.array([[3.0, 2.0, 1.0]]))
    decided = Thresholds(np.array([1, 9, 1], np.float32)).apply(predictions)
    assert decided.indices.tolist() == [[0, 2, -1]]
    assert decided.scores.tolist() == [[3, 1, -np.inf]]


@pytest.mark.parametrize(
    "text", ["f2", "precision", "precision=", "precision=2", "precision=0", "precision=nan", "=0.5", "precision=0.5.1"]
)
def test_an_unclear_goal_is_refused(text):
    with pytest.raises(InputError, match=r"expected f1, or precision=0\.9|lies between 0 and 1"):
        Goal.parse(text)


def test_goals_are_read_as_they_are_written():
    assert Goal.parse("F1") == Goal()
    assert Goal.parse(" precision = 0.9 ") == Goal(0.9)
    assert [str(Goal()), str(Goal(0.9))] == ["f1", "precision=0.9"]
