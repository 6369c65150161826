"""Text to TF-IDF rows: one vocabulary for points and labels, kept so that new text can be encoded later.

Titles are normalised (NFKC), lowercased and split into words of any script. The distinct words are looked up once, as
a sparse matrix from words to features, and the titles' word counts are multiplied by it. So whole words, word pieces
and n-grams share one code path, and no Python loop ever runs over the tokens of a title.
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

from xcbench.data.compounds import cut_word
from xcbench.data.dataset import TextColumn
from xcbench.data.words import FoundWords, count_pairs, count_words, find_words
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
NGRAMS = (3, 4)
"""The lengths of n-grams, in letters."""
_WORD_START = "▁"


@dataclass(frozen=True)
class TextOptions:
    """How titles become features."""

    tokenizer: str = "words"
    """"words"; "wordpieces": frequent parts of words, learned from the same text; "ngrams": runs of 3 or 4 letters."""
    lowercase: bool = True
    stop_words: str = "none"
    """Which common words to leave out: "none" or "english"."""
    min_count: int = 1
    """Features found in fewer titles of the training text than this are dropped."""
    max_features: int | None = None
    """At most this many, the most frequent first. None: all words, or word pieces in proportion to the text."""
    cut_unknown: bool = False
    """Whether a word that is not in the vocabulary counts as the known words that it consists of; for "words" only."""

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise unknown_name("tokenizer", str(self.tokenizer), TOKENIZERS)
        if self.stop_words not in STOP_WORDS:
            raise unknown_name("stop word list", str(self.stop_words), STOP_WORDS)
        if not isinstance(self.lowercase, bool):
            raise InputError(f"lowercase must be true or false, got {self.lowercase!r}")
        if not isinstance(self.cut_unknown, bool):
            raise InputError(f"cut_unknown must be true or false, got {self.cut_unknown!r}")
        if self.cut_unknown and self.tokenizer != "words":
            raise InputError(f"cut_unknown goes with the tokenizer words, not with {self.tokenizer}")
        if not _is_positive_int(self.min_count):
            raise InputError(f"min_count must be a whole number from 1 up, got {self.min_count!r}")
        if self.max_features is not None and not _is_positive_int(self.max_features):
            raise InputError(f"max_features must be a whole number from 1 up, or none, got {self.max_features!r}")


@dataclass(frozen=True)
class TextEncoder:
    """Turns titles into rows of X. Immutable; made by `fit`, stored by `to_dict`."""

    options: TextOptions
    vocabulary: list[str]
    """The feature of each column, most frequent first; a word piece that starts a word is marked with '▁'."""
    title_counts: npt.NDArray[np.int64]
    """The number of fitted titles per feature."""
    fitted_titles: int
    pieces: str | None = None
    """The trained word-piece model, as the JSON text of the tokenizers library."""

    @classmethod
    def fit(cls, texts: Iterable[str], **options: Any) -> TextEncoder:
        """Learn vocabulary and weights.

        Parameters
        ----------
        texts
            The titles of the training points and the labels; never those of test points.
        options
            The fields of `TextOptions`.
        """
        chosen = TextOptions(**options)
        stop_words = STOP_WORDS[chosen.stop_words]
        counts, words = count_words(texts, chosen.lowercase, stop_words)
        if not words:
            raise DataError("no title holds a single word; features need text")

        features = words
        pieces = None
        if chosen.tokenizer == "wordpieces":
            model = _train_pieces(words, counts, chosen)
            lookup, features = _piece_lookup(words, model)
            counts = counts @ lookup
            pieces = model.to_str()
        elif chosen.tokenizer == "ngrams":
            lookup, features = _ngram_lookup(words)
            counts = counts @ lookup

        title_counts = np.bincount(counts.indices, minlength=len(features))
        columns = _select_columns(features, title_counts, chosen)
        return cls(
            options=chosen,
            vocabulary=[features[column] for column in columns],
            title_counts=title_counts[columns],
            fitted_titles=counts.shape[0],
            pieces=pieces,
        )

    @property
    def feature_count(self) -> int:
        """The size of the vocabulary, V."""
        return len(self.vocabulary)

    @cached_property
    def idf(self) -> npt.NDArray[np.float32]:
        """ln((1 + n) / (1 + n_t)) + 1: a word of every title still counts, a rare one counts more."""
        ratio = (1 + self.fitted_titles) / (1 + self.title_counts)
        idf = np.log(ratio) + 1
        return idf.astype(np.float32)

    def encode(self, texts: Sequence[str]) -> sp.csr_array:
        """Return [n, V] float32 TF-IDF rows of unit length; a title without a known feature gives an empty row."""
        stop_words = STOP_WORDS[self.options.stop_words]
        counts, words = count_words(texts, self.options.lowercase, stop_words)
        return self.to_tfidf(counts @ self._lookup(words))

    def sequences(self, texts: Sequence[str], length: int | None = None) -> sp.csr_array:
        """Return [n, V] rows whose entries are the known words of a title in their order, each with the value 1.

        A word that occurs twice has two entries, and words that are not known are left out. Such rows can be sliced,
        stored and batched like any others; sums and products with them count the words and ignore the order. Only
        encoders of whole words have sequences.

        Parameters
        ----------
        texts
            The titles.
        length
            How many words a title keeps, the first ones; None keeps all.
        """
        if self.options.tokenizer != "words":
            raise ValueError(f"sequences are of words, and this encoder has {self.options.tokenizer}")

        found = find_words(texts, self.options.lowercase, STOP_WORDS[self.options.stop_words])
        rows, tokens = self._known_parts(found)
        lengths = np.bincount(rows, minlength=found.text_count)
        if length is not None:
            starts = np.cumsum(lengths) - lengths
            is_kept = np.arange(len(rows)) - starts[rows] < length
            tokens = tokens[is_kept]
            lengths = np.minimum(lengths, length)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        ones = np.ones(len(tokens), np.float32)
        return sp.csr_array((ones, tokens, indptr), shape=(found.text_count, self.feature_count))

    def unknown_words(self, texts: Sequence[str]) -> tuple[int, int]:
        """Return how many of the distinct words of some texts the vocabulary does not have, and how many there are."""
        words = find_words(texts, self.options.lowercase, STOP_WORDS[self.options.stop_words]).words
        unknown = sum(word not in self._column_of for word in words)
        return unknown, len(words)

    def to_values(self) -> dict[str, Any]:
        """Return the same as `to_dict`, with arrays in place of lists: what a stage or a predictor keeps."""
        return {
            **self.to_dict(),
            "vocabulary": TextColumn.of(self.vocabulary),
            "title_counts": self.title_counts,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which `from_dict` makes an equal encoder."""
        return {
            "options": dataclasses.asdict(self.options),
            "vocabulary": self.vocabulary,
            "title_counts": self.title_counts.tolist(),
            "fitted_titles": self.fitted_titles,
            "pieces": self.pieces,
        }

    @classmethod
    def from_dict(cls, value: Any) -> TextEncoder:
        """Make an encoder of what `to_dict` or `to_values` returned. Raises `DataError` for anything else."""
        try:
            encoder = cls(
                options=TextOptions(**value["options"]),
                vocabulary=[str(feature) for feature in value["vocabulary"]],
                title_counts=np.asarray(value["title_counts"], np.int64),
                fitted_titles=int(value["fitted_titles"]),
                pieces=value["pieces"],
            )
            lengths_agree = len(encoder.vocabulary) == len(encoder.title_counts)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a stored text encoder: {type(error).__name__} {error}") from None

        needs_pieces = encoder.options.tokenizer == "wordpieces"
        has_pieces = encoder.pieces is not None
        if not lengths_agree or has_pieces != needs_pieces:
            raise DataError("not a stored text encoder: its parts do not belong together")
        return encoder

    def to_tfidf(self, counts: sp.csr_array) -> sp.csr_array:
        """Turn [n, V] counts of features into TF-IDF rows of unit length, in place."""
        counts.sort_indices()
        counts.data *= self.idf[counts.indices]

        row_lengths = np.diff(counts.indptr)
        rows = np.repeat(np.arange(len(row_lengths)), row_lengths)
        squares = np.bincount(rows, counts.data**2, len(row_lengths))
        norms = np.repeat(np.sqrt(squares), row_lengths)
        counts.data /= norms.astype(np.float32)
        return counts

    def _lookup(self, words: list[str]) -> sp.csr_array:
        """Return [words, V] counts of the features in each word; an unknown word is an empty row."""
        if self.options.cut_unknown:
            return _count_parts(self._parts_of(words), self.feature_count)
        if self.options.tokenizer == "words":
            return self._columns_of(words)

        model = self._piece_model
        if model is None:
            columns = [self._columns_of_ngrams(word) for word in words]
            return _count_parts(columns, self.feature_count)

        parts, names = _piece_lookup(words, model)
        lookup: sp.csr_array = parts @ self._columns_of(names)
        return lookup

    def _parts_of(self, words: Sequence[str]) -> list[list[int]]:
        """Return the columns of each word: its own, those of the known words in it if these are asked for, or none."""
        column_of = self._column_of
        parts = []
        for word in words:
            if word in column_of:
                parts.append([column_of[word]])
            elif self.options.cut_unknown:
                parts.append([column_of[piece] for piece in cut_word(word, column_of)])
            else:
                parts.append([])
        return parts

    def _known_parts(self, found: FoundWords) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Return row and column of every known word of some texts, in the order of the texts."""
        parts = self._parts_of(found.words)
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        columns = np.fromiter(itertools.chain.from_iterable(parts), np.int32, int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths

        is_wanted = found.numbers >= 0
        numbers = found.numbers[is_wanted]
        repeats = lengths[numbers]
        # The parts of one occurrence follow each other: its start in `columns`, plus 0, 1, 2 ...
        steps = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        rows = np.repeat(found.rows[is_wanted], repeats)
        return rows, columns[np.repeat(starts[numbers], repeats) + steps]

    def _columns_of_ngrams(self, word: str) -> list[int]:
        column_of = self._column_of
        return [column_of.get(ngram, -1) for ngram in _ngrams(word)]

    def _columns_of(self, names: list[str]) -> sp.csr_array:
        """Return [names, V] with a 1 at the column of each known name."""
        count = len(names)
        columns = map(self._column_of.get, names, itertools.repeat(-1))
        return count_pairs(
            np.arange(count),
            np.fromiter(columns, np.int32, count),
            shape=(count, self.feature_count),
        )

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


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _select_columns(
    features: list[str],
    title_counts: npt.NDArray[np.int64],
    options: TextOptions,
) -> list[int]:
    """Return the columns of the features to keep, the most frequent first and equal ones by name."""
    frequent = np.flatnonzero(title_counts >= options.min_count)
    by_name = sorted(frequent.tolist(), key=features.__getitem__)
    by_count = np.argsort(-title_counts[by_name], kind="stable")

    columns = [by_name[i] for i in by_count[: options.max_features]]
    if not columns:
        raise DataError(f"no feature is found in {options.min_count} titles (min_count); lower it")
    return columns


def _train_pieces(words: list[str], counts: sp.csr_array, options: TextOptions) -> Tokenizer:
    """Learn frequent parts of words by byte-pair merges over characters.

    The library's own WordPiece trainer numbers continuations in hash order and so breaks ties differently in every
    process; merges over characters with a mark at the word's start give the same model everywhere.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    frequency = counts.sum(axis=0).astype(np.int64)
    size = options.max_features or int(PIECES_PER_ROOT_TOKEN * np.sqrt(frequency.sum()))
    # The library reserves room for `size` pieces; letters and merges can be no more than this.
    max_size = 2 * sum(map(len, words)) + 1

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=min(size, max_size), show_progress=False)
    words_and_counts = zip(words, frequency.tolist(), strict=True)
    repeated = (f"{_WORD_START}{word} " * count for word, count in words_and_counts)
    model.train_from_iterator(repeated, trainer)
    return model


