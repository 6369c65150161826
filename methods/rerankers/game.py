"""GAME behind any method: its predictions spread along ECLARE's label graph (ECLARE, Table 4).

A label that walks reach from a likely label becomes likelier itself: s = p / 2 + top-B(p G) / 2 with the random-walk
graph G, as in the authors' code (`xcbench.shortlist.game` computes it). It needs only a method's scores, which should
be probabilities or at least not negative. ECLARE also drops edges between labels whose learnt vectors point apart; here
there are no such vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.labels.label_graph import LabelGraph
from xcbench.plugins import (
    Ranking,
    Reranker,
    Rescorer,
    Run,
    StageWork,
    Values,
    load_values,
    register_reranker,
    save_values,
    stage,
)
from xcbench.shortlist import Game, GameConfig, GameMode


@dataclass(frozen=True)
class GameRerankerConfig(GameConfig):
    """The graph as in ECLARE's paper and configs; the beam is that of its configs for LF-AmazonTitles-131K."""

    mode: Literal["code", "paper"] = "code"
    """`paper` is top-B(p G^T), which lets go of the method's own scores. A reranker that is off makes no sense."""
    beam: int = 50
    graph: LabelGraph = field(default_factory=LabelGraph)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam < 1:
            raise ValueError(f"beam is at least 1, got {self.beam}")


@stage(
    settings=[
        "graph.counts",
        "graph.walk_length",
        "graph.restart",
        "graph.head_threshold",
        "graph.top",
        "graph.normalisation",
    ],
    data="unaugmented",
)
def graph(work: StageWork[GameRerankerConfig]) -> Values:
    """G, the normalised graph of the labels of training points."""
    recipe = work.config.graph
    counts = recipe.count(work.unaugmented.train.Y, work.seed)
    return {"G": recipe.normalise(counts)}


class GameRescorer(Rescorer):
    """The normalised label graph, and how scores are spread along it."""

    def __init__(self, graph: sp.csr_array, beam: int, mode: GameMode, power: float = 1.0) -> None:
        self.game = Game(graph, beam, mode, power)

    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        spread = self.game(predictions.cut(self.game.beam))
        return spread.cut(predictions.k).padded(predictions.k)

    def save(self, folder: Path) -> None:
        values = {
            "graph": self.game.graph,
            "beam": self.game.beam,
            "mode": self.game.mode,
            "power": self.game.power,
        }
        save_values(folder, values)

    @classmethod
    def load(cls, folder: Path) -> GameRescorer:
        return cls(**load_values(folder))


@register_reranker("game")
class GameReranker(Reranker[GameRerankerConfig]):
    """GAME: scores spread along ECLARE's random-walk graph of labels"""

    config_type = GameRerankerConfig
    rescorer_type = GameRescorer
    stages = (graph,)
    citation = "Mittal et al., ECLARE: Extreme Classification with Label Graph Correlations, WWW 2021"

    def fit(self, data: Dataset, run: Run, first: Ranking) -> GameRescorer:
        c = self.config
        G = run.stage(graph, data)["G"]
        return GameRescorer(G, c.beam, c.mode, c.power)
