"""A training step of DECAF's surrogate and extreme modules against the bare matrix products it cannot do without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from benchmarks.figure import Figure, cpu_seconds, grown_bytes, seconds
from xcbench.kernels.sparse_rows import SparseRows
from xcbench.nn import Adam, DocumentEncoder, Factored, GatedBlock, GatedSum, LabelBank, LabelText, TokenEmbeddings
from xcbench.nn.dropout import start_step
from xcbench.threads import set_threads
from xcbench.train import Candidates, Points, RankAll, RankShortlist, Task
from xcbench.train.memory import freed_memory_kept

B, D, V, N = 255, 300, 40_000, 4_000
ROUNDS = 6


class TextLabels(nn.Module):
    """Module I: h = E_L(E u)."""

    def __init__(self, E: TokenEmbeddings, U: sp.csr_array) -> None:
        super().__init__()
        self.text, self.E_L = LabelText(E, U), GatedBlock(D, 0.5)

    def forward(self, labels: None) -> tuple[Factored, None]:
        return self.E_L.factored(self.text(labels)), None


class RefinedLabels(nn.Module):
    """Module IV: w = sigmoid(alpha) z2 + sigmoid(beta) E_L(E z), and a bias."""

    def __init__(self, E: TokenEmbeddings, Z: sp.csr_array) -> None:
        super().__init__()
        self.text, self.E_L, self.C_L = LabelText(E, Z), GatedBlock(D, 0.2), GatedSum(D)
        self.z2, self.bias = LabelBank(Z.shape[0], D, E.embed(SparseRows.of(Z))), LabelBank(Z.shape[0])

    def forward(self, labels: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> tuple[Factored, Tensor]:
        return self.C_L(self.z2(labels), self.E_L, self.text(labels)), self.bias(labels)


def measure() -> Iterator[Figure]:
    set_threads(2)
    rng = np.random.default_rng(0)
    X = texts(rng, N, 8)
    yield figure("surrogate step (B=255, K=8,192, D=300)", surrogate(rng, X, K=8192), rows=8192)
    task, points = extreme(rng, X, L=27_000, S=200)
    shortlists = points.cut(np.arange(B)).shortlists
    assert shortlists is not None
    union = len(shortlists.labels)
    yield figure(f"extreme step (B=255, 200 of 27,000 labels, {union:,} in a batch, D=300)", (task, points), union)


def surrogate(rng: np.random.Generator, X: sp.csr_array, K: int) -> tuple[Task, Points]:
    E = TokenEmbeddings(V, D)
    task = RankAll(DocumentEncoder(GatedBlock(D, 0.5), E), TextLabels(E, texts(rng, K, 16)))
    return task, Points(X, targets(rng, K, 3))


def extreme(rng: np.random.Generator, X: sp.csr_array, L: int, S: int) -> tuple[Task, Points]:
    E = TokenEmbeddings(V, D)
    task = RankShortlist(DocumentEncoder(GatedBlock(D, 0.2), E), RefinedLabels(E, texts(rng, L, 8)))
    candidates = Candidates.of_labels(rng.integers(0, L, (N, S)).astype(np.int32), L)
    return task, Points(X, targets(rng, L, 2), candidates)


def targets(rng: np.random.Generator, labels: int, of_a_point: int) -> sp.csr_array:
    ones = np.ones(N * of_a_point, np.float32)
    starts = np.arange(0, N * of_a_point + 1, of_a_point)
    return sp.csr_array((ones, rng.integers(0, labels, N * of_a_point), starts), shape=(N, labels))


def texts(rng: np.random.Generator, rows: int, words: int) -> sp.csr_array:
    """Texts whose words follow Zipf's law."""
    columns = (rng.zipf(1.3, (rows, words)) - 1) % V
    starts = np.arange(0, rows * words + 1, words)
    matrix = sp.csr_array((np.ones(rows * words, np.float32), columns.ravel(), starts), shape=(rows, V))
    matrix.sum_duplicates()
    return matrix


def figure(what: str, problem: tuple[Task, Points], rows: int) -> Figure:
    """Best time of a step, and of its matrix products alone, in turn: whatever disturbs one disturbs the other."""
    step, products = training_step(*problem), matrix_products(rows)
    with freed_memory_kept():  # as the training loop has it
        grown = grown_bytes(lambda: (step(), step()))
        products()
        wall = [(seconds(step, 2), seconds(products, 2)) for _ in range(ROUNDS)]
        cpu = [(cpu_seconds(step, 2), cpu_seconds(products, 2)) for _ in range(ROUNDS)]
        parts = shares(*problem)
    (ours, bare), (our_cpu, bare_cpu) = (map(min, zip(*times, strict=True)) for times in (wall, cpu))
    weights = sum(p.nbytes for p in problem[0].parameters())
    gigaflops = 6e-9 * D * (rows * D + B * rows + B * D)
    note = (
        f"counting {gigaflops:.1f} GFLOP (blocks and scores, forward and back): {gigaflops / ours:.0f} against "
        f"{gigaflops / bare:.0f} GFLOP/s; {bare_cpu / our_cpu:.2f}x in CPU time; {parts}; "
        f"memory grew by {grown / 2**20:.0f} MiB, {grown / weights:.1f}x the parameters, Adam's moments included"
    )
    return Figure(what, ours * 1e3, bare * 1e3, "ms", "its matrix products alone", at_least=0.5, note=note)


def training_step(task: Task, points: Points) -> Callable[[], None]:
    """What the training loop does in a step, batch after batch."""
    optimiser, number = Adam(task, lr=0.01), iter(range(10**9))
    order = np.random.default_rng(0).permutation(N)
    task.train()

    def work() -> None:
        step = next(number)
        start_step(0, step)
        first = step * B % (N - B)
        loss = task.loss(points.cut(order[first : first + B]))  # type: ignore[operator]
        loss.backward()
        optimiser.step()
        assert np.isfinite(loss.item())

    return work


def matrix_products(rows: int) -> Callable[[], None]:
    """A block on `rows` labels and on B documents, and their scores; each forward, and back to both of its factors."""
    chains = [product_and_gradients(rows, D, D), product_and_gradients(B, D, D), product_and_gradients(B, D, rows)]

    def work() -> None:
        for chain in chains:
            chain()

    return work


def product_and_gradients(n: int, k: int, m: int) -> Callable[[], None]:
    a, b, c = torch.randn(n, k), torch.randn(k, m), torch.empty(n, m)
    da, db = torch.empty(n, k), torch.empty(k, m)

    def work() -> None:
        torch.mm(a, b, out=c)
        torch.mm(c, b.T, out=da)
        torch.mm(a.T, c, out=db)

    return work


def shares(task: Task, points: Points) -> str:
    """What the optimiser and the sums of token vectors take of a step, which is none of the products' time."""
    optimiser, batch = Adam(task), points.cut(np.arange(B))
    E = task.documents.E
    assert isinstance(E, TokenEmbeddings)
    labels = None if batch.shortlists is None else batch.shortlists.labels
    text: LabelText = task.labels.text  # type: ignore[assignment]
    parts = {"step": 0.0, "optimiser": 0.0, "sums of token vectors": 0.0}
    task.train()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        task.loss(batch).backward()  # type: ignore[operator]
        middle = time.perf_counter()
        optimiser.step()
        end = time.perf_counter()
        (E(batch.X).sum() + text(labels).sum()).backward()
        parts["sums of token vectors"] += time.perf_counter() - end
        optimiser.step()
        parts["optimiser"] += end - middle
        parts["step"] += end - start
    step = parts.pop("step")
    return ", ".join(f"{name} {part / step:.0%}" for name, part in parts.items())
