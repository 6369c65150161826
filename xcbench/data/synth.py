"""Synthetic data in the shape of published datasets: for work on scale, never for claims of accuracy.

A published dataset gives the numbers of points, labels and features, the labels per point, the tokens per title, and
the tail: label frequencies follow a Zipf law whose rarest label has about two training points.

The rest is a simple model. Labels have places on a line, and a point's labels are a run of neighbours on it, so
co-occurrence carries signal. Titles take words from the titles of the point's labels and from a set of words that the
neighbourhood shares, so text carries signal too. A frequent label has many places.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse as sp

from xcbench.data.dataset import Dataset, Propensity, Split, TextColumn
from xcbench.data.manifest import Manifest, Sizes
from xcbench.data.published import published_propensity, published_sizes
from xcbench.data.sparse_kernels import MAX_ID
from xcbench.data.text import TextEncoder, TextOptions
from xcbench.errors import InputError, unknown_name

RAREST_LABEL_POINTS = 2.0
"""The number of training points that the rarest label of a long list has, about."""
HEAD_SHARE = 0.03
"""The largest share of the points that the most frequent label has."""
POINTS_PER_PLACE = 8
"""A label has one place on the line per this many of its training points."""
NEIGHBOURHOOD_WORDS = 12
DRIFT = 1.3
"""How many places a label moves at random when points are formed."""
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_VOWELS = "aeiou"
Ints = npt.NDArray[np.int32]
AnyInts = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Shape:
    """The figures of a dataset in a paper's table of datasets."""

    train: int
    test: int
    labels: int
    features: int
    labels_per_point: float
    tokens_per_point: float
    tokens_per_label: float
    propensity: Propensity

    def scaled(self, scale: float) -> Shape:
        """Scale points and labels in proportion, and the vocabulary by the square root.

        The vocabulary grows more slowly, since more text brings ever fewer new words.
        """
        if not 0 < scale < math.inf:
            raise InputError(f"a scale is a number above 0, got {scale}")
        if max(self.train, self.labels) * scale > MAX_ID:
            raise InputError(f"a scale of {scale:g} makes more points or labels than {MAX_ID:,}, the most possible")

        return replace(
            self,
            train=max(2, round(self.train * scale)),
            test=max(1, round(self.test * scale)),
            labels=max(1, round(self.labels * scale)),
            features=max(50, round(self.features * math.sqrt(scale))),
        )


def published_shapes() -> dict[str, Shape]:
    """Return the shapes that `--like` knows, by the datasets' published names."""
    propensity = published_propensity()
    shapes = {}
    for name, sizes in published_sizes().items():
        shapes[name] = Shape(**sizes, propensity=propensity[name])
    return shapes


def published_name(name: str) -> str:
    """Return the published spelling of a dataset's name, given in any case."""
    known = {published.lower(): published for published in published_shapes()}
    if name.lower() not in known:
        raise unknown_name("published dataset", name, known)
    return known[name.lower()]


def default_name(like: str, scale: float) -> str:
    """Return the name of a synthetic dataset for which the user gives none."""
    name = f"synth-{published_name(like).lower()}"
    if scale != 1:
        name += f"-x{scale:.12g}"
    return name


