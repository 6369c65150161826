"""Trains PECOS' XR-Linear and predicts with it, in an environment of its own.

Run by xrlinear.py as `python _xrlinear_program.py train|predict FOLDER`: matrices come and go as npz files, settings as
JSON. It imports nothing of xcbench, which is not installed there and needs another numpy than PECOS.
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
    X = _matrix(folder / "X.npz")
    Y = _matrix(folder / "Y.npz")
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
    scores = model.predict(
        _matrix(folder / "X.npz"),
        beam_size=settings["beam_size"],
        only_topk=settings["k"],
        threads=settings["threads"],
    )
    predictions = sp.csr_matrix(scores, dtype=np.float32)
    sp.save_npz(folder / "predictions.npz", predictions, compressed=False)


def _matrix(path: Path) -> sp.csr_matrix:
    """A stored matrix with sorted rows and 32-bit indices, which PECOS asks for."""
    stored: sp.csr_matrix = sp.csr_matrix(sp.load_npz(path))
    data = stored.data.astype(np.float32)
    indices = stored.indices.astype(np.int32)
    indptr = stored.indptr.astype(np.int32)
    matrix = sp.csr_matrix((data, indices, indptr), shape=stored.shape)
    matrix.sort_indices()
    return matrix


def main(command: str, folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    if command == "train":
        train(folder, settings)
    else:
        predict(folder, settings)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
