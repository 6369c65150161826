"""Cutting a word that nobody knows into words that are known: `htmlpreelement` into `html`, `pre` and `element`."""

from __future__ import annotations

from collections.abc import Container

MIN_PIECE = 3
"""Letters of the shortest piece; shorter known words are found in almost any word."""
MAX_WORD = 100
"""Longer words are no names, and are not cut."""


def cut_word(word: str, known: Container[str]) -> list[str]:
    """Return the fewest known words that a word consists of, in their order; nothing if it does not consist of such.

    Parameters
    ----------
    word
        A word that is not known.
    known
        The known words.
    """
    if len(word) > MAX_WORD:
        return []

    # best[end]: the fewest pieces of word[:end], or None. Among equally few the longest last piece is taken.
    best: list[list[str] | None] = [[]]
    for end in range(1, len(word) + 1):
        chosen = None
        for start in range(end - MIN_PIECE + 1):
            before = best[start]
            if before is None or word[start:end] not in known:
                continue
            if chosen is None or len(before) + 1 < len(chosen):
                chosen = [*before, word[start:end]]
        best.append(chosen)
    return best[-1] or []
