"""How much memory a training will need, and how to keep the allocator from giving it back between steps."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.func import functional_call

from xcbench.data import Dataset
from xcbench.errors import XCBenchError
from xcbench.kernels.allocations import META, MetaAllocations
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import MixedRows, SparseRows
from xcbench.kernels.memory import MemoryEstimate, binary_size, free_memory
from xcbench.nn import Adam, FreeLabels, LabelBank
from xcbench.ranks import process_count
from xcbench.train.ahead import AHEAD
from xcbench.train.batches import Batch, Points, PreparedBatch
from xcbench.train.label_shards import LabelShards
from xcbench.train.learned_index import LearnedIndex

WORKING_COPIES = 10
"""Tables of (labels of a step) x D that exist at once between forward and backward pass, as measured for DECAF."""

FREE_COPIES = 3
"""The same for classifiers that are free vectors: there are no texts, maps and gates between them and the scores."""

BYTES_PER_PAIR = 64
"""Of a point and a label that a step ranks: ids, targets, scores, and what the backward pass keeps of them."""

BATCHES_AT_ONCE = AHEAD + 2
"""Batches in main memory while a device trains: those that wait, one that is being cut, and one in use."""

# The numbers of these parameters in glibc's malloc.h, and glibc's defaults.
_M_MMAP_MAX = -4
_M_TRIM_THRESHOLD = -1
_DEFAULT_MMAP_MAX = 65536
_DEFAULT_TRIM_THRESHOLD = 128 * 1024


def estimate_memory(
    module: nn.Module,
    points: Points,
    batch_size: int,
    device: torch.device | None = None,
    shards: LabelShards | None = None,
) -> MemoryEstimate:
    """Return what training will take.

    On the CPU this is computed from shapes; one batch is cut, to see how many labels a step touches. For another device
    two steps are run on tensors that have shapes but no content, and their allocations are added up.

    Parameters
    ----------
    module
        The module to train.
    points
        What it is trained on.
    batch_size
        Points per step.
    device
        Where training runs; by default on the CPU.
    shards
        How labels are split over processes, if they are. The module then has the rows of this process's labels.
    """
    rows = np.arange(min(batch_size, len(points)))
    prepared = _prepare(points, rows, shards)
    if device is None or device.type == "cpu":
        data = {"data": _bytes_of_points(points)}
        return MemoryEstimate(_parts_from_shapes(module, prepared) | data)

    try:
        parts = _measured_parts(module, points, rows, shards)
    except (RuntimeError, TypeError):  # a loss that looks at values, of which there are none
        parts = _parts_from_shapes(module, prepared) | {"tables": _bytes_of_dense(points)}

    parts["parameters"] -= _bytes_of_tensors(module, device)  # those that are there from an earlier training
    batches = BATCHES_AT_ONCE * _bytes_of_batch(prepared)
    if device.type == "cuda":
        batches *= 2  # and once more in page-locked memory
    return MemoryEstimate({"data": _bytes_of_points(points), "batches": batches}, str(device), parts)


def _parts_from_shapes(module: nn.Module, prepared: PreparedBatch) -> dict[str, int]:
    batch = prepared.finish(torch.device("cpu"))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    sparse = _with_sparse_gradients(module, batch)
    # A cluster's row of edges is no vector: a cluster may have many more edges than a vector has numbers.
    edges = {id(part.edges) for part in module.modules() if isinstance(part, LearnedIndex) and part.beta is not None}
    tables = [parameter for parameter in trained if parameter.ndim == 2 and id(parameter) not in edges]
    dim = max((parameter.shape[-1] for parameter in tables), default=1)
    return {
        "parameters": _bytes_of_tensors(module),
        "Adam": 2 * sum(parameter.nbytes for parameter in trained),
        "gradients": sum(parameter.nbytes for parameter in trained if id(parameter) not in sparse),
        "a step": 4 * working_copies(module) * dim * (_label_count(batch) + len(batch.rows)),
    }


def working_copies(module: nn.Module) -> int:
    """Return how many tables of (labels of a step) x D exist at once between forward and backward pass."""
    if any(isinstance(part, FreeLabels) for part in module.modules()):
        return FREE_COPIES
    return WORKING_COPIES


def _measured_parts(
    module: nn.Module,
    points: Points,
    rows: Longs,
    shards: LabelShards | None,
) -> dict[str, int]:
    """Return what two steps allocate. The parts add up to the most that lives at a time.

    In the second step, everything is there that stays: gradients that are kept, and constant tables on the device.
    """
    steps = _MetaSteps(module.train(), points, rows, shards)
    state: dict[str, Tensor] = {}
    with MetaAllocations() as allocations:
        for name, parameter in steps.named_parameters():
            state[name] = nn.Parameter(parameter.detach().to(META), parameter.requires_grad)
        for name, buffer in steps.named_buffers():
            state[name] = buffer.to(META)
        # When the call ends, the module has its own tensors again. `tie_weights` would lose those of a part that is in
        # two places, such as token embeddings.
        parts: dict[str, int] = functional_call(steps, state, (allocations,), tie_weights=False)
    return parts


class _MetaSteps(nn.Module):
    """Two steps of a training as a module: so `functional_call` can run them with other tensors than its own."""

    def __init__(self, module: nn.Module, points: Points, rows: Longs, shards: LabelShards | None) -> None:
        super().__init__()
        self.module = module
        self.points = points
        self.rows = rows
        self.shards = shards

    def forward(self, allocations: MetaAllocations) -> dict[str, int]:
        """Return the parts of the memory that the steps took."""
        parameters = allocations.living
        optimiser = Adam(self.module)
        moments = allocations.living - parameters
        for _ in range(2):
            self._step(optimiser)
        tables = allocations.living - parameters - moments
        return {
            "parameters": parameters,
            "Adam": moments,
            "tables": tables,
            "a step": allocations.peak - allocations.living,
        }

    def _step(self, optimiser: Adam) -> None:
        rows = self.rows.copy()  # whose copy on the device goes with the batch
        batch = _prepare(self.points, rows, self.shards).finish(META)
        loss: Tensor = self.module.loss(batch)  # type: ignore[operator]
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _prepare(points: Points, rows: Longs, shards: LabelShards | None) -> PreparedBatch:
    """Return a batch, or this process's share of it."""
    if shards is None:
        return points.prepare(rows)
    return shards.prepare(points, rows, key=0)


