"""What the author of a method, an augmentation or a reranker imports: contract, config, stages, registry, codec.

May import `data`; every room above, and every method, stands on it. docs/writing-a-method.md shows how it is used.
"""

from xcbench.plugins.codec import load_values, save_values
from xcbench.plugins.contract import (
    Ablation,
    Augmentation,
    Method,
    NoConfig,
    Predictor,
    Ranking,
    Reranker,
    Rescorer,
    Run,
    TextPredictor,
    Trained,
    register_augmentation,
    register_method,
    register_reranker,
)
from xcbench.plugins.stages import Stage, StageWork

__all__ = [
    "Ablation",
    "Augmentation",
    "Method",
    "NoConfig",
    "Predictor",
    "Ranking",
    "Reranker",
    "Rescorer",
    "Run",
    "Stage",
    "StageWork",
    "TextPredictor",
    "Trained",
    "load_values",
    "register_augmentation",
    "register_method",
    "register_reranker",
    "save_values",
]
