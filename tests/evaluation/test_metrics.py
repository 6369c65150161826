"""Every metric against its plain definition, against napkinxc, and against figures worked out by hand."""

from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from napkinxc import metrics as napkinxc

from tests.evaluation.reference import Case, csr, random_case, reference
from xcbench.data import Dataset, Propensity, Split, TopK
from xcbench.errors import InputError
from xcbench.evaluation import DEFAULT_METRICS, Truth, evaluate, inverse_propensity

FAMILIES = ("P", "nDCG", "R", "PSP", "PSnDCG", "PSR", "MRR", "C", "Cpred")
SOME_METRICS = [f"{family}@{k}" for family in FAMILIES for k in (1, 2, 3, 5, 8, 40)] + ["MRR"]


@given(seed=st.integers(0, 10**6), points=st.integers(1, 30), labels=st.integers(1, 25), k=st.integers(0, 12))
@settings(deadline=None, max_examples=60)
def test_every_metric_equals_its_definition(seed, points, labels, k):
    case = random_case(np.random.default_rng(seed), points, labels, k)
    values = evaluate(case.top_k(), case.judge(), SOME_METRICS).values()
    assert list(values) == SOME_METRICS
    for name, value in values.items():
        assert value == pytest.approx(reference(case, name), abs=1e-9), name


@given(seed=st.integers(0, 10**6), points=st.integers(1, 40), labels=st.integers(5, 60))
@settings(deadline=None, max_examples=25)
def test_agrees_with_napkinxc(seed, points, labels):
    """Its defaults count points without truth as zeros, as we do. It knows no filter, so it gets what we leave."""
    case = random_case(np.random.default_rng(seed), points, labels, k=12)
    k = 15
    truth, ranked = [sorted(row) for row in case.relevant], case.ranked
    if not any(truth):
        return  # a propensity-scored metric is 0/0 there: nan for napkinxc, 0 for us
    weights = np.array(case.weights)
    theirs = {
        "P": napkinxc.precision_at_k(truth, ranked, k=k),
        "R": napkinxc.recall_at_k(truth, ranked, k=k, zero_division=0),
        "nDCG": napkinxc.ndcg_at_k(truth, ranked, k=k, zero_division=0),
        "PSP": napkinxc.psprecision_at_k(truth, ranked, weights, k=k, normalize=True),
        "PSR": napkinxc.psrecall_at_k(truth, ranked, weights, k=k, normalize=True, zero_division=0),
        "PSnDCG": napkinxc.psndcg_at_k(truth, ranked, weights, k=k, normalize=True, zero_division=0),
        "C": napkinxc.coverage_at_k(truth, ranked, k=k),
    }
    names = [f"{family}@{place}" for family in theirs for place in range(1, k + 1)]
    ours = evaluate(case.top_k(), case.judge(), names).values()
    expected = 100 * np.concatenate(list(theirs.values()))
    np.testing.assert_allclose(list(ours.values()), expected, rtol=0, atol=1e-9)


def test_agrees_with_napkinxc_on_matrices_without_ties():
    """The form most users give it: a truth and a score matrix, propensities from a training set with unseen labels."""
    rng = np.random.default_rng(4)
    case = random_case(rng, 200, 50, k=20, tied=False)
    case.filtered.clear()
    Y_train = (rng.random((300, 50)) < 0.05) * (np.arange(50) % 5 > 0.0)  # every fifth label is never seen
    Y = csr([[(label, 1.0) for label in row] for row in case.truth], 50)
    scores = csr([list(row.items()) for row in case.scores], 50)
    theirs = napkinxc.Jain_et_al_inverse_propensity(sp.csr_matrix(Y_train), A=0.6, B=2.6)
    ours = inverse_propensity(Y_train.sum(axis=0), 300, Propensity(0.6, 2.6))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    expected = napkinxc.psprecision_at_k(sp.csr_matrix(Y), sp.csr_matrix(scores), theirs, k=5)
    values = evaluate(TopK.from_csr(scores), Truth.of_matrix(Y, inverse_propensity=ours), ["PSP@1", "PSP@5"]).values()
    np.testing.assert_allclose(list(values.values()), 100 * expected[[0, 4]], atol=1e-9)


def worked_example() -> Dataset:
    """Three points, five labels; docs/reference/metrics.md goes through it by hand."""
    nothing = sp.csr_array((3, 1), dtype=np.float32)
    frequency = [4, 2, 1, 1, 0]
    Y_train = np.zeros((8, 5), np.float32)
    for label, count in enumerate(frequency):
        Y_train[:count, label] = 1
    Y_test = csr([[(0, 1), (2, 1)], [(1, 1), (3, 1)], [(2, 1)]], 5)
    test = Split(nothing, Y_test, filter=np.array([[1, 4], [2, 2]]))
    train = Split(sp.csr_array((8, 1), dtype=np.float32), sp.csr_array(Y_train))
    return Dataset("worked-example", train, test)


