"""xcbench: the benchmark framework for extreme classification.

The rooms follow the data's way, and imports go only in its direction::

    data -> labels -> shortlist -> nn, train -> evaluate -> bench -> cli

Methods live in ``xcbench.methods`` (the top-level folder ``methods/``) and are found by the registry;
the core never imports one by name. ``errors``, ``files``, ``ranks`` and ``threads`` are the ground under every room.
"""

from typing import TYPE_CHECKING, Any

from xcbench import threads as _threads

if TYPE_CHECKING:
    from xcbench.data import load_dataset as load_dataset
    from xcbench.runner.store import results as results

__version__ = "0.1.0"
__all__ = ["__version__", "load_dataset", "results"]

# Must happen before torch or numba is imported anywhere: both read these variables once, at import.
_threads.tame_pools()


def __getattr__(name: str) -> Any:
    """The two verbs a notebook starts with, loaded on first use so that ``import xcbench`` stays instant."""
    if name == "load_dataset":
        from xcbench.data import load_dataset

        return load_dataset
    if name == "results":
        from xcbench.runner.store import results

        return results
    raise AttributeError(f"module 'xcbench' has no attribute {name!r}")
