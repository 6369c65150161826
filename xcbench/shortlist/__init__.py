"""Shortlisters, which propose labels for a point, and predictors, which score the labels of a shortlist.

- Shortlisters, all with the contract in `contract`: `exact` (all labels), `beam` (clusters), `hnsw` (nearest vectors),
  `tree` (label trees) and `index` (weighted edges from clusters to labels). `load` and `packing` read and store any of
  them.
- `game`: ECLARE's reranking along a graph, GAME. All of its arithmetic is there.
- `predictors`: what trained methods predict with.
- `device`: search and prediction on a GPU, which `to(device)` of the above returns.
- `blend` combines predictions, `recall` measures shortlists, `sparse_topk` searches by sparse products, and `blocks`
  spreads points over threads and estimates memory.

May import `data`, `kernels`, `labels` and `nn`. `train`, `runner`, `report` and methods may import it.
"""

from xcbench.shortlist.beam import BeamShortlister, beam_width
from xcbench.shortlist.blend import blend, divide_by_best
from xcbench.shortlist.blocks import prediction_memory, search_memory
from xcbench.shortlist.contract import Shortlister, Vectors
from xcbench.shortlist.exact import ExactShortlister, exact_topk
from xcbench.shortlist.game import Game, GameConfig, GameMode, game
from xcbench.shortlist.hnsw import HNSWShortlister, build_at_once
from xcbench.shortlist.index import IndexShortlister
from xcbench.shortlist.load import load_shortlister
from xcbench.shortlist.recall import recall_curve
from xcbench.shortlist.tree import TreeShortlister

__all__ = [
    "BeamShortlister",
    "ExactShortlister",
    "Game",
    "GameConfig",
    "GameMode",
    "HNSWShortlister",
    "IndexShortlister",
    "Shortlister",
    "TreeShortlister",
    "Vectors",
    "beam_width",
    "blend",
    "build_at_once",
    "divide_by_best",
    "exact_topk",
    "game",
    "load_shortlister",
    "prediction_memory",
    "recall_curve",
    "search_memory",
]
