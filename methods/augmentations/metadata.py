"""Label text for methods that know none: every label's title becomes a training point of that label.

DECAF's Table 4 calls this "+ metadata". Its recipe is in an appendix that we do not have; this is our reading of it,
and the same as the set Z1 u D of Gandalf's Table 2. D becomes D u {(z_l, e_l)}.
"""

from __future__ import annotations

from xcbench.data import Dataset
from xcbench.plugins import Augmentation, NoConfig, Run, register_augmentation

from ._label_points import label_points, labels_with_text, self_targets, with_points


@register_augmentation("metadata")
class Metadata(Augmentation[NoConfig]):
    """Label titles as training points, each with itself as the only target (DECAF's "+ metadata")"""

    citation = "Mittal et al., DECAF: Deep Extreme Classification with Label Features, WSDM 2021, Table 4"

    def apply(self, data: Dataset, run: Run) -> Dataset:
        labels = labels_with_text(data, self.name)
        return with_points(data, label_points(data, labels, self_targets(data)))
