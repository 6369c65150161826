"""An epoch of each of DECAF's modules at the paper's settings, compared with what others noted of the authors' code.

That code does not run here. Its CPU-seconds are constants that others measured once, in a run of their own, on a
machine like ours, with K = 1,024, a beam of 50, D = 300, batches of 255 and 7,674 points with 4,341 labels (here
7,689 and 4,390): 3.5 per epoch of Module I, 3.2 of Module II, 9.5 of Module IV, and 1.07 GB.
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

B = 255
D = 300
K = 1024
BEAM = 50

AUTHORS = {"surrogate": 3.5, "shortlister": 3.2, "extreme": 9.5}
"""CPU-seconds per epoch of each module."""

AUTHORS_GB = 1.07
REFERENCE = "the authors' code, elsewhere"


def measure() -> Iterator[Figure]:
    set_threads()
    data = load_dataset("lf-debian-4k")
    with tempfile.TemporaryDirectory() as folder:
        cache = StageCache(Path(folder))
        peak = memory_growth(data, cache, "extreme", epochs=1)  # also compiles everything
        for module in AUTHORS:
            yield epoch_figure(data, cache, module)

        yield Figure(
            what="peak memory of training",
            ours=peak / 1e9,
            reference=AUTHORS_GB,
            unit="GB",
            reference_name=REFERENCE,
            at_least=1,
        )

        growth = memory_growth(data, cache, "extreme", epochs=3)  # everything is compiled and loaded by now
        yield Figure(
            what="growth in the extreme module",
            ours=growth / 1e6,
            reference=necessary_bytes(data) / 1e6,
            unit="MB",
            reference_name="parameters, Adam's state and data",
            at_least=1 / 4,
        )


def epoch_figure(data: Dataset, cache: StageCache, module: str) -> Figure:
    """The cost of one epoch: a third of the difference between five epochs and two."""
    two_epochs = training_cost(data, cache, module, epochs=2)
    five_epochs = training_cost(data, cache, module, epochs=5)
    epoch = max(five_epochs - two_epochs, 1e-9) / 3

    share = flops(data, module) / matmul_speed() / epoch
    return Figure(
        what=f"epoch of {module}",
        ours=epoch,
        reference=AUTHORS[module],
        unit="CPU s",
        reference_name=REFERENCE,
        at_least=5,
        note=f"{share:.0%} of it are matrix products at full speed",
    )


def training_cost(data: Dataset, cache: StageCache, module: str, epochs: int) -> float:
    """CPU-seconds of one module's stage, with the earlier stages computed before."""
    run, stage = prepare(data, cache, module, epochs)
    for earlier in stage.after:
        run.stage(earlier, data)
    return cpu_seconds(lambda: run.stage(stage, data), repeat=1)


def memory_growth(data: Dataset, cache: StageCache, module: str, epochs: int) -> int:
    """Bytes by which the process grows while it trains a module, and the earlier ones if they are not in the cache."""
    run, stage = prepare(data, cache, module, epochs)
    return grown_bytes(lambda: run.stage(stage, data))


def prepare(data: Dataset, cache: StageCache, module: str, epochs: int) -> tuple[RunContext, Stage]:
    """A run at the paper's settings, and its stage that trains a module. Other modules have one epoch each."""
    decaf = get_method("decaf")
    settings = dict(decaf.presets["LF-AmazonTitles-131K"])
    settings |= {"dim": D, "clusters": K, "beam": BEAM}
    lengths = {f"{other}.training.epochs": 1 for other in AUTHORS}
    lengths[f"{module}.training.epochs"] = epochs

    method = decaf(build(decaf.config_type, settings, lengths))
    run = RunContext(seed=0, device="cpu", unaugmented=data, cache=cache, owner=method)
    stages = {stage.name: stage for stage in decaf.stages}
    return run, stages[module]


def necessary_bytes(data: Dataset) -> int:
    """What training the extreme module cannot do without: parameters, Adam's two moments, points and shortlists."""
    parameters = (data.feature_count + data.label_count + 2 * D) * D
    entries = data.train.X.nnz + data.train.Y.nnz
    if data.Z is not None:
        entries += data.Z.nnz
    return 4 * (3 * parameters + 2 * entries + BEAM * len(data.train))


def flops(data: Dataset, module: str) -> float:
    """Operations of the products that an epoch cannot do without.

    These are the scores and their two gradients, and the two maps of D x D.
    """
    steps = -(-len(data.train) // B)
    if module == "extreme":
        labels = data.label_count
        scores_per_point = BEAM * data.label_count / K
    else:
        labels = min(K, data.label_count)
        scores_per_point = labels
    return steps * 6.0 * (B * scores_per_point * D + (labels + B) * D * D)


def matmul_speed(n: int = 1024) -> float:
    """Floating-point operations per CPU-second in a plain product of matrices."""
    a = torch.rand(n, n)
    b = torch.rand(n, n)
    return 2.0 * n**3 / cpu_seconds(lambda: a @ b, repeat=5)
