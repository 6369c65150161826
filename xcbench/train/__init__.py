"""The training loop: batches, schedules, devices, processes, checkpoints; and the two tasks that methods share.

The loop knows no method: it trains any module that has a `loss(batch)`.

May import `data`, `kernels`, `nn` and `shortlist`. `runner`, `report`, `cli` and methods may import it.
"""

from xcbench.kernels.memory import MemoryEstimate
from xcbench.train.batches import Batch, Candidates, Points, cut_shortlists, learnable, learnable_rows, targets_of
from xcbench.train.devices import resolve_device
from xcbench.train.groups import Group
from xcbench.train.kept_weights import Keeping
from xcbench.train.label_shards import splits_labels
from xcbench.train.loop import GroupedTraining, Trainable, Training, TrainReport, Work, train
from xcbench.train.memory import FREE_COPIES, CascadeMemory, cascade_memory, estimate_memory, index_memory
from xcbench.train.modules import ModuleConfig, official_training, scaled_training
from xcbench.train.schedules import Schedule, halving_after
from xcbench.train.stopping import stopping_early
from xcbench.train.tasks import (
    LabelStart,
    RankAll,
    RankShortlist,
    Task,
    all_classifiers,
    document_side,
    encode,
    fit_bias,
    free_labels,
    log_odds,
)
from xcbench.train.work import (
    FREE_VECTORS,
    LabelSide,
    cost_of_ranking_all,
    cost_of_ranking_shortlists,
    vector_bytes,
)

__all__ = [
    "FREE_COPIES",
    "FREE_VECTORS",
    "Batch",
    "Candidates",
    "CascadeMemory",
    "Group",
    "GroupedTraining",
    "Keeping",
    "LabelSide",
    "LabelStart",
    "MemoryEstimate",
    "ModuleConfig",
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
    "cascade_memory",
    "cost_of_ranking_all",
    "cost_of_ranking_shortlists",
    "cut_shortlists",
    "document_side",
    "encode",
    "estimate_memory",
    "fit_bias",
    "free_labels",
    "halving_after",
    "index_memory",
    "learnable",
    "learnable_rows",
    "log_odds",
    "official_training",
    "resolve_device",
    "scaled_training",
    "splits_labels",
    "stopping_early",
    "targets_of",
    "train",
    "vector_bytes",
]
