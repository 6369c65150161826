"""AnnexML: local embeddings in which points with common labels are near, and the votes of the nearest points.

Each of several learners cuts the points into parts and learns an embedding per part: E such that the cosine of E x and
E x' is large where x and x' have labels in common. A new point goes to a part, finds its nearest training points there
by a small-world graph, and each of these votes for its labels. score = votes of all learners / all voters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Floats, Ints
from xcbench.kernels.parallel import map_threads
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.shortlist import HNSWShortlister
from xcbench.shortlist.packing import pack, unpack
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.shortlist.sparse_topk import best_of_product

from ._libraries import learnable_points
from ._neighbour_learning import label_neighbours, learn_embedding, learn_partition, nearest_cluster, without_heads


@dataclass(frozen=True)
class AnnexmlConfig:
    """The authors' defaults, but for the search: faiss' graph in the place of theirs."""

    learners: int = 15
    dim: int = 50
    neighbours: int = 10
    """Points with common labels that a point learns from, and nearest points that vote."""
    part_points: int = 6000
    """Points are cut into parts of about this size."""
    part_rounds: int = 10
    sparsity: float = 1.0
    """L1 penalty on the weights that lead to a part."""
    rounds: int = 10
    lr: float = 0.1
    gamma: float = 10.0
    """How much a difference of cosines counts."""
    M: int = 32
    ef_construction: int = 100
    ef_search: int = 50

    def __post_init__(self) -> None:
        sizes = (self.learners, self.dim, self.neighbours, self.part_points, self.ef_construction, self.ef_search)
        if min(sizes) < 1 or self.M < 2:
            raise ValueError(
                "learners, dim, neighbours, part_points, ef_construction and ef_search are at least 1, M at least 2"
            )
        if min(self.part_rounds, self.rounds, self.sparsity) < 0 or min(self.lr, self.gamma) <= 0:
            raise ValueError("part_rounds, rounds and sparsity are not negative, lr and gamma are positive")

    def part_count(self, points: int) -> int:
        return max(1, points // self.part_points)


@stage(settings=["learners", "neighbours", "part_points", "part_rounds", "sparsity", "lr"])
def parts(work: StageWork[AnnexmlConfig]) -> Values:
    """Where each learner cuts the points: the centres of its parts, and the part of each point."""
    c = work.config
    X, Y = learnable_points(work.data)
    count = c.part_count(X.shape[0])
    if count == 1:
        return {"centres": [sp.csr_array((1, X.shape[1]), dtype=np.float32)] * c.learners}
    neighbours = label_neighbours(without_heads(Y), c.neighbours, work.seed)

    def learn(seed: int) -> sp.csr_array:
        return learn_partition(
            X,
            neighbours,
            count,
            rounds=c.part_rounds,
            lr=c.lr,
            sparsity=c.sparsity,
            seed=seed,
        )

    return {"centres": map_threads(learn, _seeds(work, c.learners))}


@stage(settings=["dim", "neighbours", "rounds", "lr", "gamma", "M", "ef_construction", "ef_search"], after=[parts])
def embeddings(work: StageWork[AnnexmlConfig]) -> Values:
    """Of each part of each learner: the words that its points have, their embeddings, and the graph of its points."""
    c = work.config
    X, Y = learnable_points(work.data)
    members: list[dict[str, Any]] = []
    for learner, centres in enumerate(work[parts]["centres"]):
        part_of = nearest_cluster(X, centres)
        for part in np.unique(part_of):
            points = np.flatnonzero(part_of == part).astype(np.int32)
            members.append({"learner": learner, "part": int(part), "points": points})
    seeds = _seeds(work, len(members))
    neighbours = [
        label_neighbours(Y[of_part["points"]], c.neighbours, seed) for of_part, seed in zip(members, seeds, strict=True)
    ]

    def learn(number: int) -> Mapping[str, Any]:
        points = X[members[number]["points"]]
        words = np.unique(points.indices)
        E = learn_embedding(
            points[:, words],
            neighbours[number],
            c.dim,
            rounds=c.rounds,
            lr=c.lr,
            gamma=c.gamma,
            seed=seeds[number],
        )
        graph = HNSWShortlister.of(
            points[:, words] @ E,
            M=c.M,
            ef_construction=c.ef_construction,
            ef_search=c.ef_search,
        )
        return {"words": words, "E": E, "graph": pack(graph)}

    learnt = map_threads(learn, range(len(members)))
    return {"parts": [{**of_part, **values} for of_part, values in zip(members, learnt, strict=True)]}


def _seeds(work: StageWork[AnnexmlConfig], count: int) -> Sequence[int]:
    drawn = work.generator().integers(0, 2**31, count)
    return [int(seed) for seed in drawn]


class AnnexmlPredictor(SavedByArguments, Predictor):
    """Where each learner sends a point, its parts, and the labels of the training points."""

    def __init__(
        self,
        centres: Sequence[sp.csr_array],
        parts: Sequence[Mapping[str, Any]],
        Y: sp.csr_array,
        neighbours: int,
    ) -> None:
        self.centres = centres
        self.parts = parts
        self.Y = Y
        self.neighbours = neighbours
        self.graphs = [unpack(part["graph"]) for part in parts]

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        votes = best_of_product(self.voters(X), self.Y, k)
        most = self.neighbours * len(self.centres)
        return TopK(votes.indices, votes.scores / np.float32(most))

    def voters(self, X: sp.csr_array) -> sp.csr_array:
        """[n, training points]: in how many learners a training point is among the nearest."""
        part_of = [nearest_cluster(X, centres) for centres in self.centres]
        rows = []
        voters = []
        for part, graph in zip(self.parts, self.graphs, strict=True):
            here = np.flatnonzero(part_of[part["learner"]] == part["part"])
            vectors: Floats = X[here][:, part["words"]] @ part["E"]
            nearest = graph.shortlist(vectors, self.neighbours).indices
            has_known_words = (vectors != 0).any(axis=1, keepdims=True)  # a point without is near to nothing
            is_found = (nearest >= 0) & has_known_words
            rows.append(np.repeat(here, is_found.sum(axis=1)))
            voters.append(part["points"][nearest[is_found]])

        row_of: Ints = np.concatenate(rows)
        voter: Ints = np.concatenate(voters)
        ones = np.ones(len(voter), np.float32)
        return sp.csr_array((ones, (row_of, voter)), shape=(X.shape[0], self.Y.shape[0]))


@register_method("annexml")
class AnnexML(Method[AnnexmlConfig]):
    """AnnexML: nearest training points in learnt local embeddings (numba, faiss)"""

    config_type = AnnexmlConfig
    predictor_type = AnnexmlPredictor
    stages = (parts, embeddings)
    citation = "Tagami, AnnexML: Approximate Nearest Neighbor Search for Extreme Multi-label Classification, KDD 2017"

    def fit(self, data: Dataset, run: Run) -> AnnexmlPredictor:
        centres = run.stage(parts, data)["centres"]
        learnt = run.stage(embeddings, data)["parts"]
        _, Y = learnable_points(data)
        return AnnexmlPredictor(centres, learnt, Y, self.config.neighbours)
