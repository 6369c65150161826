"""The runner: typed configs, the registry, runs, stages that are computed once, the store, tables, plots, launchers.

May import every room but `cli`; no other room imports it. Method authors find here what a plug-in needs
(docs/writing-a-method.md); `xcbench.bench.run.run` runs one, `xcbench.bench.store.results` reads what was measured.
"""

from xcbench.bench.codec import load_values, save_values
from xcbench.bench.contract import (
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
from xcbench.bench.spec import OverwriteStrategy, RunSpec
from xcbench.bench.stages import Stage, StageWork

__all__ = [
    "Ablation",
    "Augmentation",
    "Method",
    "NoConfig",
    "OverwriteStrategy",
    "Predictor",
    "Ranking",
    "Reranker",
    "Rescorer",
    "Run",
    "RunSpec",
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
