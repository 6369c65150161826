"""Which labels a point might have: shortlisters of several kinds behind one contract, and prediction from shortlists.

Exact search, beams over clusters (with GAME), nearest neighbours, label trees; blends of them, and their recall by
length. Blocks of points run side by side on threads of this process. May import `data` and `labels`.
"""

from xcbench.shortlist.beam import BeamShortlister, beam_width
from xcbench.shortlist.blend import blend, by_best
from xcbench.shortlist.blocks import prediction_memory, search_memory
from xcbench.shortlist.contract import Shortlister, Vectors
from xcbench.shortlist.exact import ExactShortlister, exact_topk
from xcbench.shortlist.game import Game, GameMode, game
from xcbench.shortlist.hnsw import HNSWShortlister
from xcbench.shortlist.load import load_shortlister
from xcbench.shortlist.recall import recall_curve
from xcbench.shortlist.tree import TreeShortlister

__all__ = [
    "BeamShortlister",
    "ExactShortlister",
    "Game",
    "GameMode",
    "HNSWShortlister",
    "Shortlister",
    "TreeShortlister",
    "Vectors",
    "beam_width",
    "blend",
    "by_best",
    "exact_topk",
    "game",
    "load_shortlister",
    "prediction_memory",
    "recall_curve",
    "search_memory",
]
