"""Parabel: three balanced binary label trees with a linear SVM at every node, by omikuji."""

import omikuji  # noqa: F401  # tells the registry what this method needs

from xcbench.plugins import register_method

from ._omikuji_forest import Forest, ForestConfig


@register_method("parabel")
class Parabel(Forest):
    """Parabel: three balanced binary label trees of linear SVMs (omikuji)"""

    config_type = ForestConfig
    citation = "Prabhu et al., Parabel: Partitioned Label Trees for Extreme Classification, WWW 2018"
