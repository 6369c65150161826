"""Gandalf as a method of its own (Kharbanda et al., KDD 2024): its base, trained on points and label titles together.

`--method gandalf` is `--method inceptionxml-lf --augment gandalf`. What Gandalf adds, and adds to any other method as
well, is in `methods/augmentations/gandalf.py`.
"""

from xcbench.plugins import register_method

from .inceptionxml import InceptionXMLLF


@register_method("gandalf")
class Gandalf(InceptionXMLLF):
    """Gandalf: InceptionXML-LF on training points and label titles, whose soft targets are label co-occurrences"""

    augment = ("gandalf",)
    citation = (
        "Kharbanda, Gupta, Schultheis, Banerjee, Hsieh, Babbar: Gandalf: Learning label-label correlations "
        "in Extreme Multi-label Classification via Label Features, KDD 2024"
    )
