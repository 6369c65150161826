"""Titles as word pieces in their order, by the tokenizer of a pretrained model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

TITLES_AT_ONCE = 1 << 14


def word_pieces(tokenizer: str, titles: Sequence[str], length: int) -> sp.csr_array:
    """Return [n, V] rows whose entries are the word pieces of a title in their order, as `TextEncoder.sequences` does.

    Parameters
    ----------
    tokenizer
        The text of a `tokenizer.json`. What it puts around a text (BERT's [CLS] and [SEP]) counts.
    titles
        The titles.
    length
        How many word pieces a title keeps.
    """
    from tokenizers import Tokenizer

    cutter = Tokenizer.from_str(tokenizer)
    cutter.no_padding()
    cutter.enable_truncation(length)
    counts = [np.zeros(1, np.int64)]
    pieces = [np.zeros(0, np.int32)]
    for start in range(0, len(titles), TITLES_AT_ONCE):
        found = [text.ids for text in cutter.encode_batch_fast(list(titles[start : start + TITLES_AT_ONCE]))]
        counts.append(np.fromiter(map(len, found), np.int64, len(found)))
        pieces.append(np.fromiter(itertools.chain.from_iterable(found), np.int32))
    indices = np.concatenate(pieces)
    ones = np.ones(len(indices), np.float32)
    indptr = np.concatenate(counts).cumsum()
    return sp.csr_array((ones, indices, indptr), shape=(len(titles), cutter.get_vocab_size()))