WORKED_SCORES = csr([[(2, 0.9), (0, 0.5), (1, 0.5)], [(4, 0.8), (0, 0.7), (3, 0.6)], [(2, 0.9), (1, 0.1)]], 5)
WORKED_FIGURES = {
    "P@1": 33.33,
    "P@2": 50.00,
    "nDCG@2": 46.23,
    "R@2": 50.00,
    "PSP@1": 50.00,
    "PSP@2": 75.54,
    "PSnDCG@2": 69.44,
    "PSR@2": 75.54,
    "MRR": 50.00,
    "C@1": 25.00,
    "C@2": 75.00,
    "Cpred@1": 75.00,
    "Cpred@2": 100.00,
}


def test_the_worked_example_of_the_docs():
    values = evaluate(TopK.from_csr(WORKED_SCORES), worked_example(), list(WORKED_FIGURES)).values()
    assert {name: round(value, 2) for name, value in values.items()} == WORKED_FIGURES
    weights = [f"{weight:.4f}" for weight in Truth.of(worked_example()).label_weights]
    assert weights == ["1.6996", "1.8971", "2.0794", "2.0794", "2.4296"]
    docs = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert f"| w_l | {' | '.join(weights)} |" in docs
    for name, figure in WORKED_FIGURES.items():
        line = next(line for line in docs.splitlines() if line.startswith("- ") and name in line)
        assert f"**{figure:.2f}**" in line


def test_propensity_scores_are_a_ratio_of_averages():
    """Point a has a heavy label and misses it, point b a light one and finds it."""
    truth = Truth.of_matrix(csr([[(0, 1)], [(1, 1)]], 3), inverse_propensity=np.array([9.0, 1.0, 5.0]))
    predictions = TopK.from_csr(csr([[(2, 1.0)], [(1, 1.0)]], 3))
    assert evaluate(predictions, truth, ["PSP@1"]).values() == {"PSP@1": pytest.approx(10.0)}  # not 50


def test_an_ideal_prediction_scores_100():
    rng = np.random.default_rng(0)
    case = random_case(rng, 50, 30, k=5)
    case.filtered.clear()
    case.truth = [row or {0} for row in case.truth]
    case.scores = [{label: case.weights[label] for label in row} for row in case.truth]
    values = evaluate(
        case.top_k(), case.judge(), ["PSP@3", "PSnDCG@5", "PSR@2", "nDCG@5", "R@30", "MRR", "C@30"]
    ).values()
    assert list(values.values()) == pytest.approx([100.0] * 7)


def test_filtered_predictions_change_nothing():
    """Scoring the filtered labels first, last or not at all is the same to every metric."""
    case = random_case(np.random.default_rng(1), 40, 20, k=8)
    results = []
    for score in (None, 99.0, -99.0):
        scores = [
            {label: s for label, s in row.items() if (i, label) not in case.filtered}
            for i, row in enumerate(case.scores)
        ]
        for i, label in case.filtered:
            if score is not None:
                scores[i][label] = score
        again = Case(scores, case.truth, case.filtered, case.weights)
        results.append(evaluate(again.top_k(), again.judge(), SOME_METRICS).values())
    assert results[0] == results[1] == results[2]


def test_points_left_without_truth_count_as_zeros():
    truth = Truth.of_matrix(csr([[(0, 1)], [(1, 1)]], 2), np.array([[1, 1]]))
    predictions = TopK.from_csr(csr([[(0, 1.0)], [(0, 1.0)]], 2))
    values = evaluate(predictions, truth, ["P@1", "nDCG@1", "R@1", "MRR"]).values()
    assert list(values.values()) == [50.0] * 4


def test_soft_truth_is_what_is_above_zero():
    soft = csr([[(0, 0.2), (1, 0.0), (2, -1.0)]], 3)
    hard = csr([[(0, 1.0)]], 3)
    predictions = TopK.from_csr(csr([[(0, 3.0), (1, 2.0), (2, 1.0)]], 3))
    for Y in (soft, hard):
        values = evaluate(predictions, Truth.of_matrix(Y), ["P@1", "P@3", "R@3", "C@3"]).values()
        assert list(values.values()) == pytest.approx([100, 100 / 3, 100, 100])
    assert soft.nnz == 3  # the caller's matrix stays as it was


def test_the_number_of_threads_changes_nothing(monkeypatch):
    case = random_case(np.random.default_rng(2), 101, 40, k=9)
    results = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(numba, "get_num_threads", lambda threads=threads: threads)
        evaluation = evaluate(case.top_k(), case.judge(), SOME_METRICS)
        results.append((evaluation.values(), evaluation.hits.label.tolist(), evaluation.hits.place.tolist()))
    assert results[0] == results[1] == results[2]


