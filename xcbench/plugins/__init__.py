"""What the author of a method, an augmentation or a reranker imports: contract, config, stages, registry, codec.

docs/guides/writing-a-method.md shows how it is used.

May import `data`, and looks through the folder of methods. `runner`, `report`, `cli` and every method may import it.
"""

from xcbench.costs import StageCost
from xcbench.plugins.codec import SavedByArguments, load_values, save_values
from xcbench.plugins.contract import (
    Ablation,
    Augmentation,
    Method,
    NoConfig,
    Patch,
    Predictor,
    Ranking,
    Reranker,
    Rescorer,
    Run,
    TextPredictor,
    Trained,
    VectorPredictor,
    register_augmentation,
    register_method,
    register_reranker,
)
from xcbench.plugins.ranges import AnyRange, Choice, IntRange, LogIntRange, LogRange, Range
from xcbench.plugins.stages import Stage, StageWork, Values, all_but, settings_of, stage

__all__ = [
    "Ablation",
    "AnyRange",
    "Augmentation",
    "Choice",
    "IntRange",
    "LogIntRange",
    "LogRange",
    "Method",
    "NoConfig",
    "Patch",
    "Predictor",
    "Range",
    "Ranking",
    "Reranker",
    "Rescorer",
    "Run",
    "SavedByArguments",
    "Stage",
    "StageCost",
    "StageWork",
    "TextPredictor",
    "Trained",
    "Values",
    "VectorPredictor",
    "all_but",
    "load_values",
    "register_augmentation",
    "register_method",
    "register_reranker",
    "save_values",
    "settings_of",
    "stage",
]
