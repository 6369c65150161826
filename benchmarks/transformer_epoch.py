"""An epoch of ELIAS and of one-vs-all with a transformer, compared with the transformer's bare two passes.

The reference is what the transformers library does with the same batches: the model as it is loaded, forward and
backward, in the same precision, without any label, loss over labels or optimiser. Both take a few steps in turn, so
that other work on the machine slows both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from xcbench.methods.elias import EliasTask

from benchmarks.figure import Figure
from xcbench.data import Dataset, load_dataset
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.labels import balanced_clusters, sparse_centroids
from xcbench.nn import FreeLabels
from xcbench.nn.pretrained import find_model
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import seed_generators
from xcbench.threads import set_threads
from xcbench.train import Batch, GroupedTraining, Points, RankAll, Work, train
from xcbench.train.encoders import Encoder, EncoderConfig, encoder_of, points_of, read_texts, with_encoder_groups
from xcbench.train.learned_index import LearnedIndex

PRESET = "anchor-minilm"
STEPS = 6
ROUNDS = 3


def measure() -> Iterator[Figure]:
    set_threads()
    data = load_dataset("lf-debian-4k")
    elias = get_method("elias")
    ova = get_method("ova")
    c = build(elias.config_type, elias.presets[PRESET])
    one_vs_all = build(ova.config_type, ova.presets[PRESET])
    encoder = encoder_of(c.encoder, read_texts(c.encoder, data), data.train)
    points = points_of(encoder, data.train)

    bare = bare_passes(c.encoder, points, c.fixed.batch_size)
    for what, task, training in (
        ("stage 1", elias_task(c, data, encoder, stage=1), c.fixed),
        ("stage 2", elias_task(c, data, encoder, stage=2), c.learnt),
        ("one-vs-all", RankAll(encoder.start(0), labels_of(data, encoder), "batch"), one_vs_all.training),
    ):
        ours = our_steps(task, points, with_encoder_groups(training, task, c.encoder))
        yield figure(what, ours, bare, len(points) / training.batch_size)


def figure(what: str, ours: Callable[[], float], bare: Callable[[], float], steps_per_epoch: float) -> Figure:
    costs = [(ours(), bare()) for _ in range(ROUNDS)]
    return Figure(
        what=f"epoch of {what} on lf-debian-4k with minilm",
        ours=min(cost[0] for cost in costs) * steps_per_epoch,
        reference=min(cost[1] for cost in costs) * steps_per_epoch,
        unit="CPU s",
        reference_name="bare forward and backward",
        at_least=0.8,
        note=f"{STEPS} batches, extrapolated",
    )


def labels_of(data: Dataset, encoder: Encoder) -> FreeLabels:
    return FreeLabels(data.label_count, encoder.dim, torch.zeros(data.label_count, encoder.dim))


def elias_task(c: Any, data: Dataset, encoder: Encoder, stage: int) -> EliasTask:
    """A task of ELIAS. In stage 2 each cluster has `kappa` edges; here they are drawn at random."""
    seed_generators(0)
    L = data.label_count
    C = c.index.cluster_count(L)
    edges = balanced_clusters(sparse_centroids(data.train.Y, data.train.X), C).to_csr().T.tocsr()
    beta = None
    if stage == 2:
        kappa = c.index.edges_per_cluster(L)
        random = np.random.default_rng(0)
        labels = np.concatenate([np.sort(random.choice(L, kappa, replace=False)) for _ in range(C)])
        ones = np.ones(C * kappa, np.float32)
        edges = sp.csr_array((ones, labels, kappa * np.arange(C + 1)), shape=(C, L))
        beta = c.index.edge_scale(L)
    explored = c.index.explored(L)
    index = LearnedIndex(edges, encoder.dim, c.index.alpha, beta, explored, c.index.listed(L), all_labels=True)
    return EliasTask(encoder.start(0), index, labels_of(data, encoder), c.fixed_weight)


def our_steps(task: nn.Module, points: Points, training: GroupedTraining) -> Callable[[], float]:
    """CPU seconds of a step of the training loop, all that it does included. The first step is left out."""
    starts: list[float] = []
    loss: Callable[[Batch], Tensor] = task.loss  # type: ignore[assignment]

    def clocked(batch: Batch) -> Tensor:
        starts.append(time.process_time())
        return loss(batch)

    task.loss = clocked  # type: ignore[assignment]

    def cost() -> float:
        starts.clear()
        train(task, points, replace(training, steps=STEPS + 2), Work(log=lambda message: None))
        return (starts[-1] - starts[1]) / STEPS

    return cost


def bare_passes(c: EncoderConfig, points: Points, batch_size: int) -> Callable[[], float]:
    """CPU seconds of the two passes of the model itself, over the batches that the loop makes."""
    from transformers import AutoModel

    assert c.model is not None
    model: Any = AutoModel.from_pretrained(find_model(c.model), dtype="float32", local_files_only=True)
    model.train()
    order = np.random.default_rng([0, 0]).permutation(len(points))
    batches = [padded(points, order[step * batch_size :][:batch_size]) for step in range(1, STEPS + 1)]

    def cost() -> float:
        start = time.process_time()
        for ids, mask in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=c.precision == "bfloat16"):
                pieces = model(input_ids=ids, attention_mask=mask).last_hidden_state
            pieces.float().sum().backward()
            model.zero_grad()
        return (time.process_time() - start) / STEPS

    cost()
    return cost


def padded(points: Points, rows: Longs) -> tuple[Tensor, Tensor]:
    """Ids and mask [points, T], where T is the length of the longest title."""
    titles = points.cut(rows).X
    assert isinstance(titles, SparseRows)
    T, places = titles.in_table()
    ids = torch.zeros(len(rows) * T, dtype=torch.int64)
    mask = torch.zeros(len(rows) * T, dtype=torch.int64)
    ids[torch.from_numpy(places)] = torch.from_numpy(titles.indices.astype(np.int64))
    mask[torch.from_numpy(places)] = 1
    return ids.view(len(rows), T), mask.view(len(rows), T)
