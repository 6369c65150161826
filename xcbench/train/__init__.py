"""The training loop: batches, schedules, devices, processes, checkpoints; and the two tasks that methods share.

May import data, nn and shortlist. The loop knows no method: it trains any module that has a `loss(batch)`.
"""

from xcbench.train.batches import Batch, Candidates, Points, learnable, targets_of
from xcbench.train.cascade import CascadePredictor, FixedEncoder, as_array, folded
from xcbench.train.devices import resolve_device
from xcbench.train.loop import Trainable, Training, TrainReport, Work, train
from xcbench.train.memory import MemoryEstimate, cascade_memory, estimate_memory
from xcbench.train.modules import ModuleConfig, official_training, scaled_training
from xcbench.train.schedules import Schedule, halving_after
from xcbench.train.tasks import (
    FreeLabels,
    LabelText,
    NeighbourText,
    RankAll,
    RankShortlist,
    Task,
    all_classifiers,
    document_side,
    encode,
    fit_bias,
    log_odds,
)

__all__ = [
    "Batch",
    "Candidates",
    "CascadePredictor",
    "FixedEncoder",
    "FreeLabels",
    "LabelText",
    "MemoryEstimate",
    "ModuleConfig",
    "NeighbourText",
    "Points",
    "RankAll",
    "RankShortlist",
    "Schedule",
    "Task",
    "TrainReport",
    "Trainable",
    "Training",
    "Work",
    "all_classifiers",
    "as_array",
    "cascade_memory",
    "document_side",
    "encode",
    "estimate_memory",
    "fit_bias",
    "folded",
    "halving_after",
    "learnable",
    "log_odds",
    "official_training",
    "resolve_device",
    "scaled_training",
    "targets_of",
    "train",
]
