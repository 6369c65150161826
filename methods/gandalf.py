"""Gandalf as a method of its own (Kharbanda et al., KDD 2024): a base, trained on points and label titles together.

`--method gandalf` is `--method astec --augment gandalf`: what Gandalf adds is in `methods/augmentations/gandalf.py`.
"""

from xcbench.plugins import register_method

from .astec import Astec


@register_method("gandalf")
class Gandalf(Astec):
    """Gandalf: Astec on training points and label titles, whose soft targets are label co-occurrences"""

    augment = ("gandalf",)
    citation = (
        "Kharbanda, Gupta, Schultheis, Banerjee, Hsieh, Babbar: Gandalf: Learning label-label correlations "
        "in Extreme Multi-label Classification via Label Features, KDD 2024"
    )
