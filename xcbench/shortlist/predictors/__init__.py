"""Predictors: what remains of a method after training. They find a shortlist per point and score its labels.

- `BeamPredictor` (`beam`): the labels of the likeliest clusters, with GAME if wanted. DECAF and ECLARE.
- `ShortlistPredictor` (`shortlist`): the labels of a shortlister of any kind. Slice, and DECAF with other shortlisters.
- `CascadePredictor` (`cascade`): one of these two behind two trained encoders, from sparse points to labels.

All save to a folder of safetensors and JSON and load from it. May import what `xcbench.shortlist` may import.
"""

from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.cascade import CascadePredictor, FixedEncoder, as_array, folded
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor, rank_shortlist, shortlist_logits

__all__ = [
    "BeamPredictor",
    "CascadePredictor",
    "FixedEncoder",
    "ShortlistPredictor",
    "as_array",
    "folded",
    "rank_shortlist",
    "shortlist_logits",
]
