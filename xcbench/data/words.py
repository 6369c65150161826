"""Titles to word counts: words of any script, found and numbered in one compiled pass over the characters."""

from __future__ import annotations

import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_CHARACTERS_AT_ONCE = 1 << 22

# What a character is to a word.
_OTHER = 0
_LETTER = 1
_ALONE = 2
_SIGN = 3
_BREAK = 4

_ASSIGNED = 0x32400
"""Beyond this code point Unicode has no letters yet."""
_HAN = (
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x20000, _ASSIGNED),
)
"""The ranges of Han characters, by code point."""


def count_words(
    texts: Iterable[str],
    lowercase: bool = True,
    without: AbstractSet[str] = frozenset(),
) -> tuple[sp.csr_array, list[str]]:
    """Count the words of texts.

    Returns [texts, words] counts, and the distinct words in the order of their first occurrence.

    Parameters
    ----------
    texts
        The texts, read once.
    lowercase
        Whether to convert the texts to lower case first.
    without
        Words, in lower case, to leave out.
    """
    found = find_words(texts, lowercase, without)
    shape = (found.text_count, len(found.words))
    return count_pairs(found.rows, found.numbers, shape), found.words


@dataclass(frozen=True)
class FoundWords:
    """Every occurrence of a word, in the order of the texts.

    Parameters
    ----------
    rows
        The text of each occurrence; they ascend.
    numbers
        The word of each occurrence, as its place in `words`; -1 for a word that is left out.
    words
        The distinct words, in the order of their first occurrence.
    text_count
        How many texts there are.
    """

    rows: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    words: list[str]
    text_count: int


def find_words(
    texts: Iterable[str],
    lowercase: bool = True,
    without: AbstractSet[str] = frozenset(),
) -> FoundWords:
    """Find the words of texts; the parameters are those of `count_words`."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__  # a new word gets the next free number

    rows = []
    columns = []
    text_count = 0
    for batch in _batches(texts):
        words, ids, batch_rows = _find_words(batch, lowercase)
        numbers = map(number.__getitem__, words)
        columns.append(np.fromiter(numbers, np.int32, len(words))[ids])
        rows.append(batch_rows + np.int32(text_count))
        text_count += len(batch)

    wanted = (word.lower() not in without for word in number)
    is_wanted = np.fromiter(wanted, bool, len(number))
    new_number = np.cumsum(is_wanted) - 1
    new_number = np.where(is_wanted, new_number, -1).astype(np.int32)
    return FoundWords(
        rows=_concatenate(rows),
        numbers=new_number[_concatenate(columns)],
        words=list(itertools.compress(number, is_wanted)),
        text_count=text_count,
    )


def count_pairs(
    rows: npt.NDArray[Any],
    columns: npt.NDArray[Any],
    shape: tuple[int, int],
) -> sp.csr_array:
    """Return a matrix of how often each pair (row, column) occurs.

    The rows ascend. Pairs with column -1 are left out.
    """
    is_counted = columns >= 0
    columns = columns[is_counted]
    rows = rows[is_counted]

    # scipy's index type is that of its widest part, and 32 bits are enough for two thousand million entries.
    fits_int32 = len(columns) <= np.iinfo(np.int32).max
    indptr = np.zeros(shape[0] + 1, np.int32 if fits_int32 else np.int64)
    row_lengths = np.bincount(rows, minlength=shape[0])
    np.cumsum(row_lengths, out=indptr[1:])

    ones = np.ones(len(columns), np.float32)
    matrix = sp.csr_array((ones, columns, indptr), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _concatenate(parts: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    if not parts:
        return np.zeros(0, np.int32)
    return np.concatenate(parts)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of texts of bounded length, so that memory does not grow with the number of texts."""
    batch = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text) + 1
        if characters >= _CHARACTERS_AT_ONCE:
            yield batch
            batch = []
            characters = 0

    if batch:
        yield batch