def synthesise(
    like: str,
    scale: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """Make a dataset in a published shape. Equal arguments give equal data.

    Parameters
    ----------
    like
        The name of a published dataset, in any case; see `published_shapes`.
    scale
        Multiplies the numbers of points and labels; the vocabulary grows by the square root.
    seed
        Decides everything random.
    name
        The name of the new dataset; by default `synth-` and the published name.
    """
    if seed < 0:
        raise InputError(f"a seed is at least 0, got {seed}")

    like = published_name(like)
    name = name or default_name(like, scale)
    shape = published_shapes()[like].scaled(scale)
    dataset = from_shape(shape, seed, name)
    manifest = Manifest(
        name=name,
        title=f"Synthetic data in the shape of {like}, scale {scale:g}",
        task="none: points, labels and words are made up; for work on scale, never for claims of accuracy",
        source=f"xcbench data synth --like {like} --scale {scale:g} --seed {seed}",
        licence="CC0-1.0",
        sizes=Sizes(shape.train, shape.test, shape.labels, shape.features),
        propensity=dataset.propensity,
        split_rule="train and test are drawn apart from one model",
        text={"tokenizer": "words"},
    )
    return replace(dataset, manifest=manifest)


def from_shape(shape: Shape, seed: int, name: str) -> Dataset:
    """Draw labels, points and titles of one shape."""
    model = _Model(shape, np.random.default_rng(seed))
    train_Y = model.draw_targets(shape.train)
    test_Y = model.draw_targets(shape.test)
    train_titles = model.draw_titles(train_Y)
    test_titles = model.draw_titles(test_Y)

    train_counts = _token_counts(train_titles, shape.features)
    test_counts = _token_counts(test_titles, shape.features)
    label_counts = _token_counts(model.label_titles, shape.features)
    title_counts = np.bincount(train_counts.indices, minlength=shape.features)
    title_counts += np.bincount(label_counts.indices, minlength=shape.features)

    words = _words(shape.features)
    encoder = TextEncoder(
        options=TextOptions(),
        vocabulary=_as_strings(words),
        title_counts=title_counts,
        fitted_titles=shape.train + shape.labels,
    )
    return Dataset(
        name=name,
        train=Split(encoder.to_tfidf(train_counts), train_Y, _spell(train_titles, words)),
        test=Split(encoder.to_tfidf(test_counts), test_Y, _spell(test_titles, words)),
        Z=encoder.to_tfidf(label_counts),
        label_titles=_spell(model.label_titles, words),
        propensity=shape.propensity,
        encoder=encoder,
    )


@dataclass(frozen=True)
class _Ragged:
    """Rows of different lengths: row i is values[starts[i]:starts[i + 1]]."""

    values: Ints
    starts: AnyInts

    @staticmethod
    def starts_of(lengths: AnyInts) -> AnyInts:
        """Return where rows of these lengths start, and where the last one ends."""
        ends = np.cumsum(lengths, dtype=np.int64)
        starts = np.concatenate(([0], ends))
        if starts[-1] > np.iinfo(np.int32).max:
            return starts
        return starts.astype(np.int32)

    def pick(
        self,
        rows: AnyInts,
        rng: np.random.Generator,
    ) -> Ints:
        """Draw one value from each of the given rows."""
        first = self.starts[rows]
        lengths = self.starts[rows + 1] - first
        place = (rng.random(len(rows)) * lengths).astype(np.int64)
        picked: Ints = self.values[first + place]
        return picked


class _Model:
    """Where labels have their places, how they are called, and how points are drawn."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape = shape
        self.rng = rng
        self.popularity = rng.permutation(_zipf_weights(shape))

        expected_points = self.popularity * shape.train * shape.labels_per_point
        expected_places = np.ceil(expected_points / POINTS_PER_PLACE)
        self.places = np.maximum(1, expected_places).astype(np.int64)
        """The number of places per label."""
        self.first_place = np.cumsum(self.places) - self.places

        place_count = int(self.places.sum())
        # Wide enough that even a long run of neighbours seldom returns to its first label.
        width = max(32, 8 * shape.labels_per_point)
        self.neighbourhoods = max(1, int(place_count / width))
        self.position = rng.random(place_count) * self.neighbourhoods
        """The position of each place on the line; its integer part is the neighbourhood."""
        self.shared_words = rng.integers(
            shape.features,
            size=(self.neighbourhoods, NEIGHBOURHOOD_WORDS),
            dtype=np.int32,
        )
        self.label_titles = self._name_labels()

    def draw_targets(self, points: int) -> sp.csr_array:
        """Draw [points, L] targets.

        Each label gets slots in proportion to its popularity. All slots are ordered by their position on the line and
        cut into runs, one per point.
        """
        shape = self.shape
        rng = self.rng
        sizes = rng.geometric(1 / shape.labels_per_point, points)
        starts = _Ragged.starts_of(np.minimum(sizes, shape.labels))

        labels = self._slots(int(starts[-1]))
        order = self._order_of_slots(labels)
        ones = np.ones(len(labels), np.float32)
        entries = (ones, labels[order], starts)
        targets: sp.csr_array = sp.csr_array(entries, shape=(points, shape.labels))

        shuffled_rows = rng.permutation(points).astype(np.int32)
        targets = targets[shuffled_rows]
        targets.sum_duplicates()
        targets.data[:] = 1
        return targets

    def _slots(self, total: int) -> Ints:
        """Return the label of each slot, ascending."""
        # Rounding the running sum keeps the total exact.
        cumulative = np.cumsum(np.append(0, self.popularity))
        first_slot = np.rint(cumulative * total).astype(np.int64)
        all_labels = np.arange(self.shape.labels, dtype=np.int32)
        return np.repeat(all_labels, np.diff(first_slot))

    def _order_of_slots(self, labels: Ints) -> npt.NDArray[np.int64]:
        """Order slots by neighbourhood, and within it so that a label rarely occurs twice in one point.

        A label's slots are dealt to its places in turn. A neighbourhood lists first the first slots of all its places,
        then the second ones, and so on, each time by position with some random drift.
        """
        slots_per_label = np.bincount(labels, minlength=self.shape.labels)
        first_slot = np.cumsum(slots_per_label) - slots_per_label
        number = np.arange(len(labels)) - np.repeat(first_slot, slots_per_label)
        turn, place = np.divmod(number, self.places[labels])

        position = self.position[self.first_place[labels] + place]
        neighbourhood, within = np.divmod(position, 1.0)
        drift = DRIFT * self.neighbourhoods / len(self.position)
        noise = self.rng.standard_normal(len(labels), np.float32)
        within = (within + drift * noise) % 1.0

        turns = turn.max(initial=0) + 1
        return np.argsort(neighbourhood * turns + turn + within)

    def draw_titles(self, targets: sp.csr_array) -> _Ragged:
        """Draw a title per point: 3 in 10 words from its labels' titles, 2 from their neighbourhood, 5 from all."""
        labels = _Ragged(targets.indices, targets.indptr)
        starts, row = self._title_lengths(targets.shape[0], self.shape.tokens_per_point)
        label = labels.pick(row, self.rng)
        label_words = self.label_titles.pick(label, self.rng)
        words = self._mix(label_words, label, share=0.3, shared_share=0.2)
        return _Ragged(words, starts)

    def _name_labels(self) -> _Ragged:
        starts, label = self._title_lengths(self.shape.labels, self.shape.tokens_per_label)
        random_words = self.rng.integers(
            self.shape.features,
            size=len(label),
            dtype=np.int32,
        )
        words = self._mix(random_words, label, share=0.5, shared_share=0.3)
        return _Ragged(words, starts)

    def _title_lengths(
        self,
        titles: int,
        mean: float,
    ) -> tuple[AnyInts, AnyInts]:
        """Draw the lengths of titles; return where each title starts, and the title of each token."""
        lengths = 1 + self.rng.poisson(max(0.0, mean - 1), titles)
        title_of_token = np.repeat(np.arange(titles), lengths)
        return _Ragged.starts_of(lengths), title_of_token

    def _mix(
        self,
        words: Ints,
        label: AnyInts,
        share: float,
        shared_share: float,
    ) -> Ints:
        """Keep a share of the words, and replace the others.

        A share comes from the words of the neighbourhood of the label's first place, the rest from all words.
        """
        count = len(words)
        position = self.position[self.first_place[label]]
        neighbourhood = position.astype(np.int64)
        shared_place = self.rng.integers(NEIGHBOURHOOD_WORDS, size=count)
        shared = self.shared_words[neighbourhood, shared_place]
        dice = self.rng.random(count, np.float32)
        common = _common_words(self.shape.features, self.rng.random(count))

        replacement = np.where(dice < share + shared_share, shared, common)
        return np.where(dice < share, words, replacement)


def _zipf_weights(shape: Shape) -> npt.NDArray[np.float64]:
    """Return (rank + offset)^-a per label, summing to 1.

    The exponent gives the rarest label of a long list RAREST_LABEL_POINTS training points. The offset keeps the most
    frequent label below HEAD_SHARE of all points, or four times the mean where there are few labels.
    """
    ranks = np.arange(1, shape.labels + 1, dtype=np.float64)
    points_per_label = shape.train * shape.labels_per_point / shape.labels
    exponent = max(0.0, 1 - RAREST_LABEL_POINTS / points_per_label)
    highest = max(HEAD_SHARE / shape.labels_per_point, 4 / shape.labels)

    def weights(offset: float) -> npt.NDArray[np.float64]:
        raw = (ranks + offset) ** -exponent
        return np.asarray(raw / raw.sum())

    def excess(offset: float) -> float:
        return float(weights(offset)[0] - highest)

    if weights(0)[0] <= highest:
        return weights(0)
    offset = scipy.optimize.brentq(excess, 0, 100 * shape.labels, xtol=0.1)
    return weights(offset)


def _common_words(features: int, uniform: npt.NDArray[np.float64]) -> Ints:
    """Draw words with frequencies like 1 / (rank + 10), by the inverse of the distribution function."""
    offset = 10.0
    ranks = offset * ((features + offset) / offset) ** uniform - offset
    return np.minimum(ranks.astype(np.int32), features - 1)


def _token_counts(titles: _Ragged, features: int) -> sp.csr_array:
    shape = (len(titles.starts) - 1, features)
    ones = np.ones(len(titles.values), np.float32)
    # scipy sums duplicates inside the arrays it is given, which the titles still need.
    entries = (ones, titles.values, titles.starts)
    counts = sp.csr_array(entries, shape=shape, copy=True)
    counts.sum_duplicates()
    return counts


@functools.cache
def _syllables() -> npt.NDArray[np.uint8]:
    """Return the letters of 100 syllables, [100, 2]."""
    syllables = map("".join, itertools.product(_CONSONANTS, _VOWELS))
    letters = "".join(syllables).encode()
    return np.frombuffer(letters, np.uint8).reshape(-1, 2)


def _words(count: int) -> npt.NDArray[np.uint8]:
    """Return [count, width] letters of pronounceable words: numbers in base 100, one syllable per digit."""
    digits = max(3, math.ceil(math.log(count, 100) - 1e-9))
    # The factor is coprime to 100, so that all numbers differ, and those of neighbours look unlike.
    scattered = np.arange(count) * 314_159 % 100**digits
    syllables = scattered[:, None] // 100 ** np.arange(digits) % 100
    return np.ascontiguousarray(_syllables()[syllables].reshape(count, 2 * digits))


def _as_strings(words: npt.NDArray[np.uint8]) -> list[str]:
    width = words.shape[1]
    rows = words.view(f"S{width}").ravel()
    return [row.decode() for row in rows]


def _spell(titles: _Ragged, words: npt.NDArray[np.uint8]) -> TextColumn:
    """Write the titles out, with a blank between two words."""
    width = words.shape[1] + 1
    blanks = np.full((len(words), 1), ord(" "), np.uint8)
    spaced = np.concatenate([words, blanks], axis=1)
    letters = spaced[titles.values]

    is_written = np.ones(letters.shape, bool)
    is_written[titles.starts[1:] - 1, -1] = False  # no blank after a title's last word
    starts = titles.starts.astype(np.int64)
    offsets = starts * width - np.arange(len(starts))
    return TextColumn(letters[is_written], offsets)
