"""A training step of DECAF's surrogate and extreme modules against the bare matrix products that it needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from benchmarks.figure import Figure, cpu_seconds, grown_bytes, seconds
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import SparseRows
from xcbench.nn import Adam, DocumentEncoder, Factored, GatedBlock, GatedSum, LabelBank, LabelText, TokenEmbeddings
from xcbench.nn.dropout import start_step
from xcbench.threads import set_threads
from xcbench.train import Candidates, Points, RankAll, RankShortlist, Task
from xcbench.train.memory import keep_freed_memory

B = 255
D = 300
V = 40_000
N = 4_000
ROUNDS = 6


class TextLabels(nn.Module):
    """Module I: h = E_L(E u)."""

    def __init__(self, E: TokenEmbeddings, U: sp.csr_array) -> None:
        super().__init__()
        self.text = LabelText(E, U)
        self.E_L = GatedBlock(D, 0.5)

    def forward(self, labels: None) -> tuple[Factored, None]:
        return self.E_L.factored(self.text(labels)), None


class RefinedLabels(nn.Module):
    """Module IV: w = sigmoid(alpha) z2 + sigmoid(beta) E_L(E z), and a bias."""

    def __init__(self, E: TokenEmbeddings, Z: sp.csr_array) -> None:
        super().__init__()
        L = Z.shape[0]
        self.text = LabelText(E, Z)
        self.E_L = GatedBlock(D, 0.2)
        self.C_L = GatedSum(D)
        self.z2 = LabelBank(L, D, E.embed(SparseRows.of(Z)))
        self.bias = LabelBank(L)

    def forward(self, labels: Longs | None) -> tuple[Factored, Tensor]:
        w = self.C_L(self.z2(labels), self.E_L, self.text(labels))
        return w, self.bias(labels)


def measure() -> Iterator[Figure]:
    set_threads(2)
    generator = np.random.default_rng(0)
    X = random_texts(generator, N, 8)

    task, points = surrogate(generator, X, K=8192)
    yield figure("surrogate step (B=255, K=8,192, D=300)", task, points, rows=8192)

    task, points = extreme(generator, X, L=27_000, S=200)
    shortlists = points.cut(np.arange(B)).shortlists
    assert shortlists is not None
    union = len(shortlists.labels)
    name = f"extreme step (B=255, 200 of 27,000 labels, {union:,} in a batch, D=300)"
    yield figure(name, task, points, rows=union)


def surrogate(generator: np.random.Generator, X: sp.csr_array, K: int) -> tuple[Task, Points]:
    E = TokenEmbeddings(V, D)
    documents = DocumentEncoder(GatedBlock(D, 0.5), E)
    labels = TextLabels(E, random_texts(generator, K, 16))
    return RankAll(documents, labels), Points(X, random_targets(generator, K, 3))


def extreme(generator: np.random.Generator, X: sp.csr_array, L: int, S: int) -> tuple[Task, Points]:
    E = TokenEmbeddings(V, D)
    documents = DocumentEncoder(GatedBlock(D, 0.2), E)
    labels = RefinedLabels(E, random_texts(generator, L, 8))
    candidates = Candidates.of_labels(generator.integers(0, L, (N, S)).astype(np.int32), L)
    targets = random_targets(generator, L, 2)
    return RankShortlist(documents, labels), Points(X, targets, candidates)


def random_targets(generator: np.random.Generator, labels: int, per_point: int) -> sp.csr_array:
    """So many labels per point, all equally likely."""
    count = N * per_point
    columns = generator.integers(0, labels, count)
    indptr = np.arange(0, count + 1, per_point)
    return sp.csr_array((np.ones(count, np.float32), columns, indptr), shape=(N, labels))


def random_texts(generator: np.random.Generator, rows: int, words: int) -> sp.csr_array:
    """Texts whose words follow Zipf's law."""
    count = rows * words
    columns = (generator.zipf(1.3, (rows, words)) - 1) % V
    indptr = np.arange(0, count + 1, words)
    matrix = sp.csr_array((np.ones(count, np.float32), columns.ravel(), indptr), shape=(rows, V))
    matrix.sum_duplicates()
    return matrix


