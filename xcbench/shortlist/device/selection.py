"""The k best of many scores on a device, with the tie rule of `kernels/selection`: the smaller id comes first.

As there, a score and its id are packed into one 64-bit key. A greater key is better and no two keys of a row are equal,
so that torch's `topk`, which promises nothing about ties, has none to decide.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

ALL_BUT_SIGN = 0x7FFFFFFF
LOW = 0xFFFFFFFF
SHIFT = 32

NO_KEY = -(1 << 63)
"""The key of a place without a label. It is less than all others."""


class Found(NamedTuple):
    """The content of a `TopK` on a device. Places without a label have the label -1."""

    labels: Tensor  # [n, k], int64
    scores: Tensor  # [n, k], float32


def keys_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Pack scores and labels into keys. Places with a negative label get `NO_KEY`.

    Parameters
    ----------
    scores
        [n, m] float32.
    labels
        [n, m] int64, or [m] where all rows have the same labels.
    """
    bits = (scores + 0.0).view(torch.int32)  # the sum makes -0.0 equal to 0.0

    # Floats are stored as sign and magnitude: flip the magnitude of negative ones, so that integers have their order.
    ordered = torch.where(bits < 0, bits ^ ALL_BUT_SIGN, bits)
    keys = ordered.to(torch.int64)
    keys *= 1 << SHIFT
    keys += LOW - labels
    return keys.masked_fill_(labels < 0, NO_KEY)


def largest(keys: Tensor, k: int) -> Tensor:
    """Return the k largest keys of each row, largest first, padded with `NO_KEY` where there are fewer."""
    count = min(k, keys.shape[1])
    best = keys.topk(count, dim=1).values
    if count == k:
        return best
    padding = keys.new_full((len(keys), k - count), NO_KEY)
    return torch.cat([best, padding], dim=1)


def unpacked(keys: Tensor) -> Found:
    """Return the labels and the scores of keys. Places without a label have the score -inf."""
    is_empty = keys == NO_KEY
    labels = LOW - (keys & LOW)
    labels = labels.masked_fill_(is_empty, -1)

    ordered = (keys >> SHIFT).to(torch.int32)
    bits = torch.where(ordered < 0, ordered ^ ALL_BUT_SIGN, ordered)
    scores = bits.view(torch.float32).masked_fill(is_empty, -math.inf)
    return Found(labels, scores)
