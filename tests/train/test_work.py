"""The work of a training, from shapes, against numbers worked out by hand."""

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data import Dataset, Split
from xcbench.train import LabelSide, Training, cost_of_ranking_all, cost_of_ranking_shortlists
from xcbench.train.memory import WORKING_COPIES, distinct_labels
from xcbench.train.work import dense_operations, shortlist_operations

D = 8
L = 50
TWENTY_STEPS = Training(batch_size=100, epochs=2)


def points(count):
    return Split(sp.csr_array((count, 30), dtype=np.float32), sp.csr_array((count, L), dtype=np.float32))


DATA = Dataset("empty", points(1000), points(1))


def test_ranking_all_labels_multiplies_points_with_labels():
    cost = cost_of_ranking_all(DATA, TWENTY_STEPS, D, L)
    assert cost.operations == 20 * 3 * 2 * 100 * L * D
    assert cost.traffic == 20 * (4 * WORKING_COPIES * D * (L + 100) + 28 * L * D)
    assert cost.output == 4 * L * (D + 1)
    assert cost.checkpoint == 12 * L * D


def test_an_encoder_is_updated_and_kept():
    plain = cost_of_ranking_all(DATA, TWENTY_STEPS, D, L, keeps_classifiers=False)
    cost = cost_of_ranking_all(DATA, TWENTY_STEPS, D, L, encoder_parameters=240, keeps_classifiers=False)
    assert cost.operations == plain.operations
    assert cost.traffic - plain.traffic == 20 * 28 * 240
    assert (plain.output, cost.output) == (0, 4 * 240)
    assert cost.checkpoint - plain.checkpoint == 12 * 240


def test_the_text_of_labels_costs_a_map_of_each():
    text = LabelSide(maps=1, free=False)
    assert dense_operations(100, L, D, text) == 3 * (2 * 100 * L * D + 2 * L * D * D)
    assert cost_of_ranking_all(DATA, TWENTY_STEPS, D, L, text).checkpoint == 0


def test_a_factored_map_moves_to_the_points_where_they_are_fewer():
    text = LabelSide(maps=1, factored=True)
    assert dense_operations(100, L, D, text) == 3 * (2 * 100 * L * D + 2 * L * D * D)
    assert dense_operations(4, L, D, text) == 3 * 2 * (2 * 4 * L * D)


def test_few_candidates_are_scored_one_by_one():
    free = LabelSide(maps=0)
    assert shortlist_operations(100, L, 5, D, free) == 3 * 2 * 100 * 5 * D
    assert shortlist_operations(100, L, 6, D, free) == 3 * 2 * 100 * L * D


def test_a_batch_has_fewer_labels_than_candidates_in_all():
    assert distinct_labels(10, 5, batch=1) == 5
    assert distinct_labels(10, 5, batch=2) == 7.5
    assert distinct_labels(10, 10, batch=1) == 10


def test_shortlists_touch_the_vectors_of_their_labels_alone():
    training = Training(batch_size=1, steps=3)
    cost = cost_of_ranking_shortlists(DATA, training, D, candidates=10)
    assert cost.traffic == pytest.approx(3 * (4 * WORKING_COPIES * D * 11 + 28 * 10 * D))
    assert cost.checkpoint == 12 * L * D
    assert cost.output == 4 * L * (D + 1)


def test_steps_are_those_of_the_loop():
    assert TWENTY_STEPS.steps_on(1000) == 20
    assert Training(batch_size=100, epochs=2, min_steps=30).steps_on(1000) == 30
    # Half of the points are label titles: twice as many steps at least.
    assert Training(batch_size=100, epochs=2, min_steps=30).steps_on(1000, titles=500) == 60
    assert TWENTY_STEPS.steps_on(0) == 0
