"""Text to TF-IDF rows: one vocabulary for points and labels, kept so that new text can be encoded later.

Titles are normalised (NFKC), lowercased and cut into words of any script. The distinct words are looked
up once, as a sparse matrix from words to features, and the titles' word counts are multiplied by it; so whole words
and word pieces are one code path, and no Python loop ever runs over the tokens of a title.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.data.words import count_words, csr_of_pairs
from xcbench.errors import DataError, InputError, unknown_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ENGLISH = """
a an and are as at be been but by can did do does for from had has have he her his i if in into is it its me my no nor
not of off on onto or our out s she so t than that the their them then there these they this those to too up us was we
were what when where which who whom whose why will with would you your
"""
TOKENIZERS = ("words", "wordpieces", "ngrams")
STOP_WORDS = {"none": frozenset[str](), "english": frozenset(_ENGLISH.split())}
PIECES_PER_ROOT_TOKEN = 22
"""The papers' vocabularies (40k to 128k word pieces) all lie near 22 times the root of their data's token count."""
_WORD_START = "▁"
NGRAMS = (3, 4)


@dataclass(frozen=True)
class TextOptions:
    """How titles become features."""

    tokenizer: str = "words"
    """"words"; "wordpieces": frequent parts of words, learned from the same text; "ngrams": runs of 3 or 4 letters."""
    lowercase: bool = True
    stop_words: str = "none"
    min_count: int = 1
    """Features found in fewer titles of the training text than this are dropped."""
    max_features: int | None = None
    """At most this many, the most frequent first. None: all words, or word pieces in proportion to the text."""

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise unknown_name("tokenizer", str(self.tokenizer), TOKENIZERS)
        if self.stop_words not in STOP_WORDS:
            raise unknown_name("stop word list", str(self.stop_words), STOP_WORDS)
        if not isinstance(self.lowercase, bool):
            raise InputError(f"lowercase must be true or false, got {self.lowercase!r}")
        if not _is_count(self.min_count):
            raise InputError(f"min_count must be a whole number from 1 up, got {self.min_count!r}")
        if self.max_features is not None and not _is_count(self.max_features):
            raise InputError(f"max_features must be a whole number from 1 up, or none, got {self.max_features!r}")


@dataclass(frozen=True)
class TextEncoder:
    """Turns titles into rows of X. Immutable; made by `fit`, kept by `to_dict`."""

    options: TextOptions
    vocabulary: list[str]
    """The feature behind each column, most frequent first; a word piece that starts a word is marked with '▁'."""
    title_counts: npt.NDArray[np.int64]
    """In how many of the fitted titles each feature was found."""
    fitted_titles: int
    pieces: str | None = None
    """The trained word-piece model, as the JSON text of the tokenizers library."""

    @classmethod
    def fit(cls, texts: Iterable[str], **options: Any) -> TextEncoder:
        """Learn vocabulary and weights from the training titles and the label titles; never from test titles."""
        chosen = TextOptions(**options)
        counts, words = count_words(texts, chosen.lowercase, STOP_WORDS[chosen.stop_words])
        if not words:
            raise DataError("no title holds a single word; features need text")
        if chosen.tokenizer == "wordpieces":
            model = _train_pieces(words, counts, chosen)
            lookup, features = _piece_lookup(words, model)
            counts, pieces = counts @ lookup, model.to_str()
        elif chosen.tokenizer == "ngrams":
            lookup, features = _ngram_lookup(words)
            counts, pieces = counts @ lookup, None
        else:
            features, pieces = words, None
        found = np.bincount(counts.indices, minlength=len(features))
        by_name = sorted(np.flatnonzero(found >= chosen.min_count).tolist(), key=features.__getitem__)
        by_count = np.argsort(-found[by_name], kind="stable")[: chosen.max_features]
        kept = [by_name[i] for i in by_count]
        if not kept:
            raise DataError(f"no feature is found in {chosen.min_count} titles (min_count); lower it")
        return cls(chosen, [features[column] for column in kept], found[kept], counts.shape[0], pieces)

    @property
    def feature_count(self) -> int:
        return len(self.vocabulary)

    @cached_property
    def idf(self) -> npt.NDArray[np.float32]:
        """ln((1 + n) / (1 + n_t)) + 1: a word of every title still counts, a rare one counts more."""
        return (np.log((1 + self.fitted_titles) / (1 + self.title_counts)) + 1).astype(np.float32)

    def encode(self, texts: Sequence[str]) -> sp.csr_array:
        """[n, V] float32 TF-IDF rows of unit length; a title without a known feature gives an empty row."""
        counts, words = count_words(texts, self.options.lowercase, STOP_WORDS[self.options.stop_words])
        return self.weigh(counts @ self._lookup(words))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives back an encoder that encodes alike."""
        return {
            "options": dataclasses.asdict(self.options),
            "vocabulary": self.vocabulary,
            "title_counts": self.title_counts.tolist(),
            "fitted_titles": self.fitted_titles,
            "pieces": self.pieces,
        }

    @classmethod
    def from_dict(cls, value: Any) -> TextEncoder:
        """The inverse of `to_dict`."""
        try:
            encoder = cls(
                TextOptions(**value["options"]),
                [str(feature) for feature in value["vocabulary"]],
                np.asarray(value["title_counts"], np.int64),
                int(value["fitted_titles"]),
                value["pieces"],
            )
            lengths_agree = len(encoder.vocabulary) == len(encoder.title_counts)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a stored text encoder: {type(error).__name__} {error}") from None
        if not lengths_agree or (encoder.pieces is None) == (encoder.options.tokenizer == "wordpieces"):
            raise DataError("not a stored text encoder: its parts do not belong together")
        return encoder

    def weigh(self, counts: sp.csr_array) -> sp.csr_array:
        """Turn [n, V] counts of features into TF-IDF rows of unit length, in place."""
        counts.sort_indices()
        counts.data *= self.idf[counts.indices]
        row_lengths = np.diff(counts.indptr)
        squares = np.bincount(np.repeat(np.arange(len(row_lengths)), row_lengths), counts.data**2, len(row_lengths))
        counts.data /= np.repeat(np.sqrt(squares), row_lengths).astype(np.float32)
        return counts

    def _lookup(self, words: list[str]) -> sp.csr_array:
        """[words, V]: which features each word stands for; an unknown word is an empty row."""
        if self.options.tokenizer == "words":
            return self._columns_of(words)
        if (model := self._piece_model) is None:
            column = self._column_of
            return _counted([[column.get(run, -1) for run in _ngrams(word)] for word in words], self.feature_count)
        parts, names = _piece_lookup(words, model)
        lookup: sp.csr_array = parts @ self._columns_of(names)
        return lookup

    def _columns_of(self, names: list[str]) -> sp.csr_array:
        columns = np.fromiter(map(self._column_of.get, names, itertools.repeat(-1)), np.int32, len(names))
        return csr_of_pairs(np.arange(len(names)), columns, (len(names), self.feature_count))

    @cached_property
    def _column_of(self) -> dict[str, int]:
        return {feature: column for column, feature in enumerate(self.vocabulary)}

    @cached_property
    def _piece_model(self) -> Tokenizer | None:
        if self.pieces is None:
            return None
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_str(self.pieces)
        except Exception as error:  # the library raises nothing more precise
            raise DataError(f"not a stored word-piece model: {error}") from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _train_pieces(words: list[str], counts: sp.csr_array, options: TextOptions) -> Tokenizer:
    """Learn frequent parts of words by byte-pair merges over characters.

    The library's own WordPiece trainer numbers continuations in hash order and so breaks ties differently in every
    process; merges over characters with a mark at the word's start give the same model everywhere.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    frequency = counts.sum(axis=0).astype(np.int64)
    # The library makes room for as many pieces as it is told; letters and merges can be no more than this.
    possible = 2 * sum(map(len, words)) + 1
    size = min(options.max_features or int(PIECES_PER_ROOT_TOKEN * np.sqrt(frequency.sum())), possible)
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    repeated = (f"{_WORD_START}{word} " * times for word, times in zip(words, frequency.tolist(), strict=True))
    model.train_from_iterator(repeated, trainer)
    return model


def _piece_lookup(words: list[str], model: Tokenizer) -> tuple[sp.csr_array, list[str]]:
    """[words, pieces] counts, and the pieces by number."""
    names: Mapping[str, int] = model.get_vocab()
    pieces = [encoding.ids for encoding in model.encode_batch([_WORD_START + word for word in words])]
    return _counted(pieces, len(names)), sorted(names, key=names.__getitem__)


def _ngram_lookup(words: list[str]) -> tuple[sp.csr_array, list[str]]:
    """[words, n-grams] counts, and the n-grams by number."""
    number: dict[str, int] = {}
    found = [[number.setdefault(run, len(number)) for run in _ngrams(word)] for word in words]
    return _counted(found, len(number)), list(number)


def _ngrams(word: str) -> list[str]:
    """All runs of as many letters as `NGRAMS` says; both ends of the word are marked."""
    marked = f"{_WORD_START}{word}{_WORD_START}"
    return [marked[i : i + n] for n in NGRAMS for i in range(len(marked) - n + 1)]


def _counted(parts: list[list[int]], width: int) -> sp.csr_array:
    """[words, width]: how often each word has each part; -1 is none."""
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    columns = np.fromiter(itertools.chain.from_iterable(parts), np.int32, int(lengths.sum()))
    return csr_of_pairs(np.repeat(np.arange(len(parts)), lengths), columns, (len(parts), width))
