"""A shortlister of any kind as byte arrays, which is how a stage stores it."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xcbench.shortlist.contract import Shortlister
from xcbench.shortlist.load import load_shortlister

Packed = Mapping[str, npt.NDArray[np.uint8]]


def pack(shortlister: Shortlister) -> Packed:
    """Return the files that `save` writes, by name. They are mapped, not read: a large one is in memory once."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "saved"
        shortlister.save(saved)
        files = sorted(saved.iterdir())
        # A mapped file stays readable after its folder is gone.
        return {file.name: np.memmap(file, np.uint8, "r").view(np.ndarray) for file in files}


def unpack(packed: Packed) -> Shortlister:
    """Return the shortlister that was packed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in packed.items():
            (folder / Path(file).name).write_bytes(np.ascontiguousarray(content).data)
        return load_shortlister(folder)
