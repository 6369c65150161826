"""How much work a training will be and what it will write, from shapes alone, before there is a module."""

from __future__ import annotations

from typing import NamedTuple

from xcbench.costs import StageCost
from xcbench.data import Dataset
from xcbench.nn.pair_scores import DENSE_ABOVE
from xcbench.train.loop import Training
from xcbench.train.memory import WORKING_COPIES, distinct_labels

FORWARD_AND_BACKWARD = 3
"""A product costs this many times what it costs forward: each of its two factors gets a gradient by another one."""

BYTES_PER_UPDATE = 28
"""Of a parameter that every step changes: Adam reads four numbers and writes three."""


class LabelSide(NamedTuple):
    """What the classifier of a label is made of.

    Parameters
    ----------
    maps
        How many D x D products each label in a step costs: 0 for free vectors.
    factored
        Whether the map may move to the points where these are fewer, as DECAF's does.
    free
        Whether each label has a vector of its own, which is learnt.
    """

    maps: float
    factored: bool = False
    free: bool = True


FREE_VECTORS = LabelSide(0.0)


class StepWork(NamedTuple):
    """The work of one step."""

    operations: float
    traffic: float


def cost_of_ranking_all(
    data: Dataset,
    training: Training,
    dim: int,
    labels: int,
    side: LabelSide = FREE_VECTORS,
    encoder_parameters: int = 0,
    keeps_classifiers: bool = True,
) -> StageCost:
    """Return what it costs to rank all labels (or clusters) for every point: a `RankAll`.

    Parameters
    ----------
    data
        The dataset.
    training
        How long it is trained.
    dim
        D, the length of a vector.
    labels
        How many labels, or clusters of labels, there are.
    side
        What their classifiers are made of.
    encoder_parameters
        How many parameters of the encoder learn, token embeddings above all. They are part of the output.
    keeps_classifiers
        Whether the classifiers are part of the output.
    """
    batch = min(training.batch_size, len(data.train))
    operations = dense_operations(batch, labels, dim, side)
    learnt = encoder_parameters + _free_parameters(side, labels, dim)
    step = StepWork(operations, _traffic(batch, labels, dim, learnt))
    kept = labels if keeps_classifiers else 0
    return _cost(data, training, step, dim, learnt, encoder_parameters, kept)


def cost_of_ranking_shortlists(
    data: Dataset,
    training: Training,
    dim: int,
    candidates: int,
    side: LabelSide = FREE_VECTORS,
    encoder_parameters: int = 0,
) -> StageCost:
    """Return what it costs to rank each point's candidates: a `RankShortlist`.

    Parameters
    ----------
    data
        The dataset.
    training
        How long it is trained.
    dim
        D, the length of a vector.
    candidates
        How many candidates a point has.
    side, encoder_parameters
        As for `cost_of_ranking_all`.
    """
    batch = min(training.batch_size, len(data.train))
    L = data.label_count
    candidates = min(candidates, L)
    labels = distinct_labels(L, candidates, batch)
    operations = shortlist_operations(batch, labels, candidates, dim, side)
    # Only the labels of a step have gradients.
    step = StepWork(operations, _traffic(batch, labels, dim, encoder_parameters + _free_parameters(side, labels, dim)))
    learnt = encoder_parameters + _free_parameters(side, L, dim)
    return _cost(data, training, step, dim, learnt, encoder_parameters, L)


def dense_operations(batch: int, labels: float, dim: int, side: LabelSide) -> float:
    """Return the operations of a step that scores all pairs of its points and labels."""
    scores = 2.0 * batch * labels * dim
    maps = 2.0 * side.maps * labels * dim**2
    if side.factored:
        maps = min(maps, scores)
    return FORWARD_AND_BACKWARD * (scores + maps)


def shortlist_operations(batch: int, labels: float, candidates: int, dim: int, side: LabelSide) -> float:
    """Return the operations of a step that scores the candidates of its points, which are so many labels together."""
    if candidates > DENSE_ABOVE * labels:
        return dense_operations(batch, labels, dim, side)
    scores = 2.0 * batch * candidates * dim
    maps = 2.0 * side.maps * labels * dim**2
    if side.factored:
        maps = min(maps, scores)
    return FORWARD_AND_BACKWARD * (scores + maps)


def vector_bytes(count: int, dim: int) -> int:
    """Return the bytes of so many vectors and as many biases."""
    return 4 * count * (dim + 1)


def _free_parameters(side: LabelSide, labels: float, dim: int) -> int:
    if not side.free:
        return 0
    return round(labels * dim)


def _traffic(batch: int, labels: float, dim: int, updated: float) -> float:
    """Return the bytes that a step reads and writes: working tables of its labels, and parameters with a gradient."""
    return 4.0 * WORKING_COPIES * dim * (labels + batch) + BYTES_PER_UPDATE * updated


def _cost(
    data: Dataset,
    training: Training,
    step: StepWork,
    dim: int,
    learnt: int,
    encoder_parameters: int,
    kept: int,
) -> StageCost:
    points = data.train
    titles = 0
    if points.label_of is not None and points.mixing is None:
        titles = int((points.label_of >= 0).sum())
    steps = training.steps_on(len(points), titles)
    return StageCost(
        operations=steps * step.operations,
        traffic=steps * step.traffic,
        output=4 * encoder_parameters + vector_bytes(kept, dim),
        checkpoint=3 * 4 * learnt,
    )
