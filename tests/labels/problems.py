"""Small label matrices and the plainest way to count on them."""

import numpy as np
import scipy.sparse as sp


def label_matrix(rng: np.random.Generator, points: int, labels: int, mean: float = 3.0) -> sp.csr_array:
    """About `mean` random labels per point; some points and some labels may have none."""
    dense = rng.random((points, labels)) < mean / labels
    return sp.csr_array(dense.astype(np.float32))


def planted_rows(rng: np.random.Generator, groups: int, size: int, width: int, noise: float = 0.1):
    """Unit directions far apart, `size` noisy copies of each, shuffled; returns the rows and their groups."""
    group = rng.permutation(np.repeat(np.arange(groups), size))
    rows = np.eye(groups, width)[group] + noise * rng.random((groups * size, width)) / np.sqrt(width)
    return rows.astype(np.float32), group
