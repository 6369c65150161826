"""Bonsai: shallow, wide label trees from plain k-means, a linear SVM at every node, by omikuji."""

from dataclasses import dataclass

import omikuji  # noqa: F401  # tells the registry what this method needs

from xcbench.plugins import register_method

from ._omikuji_forest import Forest, ForestConfig


@dataclass(frozen=True)
class BonsaiConfig(ForestConfig):
    """What omikuji's README documents as Bonsai, which it reproduces within 0.2 of the paper's precision."""

    max_depth: int = 3
    cluster_k: int = 100
    cluster_balanced: bool = False


@register_method("bonsai")
class Bonsai(Forest):
    """Bonsai: shallow, wide k-means label trees of linear SVMs (omikuji)"""

    config_type = BonsaiConfig
    citation = "Khandagale et al., Bonsai: Diverse and Shallow Trees for Extreme Multi-label Classification, ML 2020"
