"""The inner loops of the losses: softplus and its gradient in one vectorised pass, over matrices and over pairs."""

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from xcbench.kernels.arrays import Doubles, Floats, Ints, Longs
from xcbench.kernels.parallel import kernel


def _bitcast(typing_context: Any, bits: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


_float_of_bits: Any = intrinsic(_bitcast)


@njit(inline="always")
def sigmoid_and_softplus(s: np.float32) -> tuple[np.float32, np.float32]:
    """Return both to about 1e-6, from one exponential.

    A loop that calls the library's exp is not vectorised, so e^-|s| is computed here as 2^-k e^f with |f| < 0.35.
    """
    a = min(abs(s), np.float32(87.0))
    k = np.int32(a * np.float32(1.4426950408889634) + np.float32(0.5))
    # ln 2 in two parts, the first short enough for k times it to be exact
    f = (np.float32(k) * np.float32(0.693359375) - a) + np.float32(k) * np.float32(-2.1219444e-4)

    # the Taylor polynomial of e^f
    p = np.float32(1 / 120) + f * np.float32(1 / 720)
    p = np.float32(1 / 6) + f * (np.float32(1 / 24) + f * p)
    p = np.float32(1) + f * (np.float32(1) + f * (np.float32(0.5) + f * p))
    e = p * _float_of_bits(np.int32((np.int32(127) - k) << np.int32(23)))
    inverse = np.float32(1) / (np.float32(1) + e)

    # log(1 + e) = 2 artanh z, with z at most 1/3
    z = e / (np.float32(2) + e)
    q = z * z
    log1p = np.float32(1 / 7) + q * (np.float32(1 / 9) + q * np.float32(1 / 11))
    log1p = np.float32(2) * z * (np.float32(1) + q * (np.float32(1 / 3) + q * (np.float32(1 / 5) + q * log1p)))

    sigmoid = inverse if s >= 0 else e * inverse
    # s - s is 0, or nan where s is nan or infinite: the clamp above must not hide those
    return sigmoid + (s - s), max(s, np.float32(0)) + log1p + (s - s)


@kernel
def bce_of_all(
    begin: int,
    end: int,
    s: Floats,
    first: int,
    indptr: Longs,
    columns: Ints,
    values: Floats,
    scale: np.float32,
    losses: Doubles,
) -> None:
    """Replace the scores of labels [first, first + width) by scaled gradients, and add each point's loss to losses.

    A pair whose target is nan is ignored: it has no loss.
    """
    for i in range(begin, end):
        row = s[i]
        loss = np.float64(0)
        for e in range(indptr[i], indptr[i + 1]):
            if first <= columns[e] < first + s.shape[1]:
                score = row[columns[e] - first]
                y = np.float64(values[e])
                loss -= np.float64(sigmoid_and_softplus(score)[1]) if np.isnan(y) else y * score

        total = np.float32(0)
        for j in range(s.shape[1]):
            sigmoid, softplus = sigmoid_and_softplus(row[j])
            row[j] = sigmoid * scale
            total += softplus

        for e in range(indptr[i], indptr[i + 1]):
            if first <= columns[e] < first + s.shape[1]:
                column = columns[e] - first
                row[column] = np.float32(0) if np.isnan(values[e]) else row[column] - values[e] * scale
        losses[i] += loss + total


@kernel
def bce_of_candidates(
    begin: int,
    end: int,
    s: Floats,
    first: int,
    indptr: Longs,
    columns: Ints,
    values: Floats,
    scale: np.float32,
    losses: Doubles,
) -> None:
    """Do the same for each point's candidates only. All other scores are replaced by 0.

    Scores are gathered and gradients are put back in loops of their own, so that the loop between them is vectorised.
    """
    longest = np.max(indptr[1:] - indptr[:-1])
    place = np.empty(longest, np.uint32)
    score = np.empty(longest, np.float32)
    y = np.empty(longest, np.float32)
    for i in range(begin, end):
        row = s[i]
        count = np.uint64(0)
        for e in range(indptr[i], indptr[i + 1]):
            column = np.int64(columns[e]) - first
            inside = 0 <= column < s.shape[1]
            place[count] = np.uint32(column if inside else 0)
            score[count] = row[place[count]]
            y[count] = values[e]
            # Without a branch, which would be mispredicted half of the time: what is outside is overwritten next.
            count += np.uint64(inside)

        total = np.float32(0)
        for e in range(count):
            sigmoid, softplus = sigmoid_and_softplus(score[e])
            total += softplus - y[e] * score[e]
            score[e] = (sigmoid - y[e]) * scale

        row[:] = np.float32(0)
        for e in range(count):
            row[place[e]] = score[e]
        losses[i] += np.float64(total)


@kernel
def bce_of_pairs(
    begin: int,
    end: int,
    x: Floats,
    T: Floats,
    x2: Floats,
    T2: Floats,
    bias: Floats,
    indptr: Longs,
    columns: Ints,
    values: Floats,
    scale: np.float32,
    losses: Doubles,
    gradients: Floats,
    dx: Floats,
    dx2: Floats,
) -> None:
    """Score the candidates of each point one by one, by <x, T> + <x2, T2> + bias.

    A label's row is read once for its score and for the point's gradient. `bias` may be empty.
    """
    for i in range(begin, end):
        dx[i] = np.float32(0)
        dx2[i] = np.float32(0)
        loss = np.float64(0)
        for e in range(indptr[i], indptr[i + 1]):
            label = T[columns[e]]
            label2 = T2[columns[e]]
            score = bias[columns[e]] if len(bias) else np.float32(0)
            for j in range(x.shape[1]):
                score += x[i, j] * label[j]
            for j in range(x2.shape[1]):
                score += x2[i, j] * label2[j]

            sigmoid, softplus = sigmoid_and_softplus(score)
            loss += np.float64(softplus - values[e] * score)
            g = (sigmoid - values[e]) * scale
            gradients[e] = g
            for j in range(x.shape[1]):
                dx[i, j] += g * label[j]
            for j in range(x2.shape[1]):
                dx2[i, j] += g * label2[j]
        losses[i] = loss


@kernel
def gradients_of_labels(
    begin: int,
    end: int,
    labels: Ints,
    indptr: Longs,
    rows: Ints,
    entries: Longs,
    gradients: Floats,
    x: Floats,
    x2: Floats,
    dT: Floats,
    dT2: Floats,
    dbias: Floats,
) -> None:
    """dT[u] = sum of g_iu x_i over the points i of which u is a candidate; likewise dT2 and dbias."""
    for k in range(begin, end):
        u = labels[k]
        dT[u] = np.float32(0)
        dT2[u] = np.float32(0)
        total = np.float32(0)
        for e in range(indptr[k], indptr[k + 1]):
            g = gradients[entries[e]]
            i = rows[e]
            total += g
            for j in range(x.shape[1]):
                dT[u, j] += g * x[i, j]
            for j in range(x2.shape[1]):
                dT2[u, j] += g * x2[i, j]
        if len(dbias):
            dbias[u] = total
