"""Shortlists that differ from point to point, as those of a trained model do.

After a few steps a shortlister sends most points to the same clusters: 255 points at the 131K shape with a beam of 200
had 6,500 clusters between them, where random ones would have 25,800. Their labels would stay in the processor's cache,
and steps and predictions would seem cheaper than they are. So each cluster is given the vector of a training point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from xcbench.data.matrices import unit_vectors
from xcbench.kernels.arrays import Floats
from xcbench.train import Points, RankAll, all_classifiers


@contextlib.contextmanager
def spread_clusters(module: Any) -> Iterator[None]:
    """Let the classifiers of clusters that a method's file asks for be vectors of points.

    Parameters
    ----------
    module
        The file. Its `train` is replaced meanwhile, so it has to be patched before this.
    """
    trained_on: dict[int, Points] = {}
    train = module.train

    def remember(task: nn.Module, points: Points, *more: Any) -> Any:
        trained_on[id(task)] = points
        return train(task, points, *more)

    def classifiers(task: Any, count: int) -> tuple[Floats, Floats]:
        if not isinstance(task, RankAll):
            return all_classifiers(task, count)
        vectors = vectors_of_some(task.documents, trained_on[id(task)], count)
        return vectors, np.zeros(count, np.float32)

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(module, "train", remember))
        if hasattr(module, "all_classifiers"):
            patches.enter_context(mock.patch.object(module, "all_classifiers", classifiers))
        yield


@torch.no_grad()
def spread_index(task: nn.Module, points: Points) -> None:
    """Let the clusters of ELIAS' index start at vectors of points."""
    weight: torch.Tensor = task.index.clusters.weight  # type: ignore[union-attr, assignment]
    weight.copy_(torch.from_numpy(vectors_of_some(task.encoder, points, len(weight))))


@torch.no_grad()
def vectors_of_some(encoder: Any, points: Points, count: int) -> Floats:
    """Return unit vectors of random points that say what tells each from the others.

    Parameters
    ----------
    encoder
        The document side of a task.
    points
        Its training points.
    count
        How many are drawn.
    """
    rows = np.random.default_rng(0).integers(len(points), size=count)
    encoder.eval()
    batch = points.prepare(rows).finish(torch.device("cpu"))
    vectors: Floats = encoder(batch.X).numpy()
    vectors -= vectors.mean(axis=0)
    return unit_vectors(vectors)