def _find_words(
    texts: Sequence[str],
    lowercase: bool,
) -> tuple[list[str], npt.NDArray[Any], npt.NDArray[Any]]:
    """Find the words of some texts.

    Returns the distinct words; then, per occurrence of a word, its place in that list; and its text.
    """
    joined = "\n".join([_normalise(text) for text in texts])
    if joined.count("\n") != len(texts) - 1:
        # A newline separates two texts, so none may have its own.
        return _find_words([text.replace("\n", " ") for text in texts], lowercase)
    if lowercase:
        joined = joined.lower()

    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _character_kinds()[np.minimum(codes, _ASSIGNED)]
    ids, rows, starts, ends = _number_words(codes, kinds)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    words = [joined[start:end] for start, end in spans]
    return words, ids, rows


def _normalise(text: str) -> str:
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text)


@cache
def _character_kinds() -> npt.NDArray[np.uint8]:
    """Return what each character is to a word, by code point.

    Vowel signs and accents (category M) belong to the letter before them. Nothing marks where a word of Han characters
    ends, so each of them is a word.
    """
    letters = (_is_letter(chr(code)) for code in range(_ASSIGNED))
    is_letter = np.fromiter(letters, bool, _ASSIGNED)

    kinds = np.zeros(_ASSIGNED + 1, np.uint8)
    kinds[:-1] = np.where(is_letter, _LETTER, _OTHER)
    for start, end in _HAN:
        kinds[start:end] = _ALONE
    kinds[ord("+")] = _SIGN
    kinds[ord("#")] = _SIGN
    kinds[ord("\n")] = _BREAK
    return kinds


def _is_letter(character: str) -> bool:
    if character.isalnum():
        return True
    return unicodedata.category(character)[0] == "M"


@numba.njit(cache=True, nogil=True)
def _count_tokens(kinds: Any) -> Any:
    count = 0
    for i in range(len(kinds)):
        if kinds[i] == _ALONE or (kinds[i] == _LETTER and (i == 0 or kinds[i - 1] != _LETTER)):
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _number_words(codes: Any, kinds: Any) -> Any:
    """Number the words by first occurrence, with a hash table of first occurrences.

    A word is a run of letters with the signs that follow it, as in c++ and c#, or a character that is a word alone.
    Returns, per token, the number of its word and its row; then, per distinct word, where it starts and ends.
    """
    token_count = _count_tokens(kinds)
    capacity = 16
    while capacity < 2 * token_count:
        capacity *= 2
    table = np.full(capacity, -1, np.int32)

    ids = np.empty(token_count, np.int32)
    rows = np.empty(token_count, np.int32)
    starts = np.empty(token_count, np.int64)
    ends = np.empty(token_count, np.int64)
    distinct = 0
    token = 0
    row = 0
    end = 0
    while end < len(codes):
        start = end
        kind = kinds[end]
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

        # Open addressing: the first slot that is empty or holds the same word.
        slot = _hash(codes, start, end) & (capacity - 1)
        while table[slot] >= 0 and not _same(codes, start, end, starts[table[slot]], ends[table[slot]]):
            slot = (slot + 1) & (capacity - 1)
        if table[slot] < 0:
            table[slot] = distinct
            starts[distinct] = start
            ends[distinct] = end
            distinct += 1

        ids[token] = table[slot]
        rows[token] = row
        token += 1
    return ids, rows, starts[:distinct], ends[:distinct]


@numba.njit(cache=True, nogil=True)
def _hash(codes: Any, start: int, end: int) -> Any:
    """FNV-1a over code points, its upper half folded into the lower, which chooses the slot."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(codes[i])) * np.uint64(0x100000001B3)
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0x7FFFFFFF))


@numba.njit(cache=True, nogil=True)
def _same(
    codes: Any,
    start: int,
    end: int,
    other_start: int,
    other_end: int,
) -> bool:
    same = end - start == other_end - other_start
    while same and start < end:
        same = codes[start] == codes[other_start]
        start += 1
        other_start += 1
    return same
