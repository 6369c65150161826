"""Reads a saved shortlister of any kind."""

import json
from pathlib import Path

from xcbench.errors import DataError, unknown_name
from xcbench.shortlist.beam import BeamShortlister
from xcbench.shortlist.contract import Shortlister
from xcbench.shortlist.exact import ExactShortlister
from xcbench.shortlist.hnsw import HNSWShortlister
from xcbench.shortlist.index import IndexShortlister
from xcbench.shortlist.tree import TreeShortlister


def load_shortlister(folder: Path) -> Shortlister:
    """Return the shortlister that was saved to a folder, whichever kind it is.

    Parameters
    ----------
    folder
        The folder that was given to the shortlister's `save`. Raises `DataError` where there is none in it.
    """
    try:
        kind = json.loads((folder / "shortlister.json").read_text("utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError("expected a saved shortlister", folder) from None

    match kind:
        case "exact":
            return ExactShortlister.load(folder)
        case "beam":
            return BeamShortlister.load(folder)
        case "hnsw":
            return HNSWShortlister.load(folder)
        case "index":
            return IndexShortlister.load(folder)
        case "tree":
            return TreeShortlister.load(folder)
    raise unknown_name("kind of shortlister", str(kind), ["beam", "exact", "hnsw", "index", "tree"])