def test_per_point_values_average_to_the_metric():
    case = random_case(np.random.default_rng(3), 60, 30, k=9)
    evaluation = evaluate(case.top_k(), case.judge(), SOME_METRICS)
    for name, value in evaluation.values().items():
        assert evaluation.per_point(name).value == pytest.approx(value, abs=1e-9)
    alone = [
        Case([scores], [truth], {(0, label) for j, label in case.filtered if j == i}, case.weights)
        for i, (scores, truth) in enumerate(zip(case.scores, case.truth, strict=True))
    ]
    for name in ("P@3", "nDCG@5", "R@2", "MRR"):
        assert 100 * evaluation.per_point(name).numerator == pytest.approx([reference(c, name) for c in alone])


def test_blocks_of_points_add_up(monkeypatch):
    case = random_case(np.random.default_rng(5), 50, 30, k=9)
    whole = evaluate(case.top_k(), case.judge(), SOME_METRICS).values()
    monkeypatch.setattr("xcbench.evaluation.gains.POINTS_AT_ONCE", 7)
    assert evaluate(case.top_k(), case.judge(), SOME_METRICS).values() == pytest.approx(whole)


def test_the_smallest_dataset_works():
    dataset = Dataset("one", *[Split(sp.csr_array((1, 1), dtype=np.float32), csr([[(0, 1.0)]], 1))] * 2)
    values = evaluate(TopK.from_csr(csr([[(0, 0.0)]], 1)), dataset).values()
    assert list(values) == list(DEFAULT_METRICS)
    assert values["PSP@1"] == values["P@1"] == 100.0
    assert values["P@5"] == 20.0


def test_nothing_to_find_is_zero_not_nan():
    truth = Truth.of_matrix(sp.csr_array((2, 3)), inverse_propensity=np.ones(3))
    evaluation = evaluate(TopK.from_csr(csr([[(0, 1.0)], []], 3)), truth)
    assert set(evaluation.values().values()) == {0.0}
    assert all(interval.low == interval.high == 0 for interval in evaluation.intervals(resamples=10).values())


@pytest.mark.parametrize(
    ("indices", "scores", "complaint"),
    [
        ([[0, 1], [2, 2]], [[2, 1], [2, 1]], "point 1 lists a label twice"),
        ([[0, 1], [3, 1]], [[2, 1], [2, 1]], "point 1 lists a label outside"),
        ([[-2, 1], [0, 1]], [[2, 1], [2, 1]], "point 0 lists a label outside"),
        ([[0, 1], [0, 1]], [[2, 1], [1, 2]], "point 1 has scores that do not fall"),
        ([[0, -1], [0, 1]], [[np.nan, 1], [2, 1]], "point 0 has scores that do not fall"),
        ([[0, 1]], [[2, 1]], "expected predictions for 2 points, got 1"),
    ],
)
def test_predictions_that_break_the_contract_are_refused(indices, scores, complaint):
    truth = Truth.of_matrix(csr([[(0, 1)], [(1, 1)]], 3))
    with pytest.raises(InputError, match=complaint):
        evaluate(TopK(np.array(indices, np.int32), np.array(scores, np.float32)), truth, ["P@1"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"filter_pairs": np.array([[0, 3]])}, "outside of 2 points x 3 labels"),
        ({"filter_pairs": np.array([[2, 0]])}, "outside of 2 points x 3 labels"),
        ({"inverse_propensity": np.ones(2)}, "inverse propensity for each of 3 labels"),
        ({"label_frequency": np.ones(4)}, "label frequency for each of 3 labels"),
    ],
)
def test_a_truth_that_does_not_fit_together_is_refused(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        Truth.of_matrix(csr([[(0, 1)], [(1, 1)]], 3), **arguments)


def test_propensity_scored_metrics_need_propensities():
    with pytest.raises(InputError, match="training set"):
        evaluate(TopK.from_csr(csr([[(0, 1.0)]], 1)), Truth.of_matrix(csr([[(0, 1)]], 1)), ["P@1", "PSP@1"])


def test_an_empty_test_set_is_refused():
    with pytest.raises(InputError, match="no test points"):
        Truth.of_matrix(sp.csr_array((0, 3)))


def test_inverse_propensity_by_hand():
    """n = 1 gives ln N whatever A and B are; a label never seen weighs most."""
    weights = inverse_propensity(np.array([1, 0, 10]), 1000, Propensity(0.6, 2.6))
    C = (np.log(1000) - 1) * 3.6**0.6
    np.testing.assert_allclose(weights, [np.log(1000), 1 + C * 2.6**-0.6, 1 + C * 12.6**-0.6])
    assert inverse_propensity(np.array([0, 1, 2]), 2, Propensity()).tolist() == [1, 1, 1]
    for impossible in (Propensity(1000, 2.6), Propensity(1, 1e-200), Propensity(1e308, 1e308)):
        with pytest.raises(InputError, match="give weights beyond numbers"):
            inverse_propensity(np.array([0, 10]), 1000, impossible)
