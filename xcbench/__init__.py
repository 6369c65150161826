"""xcbench: the benchmark framework for extreme classification.

Imports go one way through the rooms, in the direction of the data::

    data, kernels -> labels, nn -> shortlist -> train -> evaluation -> plugins -> runner -> report, api -> cli

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
- ``api``: what Python programs call, exported here.
- ``cli``: the command line.

Methods live in ``xcbench.methods`` (the top-level folder ``methods/``) and are found by the registry; the core never
imports one by name. ``defaults``, ``disk``, ``errors``, ``files``, ``progress``, ``ranks``, ``signals`` and ``threads``
are the ground: every room may import them, and they import no room.
"""

import importlib
from typing import TYPE_CHECKING, Any

from xcbench import threads as _threads

if TYPE_CHECKING:
    from xcbench.api.estimator import XCClassifier as XCClassifier
    from xcbench.api.evaluating import evaluate as evaluate
    from xcbench.api.fitting import fit as fit
    from xcbench.api.runs import load_run as load_run
    from xcbench.api.runs import run as run
    from xcbench.data import load_dataset as load_dataset
    from xcbench.runner.store import results as results

__version__ = "0.1.0"

_EXPORTS = {
    "XCClassifier": "xcbench.api.estimator",
    "evaluate": "xcbench.api.evaluating",
    "fit": "xcbench.api.fitting",
    "load_dataset": "xcbench.data",
    "load_run": "xcbench.api.runs",
    "results": "xcbench.runner.store",
    "run": "xcbench.api.runs",
}
"""What programs call, and the module of each."""

__all__ = ["XCClassifier", "__version__", "evaluate", "fit", "load_dataset", "load_run", "results", "run"]

# Must happen before torch or numba is imported anywhere: both read these variables once, at import.
_threads.configure_pools()


def __getattr__(name: str) -> Any:
    """Load what is exported on first use, so that ``import xcbench`` stays instant."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'xcbench' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    """Return what programs call; the rooms below are for those who extend it."""
    return sorted(__all__)
