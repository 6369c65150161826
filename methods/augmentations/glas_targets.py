"""GLaS' symmetric targets in the place of Gandalf's: what Gandalf's Table 2 compares its conditional targets with.

S = (R + R^T) / 2 with R_ij = P(i | j) = C_ij / C_jj, and the targets are sigmoid(S). The sigmoid of 0 is one half, so
targets are kept where S is above delta only; the paper does not say. A label's own target becomes sigmoid(1) = 0.73.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit

from xcbench.data import Dataset
from xcbench.labels.graph import conditional_probabilities
from xcbench.plugins import Augmentation, Run, register_augmentation

from ._label_points import label_points, labels_with_text, with_points


@dataclass(frozen=True)
class GlasConfig:
    """The threshold is Gandalf's."""

    delta: float = 0.1
    """Only pairs with a greater S have a target."""

    def __post_init__(self) -> None:
        if self.delta < 0:
            raise ValueError(f"delta is not negative, got {self.delta}")


def glas_targets(Y: sp.csr_array, label_frequency: npt.NDArray[np.integer], delta: float) -> sp.csr_array:
    """sigmoid(S) [L, L] where S is above delta."""
    # S_ij is above delta only if one of its halves is: so C is needed only where P(i | j) or P(j | i) is above.
    P = conditional_probabilities(Y, delta)
    frequency = np.maximum(label_frequency, 1.0)
    C = sp.diags_array(frequency, format="csr") @ P
    C = C.maximum(C.T).tocsr()

    inverse = sp.diags_array(1 / frequency, format="csr")
    S = ((inverse @ C + C @ inverse) / 2).tocsr()
    S.data[S.data <= delta] = 0
    # A label without points, and every label where delta is 1 or more, still is its own target.
    S.setdiag(1)
    S.eliminate_zeros()
    S.data = expit(S.data)
    targets: sp.csr_array = sp.csr_array(S, dtype=np.float32)
    targets.sort_indices()
    return targets


@register_augmentation("glas-targets")
class GlasTargets(Augmentation[GlasConfig]):
    """Label titles as training points with GLaS' symmetrised co-occurrences as soft targets"""

    config_type = GlasConfig
    citation = "Guo et al., Breaking the Glass Ceiling for Embedding-Based Classifiers for Large Output Spaces, 2019"

    def apply(self, data: Dataset, run: Run) -> Dataset:
        original = run.unaugmented
        labels = labels_with_text(original, self.name)
        targets = glas_targets(original.train.Y, original.label_frequency, self.config.delta)
        return with_points(data, label_points(original, labels, targets))
