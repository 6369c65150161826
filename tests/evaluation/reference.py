"""The metrics of docs/reference/metrics.md in the plainest Python, and random cases to hold the fast ones against."""

from dataclasses import dataclass
from math import log2

import numpy as np
import scipy.sparse as sp

from xcbench.data import TopK
from xcbench.evaluation import Truth, parse_metric


@dataclass
class Case:
    """Predictions and truth as lists, dicts and sets, and as the arrays that `evaluate` takes."""

    scores: list[dict[int, float]]  # of each point: label -> score
    truth: list[set[int]]
    filtered: set[tuple[int, int]]
    weights: list[float]  # inverse propensities

    @property
    def ranked(self) -> list[list[int]]:
        """Filtered predictions gone, best score first, smaller label first among equals."""
        return [
            sorted((label for label in row if (i, label) not in self.filtered), key=lambda label: (-row[label], label))
            for i, row in enumerate(self.scores)
        ]

    @property
    def relevant(self) -> list[set[int]]:
        return [{label for label in row if (i, label) not in self.filtered} for i, row in enumerate(self.truth)]

    def top_k(self) -> TopK:
        return TopK.from_csr(csr([list(row.items()) for row in self.scores], len(self.weights)))

    def judge(self) -> Truth:
        Y = csr([[(label, 1.0) for label in row] for row in self.truth], len(self.weights))
        pairs = np.array(sorted(self.filtered), np.int64).reshape(-1, 2)
        return Truth.of_matrix(Y, pairs, np.array(self.weights))


def csr(rows: list[list[tuple[int, float]]], columns: int) -> sp.csr_array:
    entries = [(i, column, value) for i, row in enumerate(rows) for column, value in row]
    i, column, value = zip(*entries, strict=True) if entries else ((), (), ())
    # Built by hand, because coo drops nothing but csr arithmetic might: explicit zeros are predictions.
    order = np.lexsort((column, i))
    indptr = np.searchsorted(np.array(i, np.int64)[order], np.arange(len(rows) + 1))
    data = np.array(value, np.float64)[order]
    return sp.csr_array((data, np.array(column, np.int32)[order], indptr), shape=(len(rows), columns))


def random_case(rng: np.random.Generator, points: int, labels: int, k: int, tied: bool = True) -> Case:
    """Ties, points without truth or without predictions, labels nobody has, and some filtered pairs."""
    weights = (1 + 3 * rng.random(labels)).tolist()
    scores, truth, filtered = [], [], set()
    for i in range(points):
        predicted = rng.choice(labels, min(labels, rng.integers(0, k + 1)), replace=False)
        drawn = rng.integers(0, 4, len(predicted)) / 4 if tied else rng.random(len(predicted))
        scores.append({int(label): float(score) for label, score in zip(predicted, drawn, strict=True)})
        pool = np.concatenate([predicted, rng.integers(0, labels, 4)])
        truth.append({int(label) for label in rng.choice(pool, rng.integers(0, 6))})
        filtered |= {(i, int(label)) for label in rng.choice(pool, rng.integers(0, 3))}
    return Case(scores, truth, filtered, weights)


def reference(case: Case, name: str) -> float:
    """One metric in percent, straight from its definition."""
    metric = parse_metric(name)
    family = metric.family.name
    k = metric.k or 10**9
    pairs = list(zip(case.ranked, case.relevant, strict=True))
    if family == "MRR":
        return 100 * sum(_reciprocal_rank(ranked[:k], relevant) for ranked, relevant in pairs) / len(pairs)
    if family in ("C", "Cpred"):
        wanted = set().union(*case.relevant)
        found = set().union(*(r[:k] if family == "Cpred" else set(r[:k]) & t for r, t in pairs))
        return 100 * len(found & wanted) / len(wanted) if wanted else 0.0
    weights = case.weights if family.startswith("PS") else [1.0] * len(case.weights)
    plain = family.removeprefix("PS")
    got = sum(_gain(plain, ranked, relevant, weights, k) for ranked, relevant in pairs)
    if family == plain:
        return 100 * got / len(pairs)
    ideal = [sorted(relevant, key=lambda label: -weights[label]) for relevant in case.relevant]
    best = sum(_gain(plain, ranked, relevant, weights, k) for ranked, (_, relevant) in zip(ideal, pairs, strict=True))
    return 100 * got / best if best else 0.0


def _gain(family: str, ranked: list[int], relevant: set[int], weights: list[float], k: int) -> float:
    found = [(place, weights[label]) for place, label in enumerate(ranked[:k], start=1) if label in relevant]
    if family == "P":
        return sum(weight for _, weight in found) / k
    if family == "R":
        return sum(weight for _, weight in found) / max(1, len(relevant))
    ideal = sum(1 / log2(place + 1) for place in range(1, min(k, len(relevant)) + 1))
    return sum(weight / log2(place + 1) for place, weight in found) / ideal if relevant else 0.0


def _reciprocal_rank(ranked: list[int], relevant: set[int]) -> float:
    return next((1 / place for place, label in enumerate(ranked, start=1) if label in relevant), 0.0)
