"""A shortlister as a handful of byte arrays: what a stage keeps of one, whichever kind it is."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xcbench.shortlist.contract import Shortlister
from xcbench.shortlist.load import load_shortlister

Packed = Mapping[str, npt.NDArray[np.uint8]]


def pack(shortlister: Shortlister) -> Packed:
    """The files that `save` writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        shortlister.save(Path(folder) / "saved")
        files = sorted((Path(folder) / "saved").iterdir())
        return {file.name: np.frombuffer(file.read_bytes(), np.uint8) for file in files}


def unpack(packed: Packed) -> Shortlister:
    """The shortlister that was packed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in packed.items():
            (Path(folder) / Path(name).name).write_bytes(content.tobytes())
        return load_shortlister(Path(folder))
