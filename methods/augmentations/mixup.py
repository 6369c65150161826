"""MixUp (Zhang et al., 2018) of training points, and of training points with label titles.

w x_i + (1 - w) x_j with the targets w y_i + (1 - w) y_j, drawn anew whenever a batch is cut. A bag of tokens is
embedded by a weighted sum, so mixing rows of X is mixing embeddings.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from xcbench.data import Dataset
from xcbench.data.dataset import Mixing
from xcbench.plugins import Augmentation, Run, register_augmentation

from ._label_points import label_points, labels_with_text, self_targets, with_points


@dataclass(frozen=True)
class MixupConfig:
    """Gandalf's Table 6 does not say which alpha it has; 0.2 is the first choice of MixUp's authors."""

    alpha: float = 0.2
    """The weight of the point itself is max(w, 1 - w) with w from Beta(alpha, alpha)."""
    weight: float | None = None
    """A fixed weight in the place of a drawn one; 1 mixes nothing."""

    def __post_init__(self) -> None:
        Mixing(alpha=self.alpha, weight=self.weight)


@register_augmentation("mixup")
class Mixup(Augmentation[MixupConfig]):
    """MixUp: every training point is mixed with another one, features and targets alike"""

    config_type = MixupConfig
    mixes_points = True
    citation = "Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018"

    def apply(self, data: Dataset, run: Run) -> Dataset:
        mixing = Mixing("points", self.config.alpha, self.config.weight)
        return dataclasses.replace(data, train=dataclasses.replace(data.train, mixing=mixing))


@register_augmentation("label-mixup")
class LabelMixup(Augmentation[MixupConfig]):
    """MixUp of training points with label titles, which have themselves as their only target"""

    config_type = MixupConfig
    mixes_points = True
    citation = Mixup.citation

    def apply(self, data: Dataset, run: Run) -> Dataset:
        if data.train.label_of is None:
            labels = labels_with_text(data, self.name)
            data = with_points(data, label_points(data, labels, self_targets(data)))
        mixing = Mixing("labels", self.config.alpha, self.config.weight)
        return dataclasses.replace(data, train=dataclasses.replace(data.train, mixing=mixing))
