"""One-vs-all: an encoder and one linear classifier per label, trained against all labels at once.

It is the yardstick of ELIAS's Table 2 (there with BERT): what the same encoder reaches without any shortlist, at a cost
per step that grows with the number of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import scipy.sparse as sp
import torch

from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Floats
from xcbench.nn import FreeLabels
from xcbench.plugins import Method, Predictor, Run, SavedByArguments, StageWork, Values, register_method, stage
from xcbench.shortlist import exact_topk
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.predictors import FixedEncoder, as_array, folded
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.train import (
    Group,
    GroupedTraining,
    Points,
    RankAll,
    Schedule,
    index_memory,
    learnable,
    log_odds,
    targets_of,
    train,
)
from xcbench.train.encoders import BagConfig, bag_encoder


def _training() -> GroupedTraining:
    return GroupedTraining(
        batch_size=256,
        epochs=20,
        min_steps=1500,
        schedule=Schedule("linear", warmup=0.1),
        groups={
            "encoder": Group("documents.*", 0.005, weight_decay=0.01),
            "labels": Group("labels.*", 0.005, weight_decay=0.01),
        },
    )


@dataclass(frozen=True)
class OvaConfig:
    """Encoder and training as in ELIAS."""

    encoder: BagConfig = field(default_factory=BagConfig)
    training: GroupedTraining = field(default_factory=_training)


class OvaPredictor(SavedByArguments, Predictor):
    """score = sigmoid(<w_l, x> + b_l), with the encoder as `FixedEncoder` takes it."""

    def __init__(self, encoder: Mapping[str, Floats], W: Floats, bias: Floats) -> None:
        self.encoder = encoder
        self.W = W
        self.bias = bias

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        encoder = FixedEncoder(**self.encoder)
        return predict_in_parts(X, lambda part: _likeliest(exact_topk(encoder(part), self.W, k, self.bias)))

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> Floats:
        """The vectors that classifiers see."""
        return FixedEncoder(**self.encoder)(X)

    def to(self, device: str) -> OvaPredictor | OvaOnDevice:
        if torch.device(device).type == "cpu":
            return self
        return OvaOnDevice(self, device)


class OvaOnDevice:
    """The same on a device."""

    def __init__(self, source: OvaPredictor, device: str) -> None:
        self.encoder = FixedEncoder(**source.encoder).to(device)
        self.W = torch.from_numpy(source.W).to(device)
        self.bias = source.bias
        self.save = source.save

    def vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> Floats:
        return self.encoder(X)

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: _likeliest(exact_topk(self.encoder(part), self.W, k, self.bias)))


def _likeliest(best: TopK) -> TopK:
    """Logits as probabilities; unused places keep their -inf."""
    return TopK.of(best.indices, sigmoid(best.scores))


@stage(settings=["encoder", "training"])
def classifiers(work: StageWork[OvaConfig]) -> Values:
    """Encoder and classifiers; biases start at the log odds of a pair being true."""
    c = work.config
    L = work.data.label_count
    points = learnable(work.data.train)
    encoder = bag_encoder(c.encoder, work.data.train.X, work.seed)
    labels = FreeLabels(L, c.encoder.dim, torch.zeros(L, c.encoder.dim))
    assert labels.bias is not None
    with torch.no_grad():
        labels.bias.weight.fill_(log_odds(points.Y.nnz / max(1, len(points) * L)))

    task = RankAll(encoder, labels, "batch")
    train(task, Points(points.X, targets_of(points)), c.training, work, "classifiers")
    assert encoder.E is not None
    return {
        "encoder": folded(encoder.block) | {"E": as_array(encoder.E.weight)},
        "W": as_array(labels.weight.weight),
        "bias": as_array(labels.bias.weight),
    }


@register_method("ova")
class Ova(Method[OvaConfig]):
    """One-vs-all: an encoder and one classifier per label, trained against all labels"""

    config_type = OvaConfig
    predictor_type = OvaPredictor
    stages = (classifiers,)
    can_ignore_pairs = True
    citation = "BERT-OvA in Gupta et al., ELIAS, NeurIPS 2022"

    def fit(self, data: Dataset, run: Run) -> OvaPredictor:
        model = run.stage(classifiers, data)
        return OvaPredictor(model["encoder"], model["W"], model["bias"])

    def estimate_memory(self, data: Dataset) -> int:
        c = self.config
        return index_memory(
            data,
            c.encoder.dim,
            encoder_parameters=c.encoder.dim * (data.feature_count + c.encoder.dim),
            index_parameters=0,
            pairs=data.label_count,
            batch_size=c.training.batch_size,
        )
