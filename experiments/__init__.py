"""One YAML file per table or figure of a paper, and the papers' own figures as tidy tables in `paper/`.

Installed as `xcbench.experiments`; `xcbench.report.experiments` reads it. `search/`, which is not installed, holds the
trials by which the methods' defaults were chosen.
"""