def _with_sparse_gradients(module: nn.Module, batch: Batch) -> set[int]:
    """Return the ids of the tables of which a step touches only some rows: label banks, if there are shortlists."""
    if batch.shortlists is None:
        return set()
    return {id(part.weight) for part in module.modules() if isinstance(part, LabelBank)}


def _label_count(batch: Batch) -> int:
    if batch.shortlists is None:
        return batch.targets.width
    return len(batch.shortlists.labels)


def _bytes_of_tensors(module: nn.Module, device: torch.device | None = None) -> int:
    """Return the bytes of parameters and buffers, of all or of those on a device."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.nbytes for tensor in tensors if device in (None, tensor.device))


def _bytes_of_dense(points: Points) -> int:
    """Return the bytes of dense features, which move to the device as a whole."""
    if isinstance(points.X, torch.Tensor):
        return points.X.nbytes
    return 0


def _bytes_of_batch(batch: PreparedBatch) -> int:
    total = batch.rows.nbytes + _bytes_of(batch.targets)
    if batch.X is not None:
        total += _bytes_of(batch.X)
    if batch.shortlists is not None:
        total += batch.shortlists.labels.nbytes + _bytes_of(batch.shortlists.entries)
    return total


def _bytes_of_points(points: Points) -> int:
    total = _bytes_of(points.X) + _bytes_of(points.targets)
    if points.candidates is not None:
        total += points.candidates.groups.nbytes
    return total


def _bytes_of(part: SparseRows | MixedRows | torch.Tensor | sp.csr_array) -> int:
    if isinstance(part, torch.Tensor):
        return part.nbytes
    if isinstance(part, MixedRows):
        return _bytes_of(part.first) + _bytes_of(part.second)
    return int(part.indptr.nbytes + part.indices.nbytes + part.data.nbytes)


def distinct_labels(labels: int, candidates: int, batch: int) -> float:
    """Return how many labels a batch has among its candidates, if all labels are equally frequent there.

    They are not, so there are fewer: time and memory are rather estimated too high than too low.
    """
    missed_by_all = (1 - candidates / labels) ** batch
    return labels * (1.0 - missed_by_all)


class CascadeMemory(NamedTuple):
    """Bytes that a training adds at its peak."""

    total: int  # in main memory if it trains on the CPU
    on_device: int  # what of it is on a device if it trains there


def cascade_memory(
    data: Dataset,
    dim: int,
    clusters: int,
    candidates: int,
    listed: int,
    batch_size: int,
    frozen: bool = False,
    copies: int = WORKING_COPIES,
) -> CascadeMemory:
    """Return what training a method like DECAF adds at its peak, from shapes alone, before there is a module.

    Modules I and II rank all clusters. The last module ranks the union of the shortlists of a batch. What is learnt
    counts four times: itself, its gradient and two moments. Free vectors of labels count three times, since few of them
    have a gradient. Under `torchrun` each process has its share of the labels.

    Parameters
    ----------
    data
        The dataset.
    dim
        D, the length of a vector.
    clusters
        The number of clusters.
    candidates
        Candidates per point in the last module.
    listed
        Numbers per point that are stored to list these candidates.
    batch_size
        Points per step.
    frozen
        Whether token embeddings stay fixed after Module I.
    copies
        Tables of (labels of a step) x D that exist at once; `FREE_COPIES` where all classifiers are free vectors.
    """
    N = len(data.train)
    L = data.label_count
    batch = min(batch_size, N)
    vector = 4 * dim
    work_per_row = copies * vector

    E = vector * data.feature_count
    E_in_training = E if frozen else 4 * E
    own_clusters = -(-clusters // process_count())
    own_labels = -(-L // process_count())
    rows_of_clusters = own_clusters + batch
    rows_of_labels = int(distinct_labels(own_labels, min(candidates, own_labels), batch)) + batch

    first_module = 4 * E + work_per_row * rows_of_clusters
    second_module = E_in_training + 4 * vector * own_clusters + work_per_row * rows_of_clusters
    last_module = E_in_training + 3 * vector * own_labels + work_per_row * rows_of_labels
    training = max(first_module, second_module, last_module)

    outputs = 3 * E + vector * (clusters + L)  # what earlier stages leave behind, and the final classifiers
    sparse_data = _bytes_of(data.train.X) + _bytes_of(data.train.Y)
    dense_points = 2 * vector * N  # E x, and encoded
    candidates_of_points = 4 * N * listed
    total = training + outputs + sparse_data + dense_points + candidates_of_points

    features_on_device = vector * N if frozen else 0
    return CascadeMemory(total, training + features_on_device)


def index_memory(
    data: Dataset,
    dim: int,
    encoder_parameters: int,
    index_parameters: int,
    pairs: int,
    batch_size: int,
) -> int:
    """Return what training an encoder with classifiers of clusters and labels adds at its peak, from shapes alone.

    As in `cascade_memory`, what is learnt counts four times: itself, its gradient and two moments.

    Parameters
    ----------
    data
        The dataset.
    dim
        D, the length of a vector.
    encoder_parameters
        The number of parameters of the encoder.
    index_parameters
        The number of parameters of clusters and edges; 0 where all labels are ranked.
    pairs
        How many labels are ranked per point.
    batch_size
        Points per step.
    """
    L = data.label_count
    batch = min(batch_size, len(data.train))
    vector = 4 * dim
    learnt = 4 * (encoder_parameters + index_parameters) + vector * L
    step = FREE_COPIES * vector * (min(L, batch * pairs) + batch) + BYTES_PER_PAIR * batch * pairs
    outputs = 3 * learnt
    sparse_data = _bytes_of(data.train.X) + _bytes_of(data.train.Y)
    dense_points = vector * len(data.train)
    return 4 * learnt + step + outputs + sparse_data + dense_points


def check_fits(estimate: MemoryEstimate, name: str, device: torch.device) -> None:
    """Raise an error if a training needs more memory than is free, on its device or in main memory.

    Its data is in main memory already.
    """
    _check_free(estimate.in_main_memory - estimate["data"], "cpu", estimate, name)
    _check_free(estimate.on_device, str(device), estimate, name)


def _check_free(needed: int, device: str, estimate: MemoryEstimate, name: str) -> None:
    free = free_memory(device)
    if needed > free:
        raise XCBenchError(
            f"{name} needs about {binary_size(needed)} more memory on {device}, "
            f"and {binary_size(free)} are free: {estimate}; "
            f"a smaller dimension or batch needs less"
        )


@contextlib.contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Make glibc keep freed blocks for the next step instead of returning them to the system.

    A fresh block of some megabytes costs a page fault per 4 kB, which takes longer than the arithmetic that fills it.
    """
    libc = _glibc()
    if libc is None:
        yield
        return

    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        libc.mallopt(_M_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        return libc
    return None
