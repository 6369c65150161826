"""One-vs-all: an encoder and one linear classifier per label, trained against all labels at once.

It is the yardstick of ELIAS's Table 2 (there with BERT): what the same encoder reaches without any shortlist, at a cost
per step that grows with the number of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import scipy.sparse as sp
import torch

from xcbench.costs import StageCost
from xcbench.data import Dataset, TopK
from xcbench.kernels.arrays import Floats
from xcbench.nn import Reduction
from xcbench.plugins import Method, Patch, Predictor, Run, SavedByArguments, StageWork, Values, register_method, stage
from xcbench.shortlist import ExactShortlister, exact_topk
from xcbench.shortlist.beam import sigmoid
from xcbench.shortlist.predictors import ExactPredictor, FixedEncoder, TitleEncoder, TitlePredictor, as_array
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.train import (
    Group,
    GroupedTraining,
    LabelStart,
    RankAll,
    Schedule,
    cost_of_ranking_all,
    free_labels,
    index_memory,
    learnable,
    train,
)
from xcbench.train.encoders import (
    TEXT_SETTINGS,
    EncoderConfig,
    check_encoder,
    encoder_of,
    parameter_count,
    points_of,
    read_texts,
    with_encoder_groups,
)


def _training(
    epochs: int = 20,
    min_steps: int = 1500,
    encoder_lr: float = 0.005,
    labels_lr: float = 0.005,
    batch_size: int = 256,
) -> GroupedTraining:
    return GroupedTraining(
        batch_size=batch_size,
        epochs=epochs,
        min_steps=min_steps,
        schedule=Schedule("linear", warmup=0.1),
        groups={
            "encoder": Group("documents.*", encoder_lr, weight_decay=0.01),
            "labels": Group("labels.*", labels_lr, weight_decay=0.01),
        },
    )


@dataclass(frozen=True)
class OvaConfig:
    """Encoder and training as in ELIAS."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    label_start: LabelStart = "zero"
    reduction: Reduction = "batch"
    """What the loss is divided by: the points of a batch, or all pairs of points and labels."""
    training: GroupedTraining = field(default_factory=lambda: _training())


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

    @classmethod
    def load(cls, folder: Path) -> OvaPredictor | TitlePredictor:  # type: ignore[override]
        """What `save` wrote, here or in a `TitlePredictor`."""
        if TitlePredictor.is_in(folder):
            return TitlePredictor.load(folder)
        return super().load(folder)

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


@stage(settings=[f"encoder.{name}" for name in TEXT_SETTINGS], seeded=False)
def texts(work: StageWork[OvaConfig]) -> Values:
    """What the encoder reads beside X: nothing, titles as words or word pieces in their order, or fixed vectors."""
    return read_texts(work.config.encoder, work.data, work.device)


@stage(settings=["encoder", "label_start", "reduction", "training"], after=[texts])
def classifiers(work: StageWork[OvaConfig]) -> Values:
    """Encoder and classifiers."""
    c = work.config
    encoder = encoder_of(c.encoder, work[texts], work.data.train)
    module = encoder.start(work.seed)
    labels = free_labels(learnable(work.data.train).Y, encoder.dim, work.data.label_count, c.label_start)
    assert labels.bias is not None
    task = RankAll(module, labels, c.reduction)
    groups = with_encoder_groups(c.training, task, c.encoder)
    train(task, points_of(encoder, work.data.train), groups, work, "classifiers")
    return {
        "encoder": encoder.state(module),
        "W": as_array(labels.weight.weight),
        "bias": as_array(labels.bias.weight),
    }


PRESETS: Mapping[str, Patch] = {
    "Amazon-670K": {
        "encoder.kind": "transformer",
        "encoder.model": "bert-base-uncased",
        "encoder.pooling": "first",
        "encoder.length": 128,
        "label_start": "random",
        "reduction": "mean",
        "training": _training(50, 0, 1e-4, 1e-2),
    },
    "anchor-minilm": {
        "encoder.kind": "transformer",
        "encoder.model": "minilm",
        "encoder.precision": "bfloat16",
        "label_start": "random",
        "reduction": "mean",
        "training": _training(10, 0, 1e-4, 1e-2, batch_size=32),
    },
}
"""The paper's settings, and those with which the authors' code was run on our data (docs/methods/elias.md)."""


@register_method("ova")
class Ova(Method[OvaConfig]):
    """One-vs-all: an encoder and one classifier per label, trained against all labels"""

    config_type = OvaConfig
    predictor_type = OvaPredictor
    stages = (texts, classifiers)
    can_ignore_pairs = True
    citation = "BERT-OvA in Gupta et al., ELIAS, NeurIPS 2022"
    presets: ClassVar[Mapping[str, Patch]] = PRESETS

    def reads_titles(self) -> bool:
        return self.config.encoder.reads_titles

    def check_data(self, data: Dataset) -> None:
        check_encoder(self.config.encoder)

    def fit(self, data: Dataset, run: Run) -> OvaPredictor | TitlePredictor:
        known = run.stage(texts, data)
        model = run.stage(classifiers, data)
        encoder = encoder_of(self.config.encoder, known, data.train)
        found = encoder.fixed(encoder.restore(model["encoder"]))
        if isinstance(found, TitleEncoder):
            return TitlePredictor(found, ExactPredictor(ExactShortlister.of(model["W"], model["bias"])))
        return OvaPredictor(vars(found), model["W"], model["bias"])

    def estimate_costs(self, data: Dataset) -> Mapping[str, StageCost] | None:
        """Not known for a transformer."""
        c = self.config
        parameters = parameter_count(c.encoder, data)
        if parameters is None:
            return None
        labels = data.label_count
        cost = cost_of_ranking_all(data, c.training, c.encoder.dim, labels, encoder_parameters=parameters)
        return {"classifiers": cost}

    def estimate_memory(self, data: Dataset) -> int | None:
        """Not known for a transformer."""
        c = self.config
        encoder_parameters = parameter_count(c.encoder, data)
        if encoder_parameters is None:
            return None
        return index_memory(
            data,
            c.encoder.dim,
            encoder_parameters,
            index_parameters=0,
            pairs=data.label_count,
            batch_size=c.training.batch_size,
        )
