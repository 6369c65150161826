"""Predictors: what remains of a method after training. They find a shortlist per point and score its labels.

- `BeamPredictor` (`beam`): the labels of the likeliest clusters, with GAME if wanted. DECAF and ECLARE.
- `ShortlistPredictor` (`shortlist`): the labels of a shortlister of any kind. Slice, and DECAF with other shortlisters.
- `ExactPredictor` (`exact`): all labels.
- `CascadePredictor` (`cascade`): one of the first two behind two trained encoders, from sparse points to labels.
- `TitlePredictor` (`titles`): one of the last two rankers behind an encoder that reads titles.

All save to a folder of safetensors and JSON and load from it. May import what `xcbench.shortlist` may import.
"""

from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.cascade import CascadePredictor, FixedEncoder, as_array, folded
from xcbench.shortlist.predictors.exact import ExactPredictor
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor, rank_shortlist, shortlist_logits
from xcbench.shortlist.predictors.titles import TitleEncoder, TitlePredictor, predictor_of

__all__ = [
    "BeamPredictor",
    "CascadePredictor",
    "ExactPredictor",
    "FixedEncoder",
    "ShortlistPredictor",
    "TitleEncoder",
    "TitlePredictor",
    "as_array",
    "folded",
    "predictor_of",
    "rank_shortlist",
    "shortlist_logits",
]