def figure(what: str, task: Task, points: Points, rows: int) -> Figure:
    """Best time of a step, and of its matrix products alone. They take turns: what disturbs one disturbs the other."""
    step = training_step(task, points)
    products = matrix_products(rows)
    with keep_freed_memory():  # as in the training loop
        growth = grown_bytes(lambda: (step(), step()))
        products()
        ours, bare = best_times(seconds, step, products)
        our_cpu, bare_cpu = best_times(cpu_seconds, step, products)
        shares = time_shares(task, points)

    parameter_bytes = sum(parameter.nbytes for parameter in task.parameters())
    gigaflops = 6e-9 * D * (rows * D + B * rows + B * D)
    return Figure(
        what=what,
        ours=ours * 1e3,
        reference=bare * 1e3,
        unit="ms",
        reference_name="its matrix products alone",
        at_least=0.5,
        note=f"counting {gigaflops:.1f} GFLOP (blocks and scores, forward and back): {gigaflops / ours:.0f} against "
        f"{gigaflops / bare:.0f} GFLOP/s; {bare_cpu / our_cpu:.2f}x in CPU time; {shares}; "
        f"memory grew by {growth / 2**20:.0f} MiB, {growth / parameter_bytes:.1f}x the parameters, "
        "Adam's moments included",
    )


def best_times(
    clock: Callable[[Callable[[], object], int], float],
    step: Callable[[], None],
    products: Callable[[], None],
) -> tuple[float, float]:
    step_times = []
    product_times = []
    for _ in range(ROUNDS):
        step_times.append(clock(step, 2))
        product_times.append(clock(products, 2))
    return min(step_times), min(product_times)


def training_step(task: Task, points: Points) -> Callable[[], None]:
    """What the training loop does in a step, batch after batch."""
    optimiser = Adam(task, lr=0.01)
    steps = iter(range(10**9))
    order = np.random.default_rng(0).permutation(N)
    task.train()

    def work() -> None:
        step = next(steps)
        start_step(0, step)
        first = step * B % (N - B)
        batch = points.cut(order[first : first + B])
        loss = task.loss(batch)  # type: ignore[operator]
        loss.backward()
        optimiser.step()
        assert np.isfinite(loss.item())

    return work


def matrix_products(rows: int) -> Callable[[], None]:
    """A block on `rows` labels and on B documents, and their scores; each forward, and back to both of its factors."""
    products = [
        product_and_gradients(rows, D, D),
        product_and_gradients(B, D, D),
        product_and_gradients(B, D, rows),
    ]

    def work() -> None:
        for product in products:
            product()

    return work


def product_and_gradients(n: int, k: int, m: int) -> Callable[[], None]:
    a = torch.randn(n, k)
    b = torch.randn(k, m)
    c = torch.empty(n, m)
    da = torch.empty(n, k)
    db = torch.empty(k, m)

    def work() -> None:
        torch.mm(a, b, out=c)
        torch.mm(c, b.T, out=da)
        torch.mm(a.T, c, out=db)

    return work


def time_shares(task: Task, points: Points) -> str:
    """The shares of a step's time that go into the optimiser and into sums of token vectors."""
    optimiser = Adam(task)
    batch = points.cut(np.arange(B))
    labels = None if batch.shortlists is None else batch.shortlists.labels
    E = task.documents.E
    assert isinstance(E, TokenEmbeddings)
    text: LabelText = task.labels.text  # type: ignore[assignment]

    step_seconds = 0.0
    optimiser_seconds = 0.0
    sum_seconds = 0.0
    task.train()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        task.loss(batch).backward()  # type: ignore[operator]
        before_optimiser = time.perf_counter()
        optimiser.step()
        end = time.perf_counter()
        step_seconds += end - start
        optimiser_seconds += end - before_optimiser

        start = time.perf_counter()
        (E(batch.X).sum() + text(labels).sum()).backward()
        sum_seconds += time.perf_counter() - start
        optimiser.step()

    return f"optimiser {optimiser_seconds / step_seconds:.0%}, sums of token vectors {sum_seconds / step_seconds:.0%}"