def _piece_lookup(
    words: list[str],
    model: Tokenizer,
) -> tuple[sp.csr_array, list[str]]:
    """Return [words, pieces] counts, and the pieces by number."""
    number: Mapping[str, int] = model.get_vocab()
    encodings = model.encode_batch([_WORD_START + word for word in words])
    pieces = [encoding.ids for encoding in encodings]
    return _count_parts(pieces, len(number)), sorted(number, key=number.__getitem__)


def _ngram_lookup(words: list[str]) -> tuple[sp.csr_array, list[str]]:
    """Return [words, n-grams] counts, and the n-grams by number."""
    number: dict[str, int] = {}
    numbers_by_word = []
    for word in words:
        numbers = [number.setdefault(ngram, len(number)) for ngram in _ngrams(word)]
        numbers_by_word.append(numbers)
    return _count_parts(numbers_by_word, len(number)), list(number)


def _ngrams(word: str) -> list[str]:
    """Return all runs of as many letters as `NGRAMS` says; both ends of the word are marked."""
    marked = f"{_WORD_START}{word}{_WORD_START}"
    ngrams = []
    for length in NGRAMS:
        starts = range(len(marked) - length + 1)
        ngrams += [marked[start : start + length] for start in starts]
    return ngrams


def _count_parts(parts: list[list[int]], width: int) -> sp.csr_array:
    """Return [words, width] counts of the numbered parts of each word; -1 is not counted."""
    words = len(parts)
    lengths = np.fromiter(map(len, parts), np.int64, words)
    rows = np.repeat(np.arange(words), lengths)

    all_parts = itertools.chain.from_iterable(parts)
    columns = np.fromiter(all_parts, np.int32, int(lengths.sum()))
    return count_pairs(rows, columns, shape=(words, width))
