"""XR-Linear: PECOS' recursive linear tree ranker, what many run on a CPU today.

PECOS needs numpy below 2, so it lives in an environment of its own under XCBENCH_HOME, made on first use. We exchange
files with it (`_xrlinear_program.py`), so that each prediction takes a second or two for starting another Python.
`python -m xcbench.methods.baselines.xrlinear` makes the environment beforehand. Otherwise the first run makes it, and
its training time includes that.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.disk import locked, readable_disk_errors
from xcbench.errors import XCBenchError
from xcbench.files import home
from xcbench.plugins import (
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    all_but,
    register_method,
    settings_of,
    stage,
)
from xcbench.threads import default_threads

from ._libraries import Files, learnable_points, read_files, write_files

PECOS = "libpecos==1.2.8"
DEPENDENCIES = ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn>=1.4,<2")
"""Of PECOS' dependencies those that XR-Linear needs; torch and transformers, for other methods, would be gigabytes."""
PYTHONS = ((3, 10), (3, 12))
"""The oldest and the newest Python that PECOS has wheels for."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class XrLinearConfig:
    """PECOS' settings under its own names; the defaults are its own (1.2)."""

    nr_splits: int = 16
    max_leaf_size: int = 100
    Cp: float = 1.0
    Cn: float = 1.0
    threshold: float = 0.1
    negative_sampling: Literal["tfn", "man", "tfn+man"] = "tfn"
    beam_size: int = 10

    def __post_init__(self) -> None:
        if self.nr_splits < 2 or min(self.max_leaf_size, self.beam_size) < 1:
            raise ValueError("nr_splits is at least 2, max_leaf_size and beam_size at least 1")
        if min(self.Cp, self.Cn) <= 0 or self.threshold < 0:
            raise ValueError("Cp and Cn are positive, threshold is not negative")


@stage(settings=all_but("beam_size"))
def tree(work: StageWork[XrLinearConfig]) -> Values:
    """Train the tree in the other environment; the output is the files that PECOS writes."""
    X, Y = learnable_points(work.data)
    settings = settings_of(work.config)
    settings["seed"] = work.seed
    settings["threads"] = default_threads()
    with tempfile.TemporaryDirectory() as scratch:
        _run_program("train", Path(scratch), settings, X=X, Y=Y)
        files = read_files(Path(scratch, "model"))
    return {"files": files}


class XrLinearPredictor(SavedByArguments, Predictor):
    """A PECOS model, kept as the files that PECOS itself writes (JSON and npz)."""

    def __init__(self, files: Files, label_count: int, beam_size: int) -> None:
        self.files = files
        self.label_count = label_count
        self.beam_size = beam_size

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        if X.shape[0] == 0:
            no_labels = np.empty((0, k), np.int32)
            no_scores = np.empty((0, k), np.float32)
            return TopK(no_labels, no_scores)
        settings = {
            "beam_size": self.beam_size,
            "k": min(k, self.label_count),
            "threads": default_threads(),
        }
        with tempfile.TemporaryDirectory() as scratch:
            write_files(self.files, Path(scratch, "model"))
            _run_program("predict", Path(scratch), settings, X=X)
            shape = (X.shape[0], self.label_count)
            return TopK.load(Path(scratch, "predictions.npz"), shape, k).padded(k)


@register_method("xrlinear")
class XrLinear(Method[XrLinearConfig]):
    """XR-Linear: a recursive tree of linear rankers (PECOS, in an environment of its own)"""

    config_type = XrLinearConfig
    predictor_type = XrLinearPredictor
    stages = (tree,)
    citation = "Yu et al., PECOS: Prediction for Enormous and Correlated Output Spaces, JMLR 2022"

    @classmethod
    def unavailable(cls) -> str | None:
        if sys.platform == "linux" and PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
            return None
        supported = " to ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        return f"needs {PECOS}, which is there for Linux and Python {supported} only"

    def fit(self, data: Dataset, run: Run) -> XrLinearPredictor:
        files = run.stage(tree, data)["files"]
        return XrLinearPredictor(files, data.label_count, self.config.beam_size)


def _run_program(command: str, folder: Path, settings: Mapping[str, Any], **matrices: sp.csr_array) -> None:
    """Run `_xrlinear_program.py` in the other environment, on a folder with these settings and matrices."""
    python = environment()
    for name, matrix in matrices.items():
        sp.save_npz(folder / f"{name}.npz", matrix, compressed=False)
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    program = Path(__file__).with_name("_xrlinear_program.py")
    _run([str(python), str(program), command, str(folder)], f"PECOS could not {command}")


def environment() -> Path:
    """The Python of the environment that has PECOS; the environment is made now if it is not there yet."""
    folder = home() / "environments" / PECOS.replace("==", "-")
    python = folder / "bin" / "python"
    finished = folder / "finished"
    if finished.exists():
        return python
    reason = XrLinear.unavailable()
    if reason:
        raise XCBenchError(f"xrlinear {reason}")

    with locked(folder, f"environment {folder.name}"):
        # Another process may have made it while this one waited.
        if not finished.exists():
            _log.info("xrlinear: making an environment for %s in %s (once)", PECOS, folder)
            _make_environment(folder, python)
            finished.touch()
    return python


def _make_environment(folder: Path, python: Path) -> None:
    advice = "xrlinear could not make an environment for PECOS (is there a network?)"
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], advice)
    install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    _run([*install, *DEPENDENCIES], advice)
    _run([*install, "--no-deps", PECOS], advice)


def _run(command: list[str], advice: str) -> None:
    """Run a command. Where it fails, the error is the advice and the last line that the command wrote."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise XCBenchError(f"{advice}: {lines[-1]}") from None
    except OSError as error:
        raise XCBenchError(f"{advice}: {error}") from None


if __name__ == "__main__":
    try:
        with readable_disk_errors(home()):
            environment()
    except XCBenchError as error:
        sys.exit(f"xcbench: {error}")
