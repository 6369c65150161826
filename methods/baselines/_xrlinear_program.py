"""Trains and asks PECOS' XR-Linear, in an environment of its own: matrices in and out as npz files, settings as JSON.

Run by xrlinear.py as `python _xrlinear_program.py train|predict FOLDER`. Imports nothing of xcbench, which is not
installed there, and must not, since PECOS needs another numpy.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def train(folder: Path, settings: dict[str, Any]) -> None:
    X, Y = _matrix(folder / "X.npz"), _matrix(folder / "Y.npz")
    centroids = LabelEmbeddingFactory.create(Y, X, method="pifa")
    tree = Indexer.gen(
        centroids,
        indexer_type="hierarchicalkmeans",
        nr_splits=settings["nr_splits"],
        max_leaf_size=settings["max_leaf_size"],
        seed=settings["seed"],
        threads=settings["threads"],
    )
    model = XLinearModel.train(
        X,
        Y,
        C=tree,
        Cp=settings["Cp"],
        Cn=settings["Cn"],
        threshold=settings["threshold"],
        negative_sampling_scheme=settings["negative_sampling"],
        threads=settings["threads"],
    )
    model.save(str(folder / "model"))


def predict(folder: Path, settings: dict[str, Any]) -> None:
    model = XLinearModel.load(str(folder / "model"), is_predict_only=True)
    found = model.predict(
        _matrix(folder / "X.npz"),
        beam_size=settings["beam_size"],
        only_topk=settings["k"],
        threads=settings["threads"],
    )
    sp.save_npz(folder / "found.npz", sp.csr_matrix(found, dtype=np.float32), compressed=False)


def _matrix(path: Path) -> sp.csr_matrix:
    """Sorted rows and 32-bit indices, which PECOS asks for."""
    loaded: sp.csr_matrix = sp.csr_matrix(sp.load_npz(path))
    parts = (loaded.data.astype(np.float32), loaded.indices.astype(np.int32), loaded.indptr.astype(np.int32))
    matrix = sp.csr_matrix(parts, shape=loaded.shape)
    matrix.sort_indices()
    return matrix


if __name__ == "__main__":
    work = {"train": train, "predict": predict}[sys.argv[1]]
    work(Path(sys.argv[2]), json.loads(Path(sys.argv[2], "settings.json").read_text("utf-8")))
