"""What methods leave behind: predictors that score the labels of a shortlist."""

from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.cascade import CascadePredictor, FixedEncoder, as_array, folded
from xcbench.shortlist.predictors.listed import ShortlistPredictor, listed_logits, ranked

__all__ = [
    "BeamPredictor",
    "CascadePredictor",
    "FixedEncoder",
    "ShortlistPredictor",
    "as_array",
    "folded",
    "listed_logits",
    "ranked",
]
