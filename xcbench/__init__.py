"""xcbench: the benchmark framework for extreme classification.

Imports go one way through the rooms, in the direction of the data::

    data, kernels -> labels, nn -> shortlist -> train -> evaluation -> plugins -> runner -> report -> cli

- ``data``: datasets, file formats, text features.
- ``kernels``: compiled loops over sparse matrices.
- ``labels``: label graphs, clusters, label statistics.
- ``nn``: torch modules and the optimiser.
- ``shortlist``: candidate labels per point, and predictors that score them.
- ``train``: the training loop.
- ``evaluation``: metrics, intervals, paired tests.
- ``plugins``: what the author of a method imports.
- ``runner``: runs, stage cache, run store, launchers.
- ``report``: tables, claims, figures.
- ``cli``: the command line.

Methods live in ``xcbench.methods`` (the top-level folder ``methods/``) and are found by the registry; the core never
imports one by name. ``defaults``, ``disk``, ``errors``, ``files``, ``progress``, ``ranks``, ``signals`` and ``threads``
are the ground: every room may import them, and they import no room.
"""

from typing import TYPE_CHECKING, Any

from xcbench import threads as _threads

if TYPE_CHECKING:
    from xcbench.data import load_dataset as load_dataset
    from xcbench.runner.store import results as results

__version__ = "0.1.0"
__all__ = ["__version__", "load_dataset", "results"]

# Must happen before torch or numba is imported anywhere: both read these variables once, at import.
_threads.configure_pools()


def __getattr__(name: str) -> Any:
    """Load `load_dataset` and `results` on first use, so that ``import xcbench`` stays instant."""
    if name == "load_dataset":
        from xcbench.data import load_dataset

        return load_dataset

    if name == "results":
        from xcbench.runner.store import results

        return results

    raise AttributeError(f"module 'xcbench' has no attribute {name!r}")
