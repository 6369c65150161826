"""An epoch of each of DECAF's modules at the paper's settings, beside what others noted of the authors' code.

That code does not run here: its CPU-seconds are constants that others measured once, in a run of their own, on a
machine like ours, with K = 1,024, a beam of 50, D = 300, batches of 255 and 7,674 points with 4,341 labels (here
7,689 and 4,390): 3.5 an epoch of Module I, 3.2 of Module II, 9.5 of Module IV, and 1.07 GB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figure import Figure, cpu_seconds, grown_bytes
from xcbench.data import Dataset, load_dataset
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import Stage
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.threads import set_threads

B, D, K, BEAM = 255, 300, 1024, 50
AUTHORS = {"surrogate": 3.5, "shortlister": 3.2, "extreme": 9.5}
AUTHORS_GB = 1.07


def measure() -> Iterator[Figure]:
    set_threads()
    data = load_dataset("lf-debian-4k")
    with tempfile.TemporaryDirectory() as folder:
        cache = StageCache(Path(folder))
        grown = grown_bytes(lambda: staged(data, cache, "extreme", 1).read())  # compiles everything on the way
        for module, authors in AUTHORS.items():
            short, long = (cost(data, cache, module, epochs) for epochs in (2, 5))
            ours = max(long - short, 1e-9) / 3
            share = flops(data, module) / matmul_speed() / ours
            note = f"{share:.0%} of it are matrix products at full speed"
            yield Figure(f"epoch of {module}", ours, authors, "CPU s", "the authors' code, elsewhere", 5, note)
        yield Figure("peak memory of training", grown / 1e9, AUTHORS_GB, "GB", "the authors' code, elsewhere", 1)
        grown = grown_bytes(lambda: staged(data, cache, "extreme", 3).read())  # all is compiled and loaded by now
        name = "parameters, Adam's state and data"
        yield Figure("growth in the extreme module", grown / 1e6, held_bytes(data) / 1e6, "MB", name, 1 / 4)


def staged(data: Dataset, cache: StageCache, module: str, epochs: int) -> Stage:
    """The stage that trains a module at the paper's settings, after others of one epoch."""
    method = get_method("decaf")
    paper = dict(method.presets["LF-AmazonTitles-131K"]) | {"dim": D, "clusters": K, "beam": BEAM}
    lengths = {f"{m}.training.epochs": epochs if m == module else 1 for m in AUTHORS}
    plugin = method(build(method.config_type, paper, lengths))
    return plugin.stages(data, RunContext(0, "cpu", data, cache, plugin))[module]


def cost(data: Dataset, cache: StageCache, module: str, epochs: int) -> float:
    stage = staged(data, cache, module, epochs)
    for earlier in stage.after:
        earlier.read()
    return cpu_seconds(stage.read, repeat=1)


def held_bytes(data: Dataset) -> int:
    """What training the extreme module cannot do without: parameters and Adam's two moments, points and shortlists."""
    parameters = (data.feature_count + data.label_count + 2 * D) * D
    entries = data.train.X.nnz + data.train.Y.nnz + (0 if data.Z is None else data.Z.nnz)
    return 4 * (3 * parameters + 2 * entries + BEAM * len(data.train))


def flops(data: Dataset, module: str) -> float:
    """Of the products that an epoch cannot do without: scores and their two gradients, and the two maps of D x D."""
    steps = -(-len(data.train) // B)
    labels = min(K, data.label_count) if module != "extreme" else data.label_count
    scores = labels if module != "extreme" else BEAM * data.label_count / K
    return steps * 6.0 * (B * scores * D + (labels + B) * D * D)


def matmul_speed(n: int = 1024) -> float:
    """Floating-point operations a CPU-second in a plain product of matrices."""
    a, b = torch.rand(n, n), torch.rand(n, n)
    return 2.0 * n**3 / cpu_seconds(lambda: a @ b, repeat=5)
