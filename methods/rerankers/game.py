"""GAME behind any method: its predictions spread along ECLARE's label graph (ECLARE, Table 4).

A label that walks reach from a likely label becomes likelier itself: s = p / 2 + top-B(p G) / 2 with the random-walk
graph G, as in the authors' code. It needs only a method's scores, which should be probabilities or at least not
negative. ECLARE also drops edges between labels whose learnt vectors point apart; here there are no such vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.labels.label_graph import LabelGraph
from xcbench.plugins import Ranking, Reranker, Rescorer, Run, Stage, load_values, register_reranker, save_values
from xcbench.shortlist import Game


@dataclass(frozen=True)
class GameConfig:
    """The graph as in ECLARE's paper and configs; the beam is that of its configs for LF-AmazonTitles-131K."""

    beam: int = 50
    mode: Literal["code", "paper"] = "code"
    """`paper` is top-B(p G^T), which lets go of the method's own scores."""
    power: float = 1.0
    """Below 1 for methods whose scores fall steeply from place to place."""
    graph: LabelGraph = field(default_factory=LabelGraph)

    def __post_init__(self) -> None:
        if self.beam < 1 or not 0 < self.power <= 1:
            raise ValueError("beam is at least 1, power greater than 0 and at most 1")


class GameRescorer(Rescorer):
    """The normalised label graph."""

    def __init__(self, graph: sp.csr_array, beam: int, mode: Literal["code", "paper"], power: float = 1.0) -> None:
        self.game = Game(graph, beam, mode, power)

    def rescore(self, predictions: TopK, X: sp.csr_array, titles: Sequence[str] | None = None) -> TopK:
        spread = self.game(predictions.cut(self.game.beam))
        return spread.cut(predictions.k).padded(predictions.k)

    def save(self, folder: Path) -> None:
        game = self.game
        save_values(folder, {"graph": game.graph, "beam": game.beam, "mode": game.mode, "power": game.power})

    @classmethod
    def load(cls, folder: Path) -> GameRescorer:
        return cls(**load_values(folder))


@register_reranker("game")
class GameReranker(Reranker[GameConfig]):
    """GAME: scores spread along ECLARE's random-walk graph of labels"""

    config_type = GameConfig
    rescorer_type = GameRescorer
    citation = "Mittal et al., ECLARE: Extreme Classification with Label Graph Correlations, WWW 2021"

    def stages(self, data: Dataset, run: Run) -> Mapping[str, Stage]:
        recipe, Y = self.config.graph, run.unaugmented.train.Y
        graph = run.stage(
            "graph",
            lambda work: {"G": recipe.normalise(recipe.count(Y, work.seed))},
            data=run.unaugmented,
            config=recipe,
        )
        return {"graph": graph}

    def fit(self, data: Dataset, run: Run, first: Ranking) -> GameRescorer:
        c = self.config
        return GameRescorer(self.stages(data, run)["graph"]["G"], c.beam, c.mode, c.power)
