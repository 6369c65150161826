"""Titles to word counts: words of any script, found and numbered in one compiled pass over the characters."""

from __future__ import annotations

import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_CHARACTERS_AT_ONCE = 1 << 22
_OTHER, _LETTER, _ALONE, _SIGN, _BREAK = range(5)
_ASSIGNED = 0x32400
"""Beyond this code point Unicode has no letters yet."""
_HAN = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, _ASSIGNED))


def count_words(
    texts: Iterable[str], lowercase: bool = True, without: AbstractSet[str] = frozenset()
) -> tuple[sp.csr_array, list[str]]:
    """[texts, words] counts, and the distinct words in order of first sight, those `without` left out."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__  # a new word gets the next free number
    rows, columns, text_count = [], [], 0
    for batch in _batches(texts):
        words, ids, batch_rows = _find_words(batch, lowercase)
        columns.append(np.fromiter(map(number.__getitem__, words), np.int32, len(words))[ids])
        rows.append(batch_rows + np.int32(text_count))
        text_count += len(batch)
    kept = np.fromiter((word.lower() not in without for word in number), bool, len(number))
    renumbered = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    flat_rows, flat_columns = (np.concatenate(parts) if parts else np.zeros(0, np.int32) for parts in (rows, columns))
    counts = csr_of_pairs(flat_rows, renumbered[flat_columns], (text_count, int(kept.sum())))
    return counts, list(itertools.compress(number, kept))


def csr_of_pairs(rows: npt.NDArray[Any], columns: npt.NDArray[Any], shape: tuple[int, int]) -> sp.csr_array:
    """Counts of (row, column) pairs, rows ascending; pairs with column -1 are left out."""
    kept = columns >= 0
    columns = columns[kept]
    # scipy's index type is that of its widest part, and 32 bits are enough below two thousand million entries.
    indptr = np.zeros(shape[0] + 1, np.int32 if len(columns) <= np.iinfo(np.int32).max else np.int64)
    np.cumsum(np.bincount(rows[kept], minlength=shape[0]), out=indptr[1:])
    matrix = sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists of bounded length, so that memory does not grow with the number or the length of the texts."""
    batch, characters = [], 0
    for text in texts:
        batch.append(text)
        characters += len(text) + 1
        if characters >= _CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _find_words(texts: Sequence[str], lowercase: bool) -> tuple[list[str], npt.NDArray[Any], npt.NDArray[Any]]:
    """The distinct words of some texts, and for each word in turn its place in that list and its text."""
    joined = "\n".join([text if text.isascii() else unicodedata.normalize("NFKC", text) for text in texts])
    if joined.count("\n") != len(texts) - 1:
        return _find_words([text.replace("\n", " ") for text in texts], lowercase)
    if lowercase:
        joined = joined.lower()
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _kinds()[np.minimum(codes, _ASSIGNED)]
    ids, rows, starts, ends = _number_words(codes, kinds)
    return [joined[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], ids, rows


@cache
def _kinds() -> npt.NDArray[np.uint8]:
    """What each character is to a word. Vowel signs and accents (category M) belong to the letter before them.

    Nothing marks where a word of Han characters ends, so each of them stands alone.
    """
    characters = [chr(code) for code in range(_ASSIGNED)]
    letters = (character.isalnum() or unicodedata.category(character)[0] == "M" for character in characters)
    kinds = np.zeros(_ASSIGNED + 1, np.uint8)
    kinds[:-1] = np.where(np.fromiter(letters, bool, _ASSIGNED), _LETTER, _OTHER)
    for start, end in _HAN:
        kinds[start:end] = _ALONE
    kinds[[ord("+"), ord("#")]] = _SIGN
    kinds[ord("\n")] = _BREAK
    return kinds


@numba.njit(cache=True, nogil=True)
def _number_words(codes: Any, kinds: Any) -> Any:
    """Number the words by first sight with a hash table of their first occurrences.

    A word is a run of letters with the signs that follow it, as in c++ and c#, or a character that stands alone.
    """
    found = 0
    for i in range(len(kinds)):
        if kinds[i] == _ALONE or (kinds[i] == _LETTER and (i == 0 or kinds[i - 1] != _LETTER)):
            found += 1
    capacity = 16
    while capacity < 2 * found:
        capacity *= 2
    table = np.full(capacity, -1, np.int32)
    ids, rows = np.empty(found, np.int32), np.empty(found, np.int32)
    starts, ends = np.empty(found, np.int64), np.empty(found, np.int64)
    distinct = token = row = end = 0
    while end < len(codes):
        start, kind = end, kinds[end]
        end += 1
        if kind == _BREAK:
            row += 1
        if kind != _LETTER and kind != _ALONE:
            continue
        if kind == _LETTER:
            while end < len(codes) and kinds[end] == _LETTER:
                end += 1
            while end < len(codes) and kinds[end] == _SIGN:
                end += 1
        slot = _hash(codes, start, end) & (capacity - 1)
        while table[slot] >= 0 and not _same(codes, start, end, starts[table[slot]], ends[table[slot]]):
            slot = (slot + 1) & (capacity - 1)
        if table[slot] < 0:
            table[slot] = distinct
            starts[distinct], ends[distinct] = start, end
            distinct += 1
        ids[token], rows[token] = table[slot], row
        token += 1
    return ids, rows, starts[:distinct], ends[:distinct]


@numba.njit(cache=True, nogil=True)
def _hash(codes: Any, start: int, end: int) -> Any:
    """FNV-1a over code points, its upper half folded into the lower, which picks the slot."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(codes[i])) * np.uint64(0x100000001B3)
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0x7FFFFFFF))


@numba.njit(cache=True, nogil=True)
def _same(codes: Any, start: int, end: int, other_start: int, other_end: int) -> bool:
    same = end - start == other_end - other_start
    while same and start < end:
        same = codes[start] == codes[other_start]
        start += 1
        other_start += 1
    return same
