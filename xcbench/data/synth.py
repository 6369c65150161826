"""Synthetic data in the shape of published datasets: for work on scale, never for claims of accuracy.

What is kept of a shape: points, labels, vocabulary, labels a point, tokens a title, and the tail, a Zipf law whose
rarest label has about two training points. What is made up: labels live on a line. Points are runs of neighbours on
it, so co-occurrence carries signal; titles borrow words from the titles of the point's labels and from a pool that
the neighbourhood shares, so text carries signal too. A frequent label lives in many places, as heads do.
"""

from __future__ import annotations

import functools
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
HEAD_SHARE = 0.03
POINTS_PER_PLACE = 8
"""A label lives in one place for each so many of its training points."""
NEIGHBOURHOOD_WORDS = 12
DRIFT = 1.3
"""How many places chance moves a label when points are formed."""
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Shape:
    """What Table 1 of a paper says of a dataset."""

    train: int
    test: int
    labels: int
    features: int
    labels_per_point: float
    tokens_per_point: float
    tokens_per_label: float
    propensity: Propensity

    def scaled(self, scale: float) -> Shape:
        """Points and labels in proportion; the vocabulary by the root, since new text brings ever fewer new words."""
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
    """The shapes that `--like` knows, by the datasets' published names."""
    propensity = published_propensity()
    return {name: Shape(**sizes, propensity=propensity[name]) for name, sizes in published_sizes().items()}


def published_name(name: str) -> str:
    """The published spelling of a dataset's name, whatever case it was typed in."""
    known = {published.lower(): published for published in published_shapes()}
    if name.lower() not in known:
        raise unknown_name("published dataset", name, known)
    return known[name.lower()]


def default_name(like: str, scale: float) -> str:
    """What a synthetic dataset is called where nobody says."""
    return f"synth-{published_name(like).lower()}" + ("" if scale == 1 else f"-x{scale:.12g}")


def synthesise(like: str, scale: float = 1.0, seed: int = 0, name: str | None = None) -> Dataset:
    """Make a dataset in a published shape. Equal arguments give equal data."""
    if seed < 0:
        raise InputError(f"a seed is at least 0, got {seed}")
    like, name = published_name(like), name or default_name(like, scale)
    dataset = from_shape(published_shapes()[like].scaled(scale), seed, name)
    manifest = Manifest(
        name=name,
        title=f"Synthetic data in the shape of {like}, scale {scale:g}",
        task="none: points, labels and words are made up; for work on scale, never for claims of accuracy",
        source=f"xcbench data synth --like {like} --scale {scale:g} --seed {seed}",
        licence="CC0-1.0",
        sizes=Sizes(len(dataset.train), len(dataset.test), dataset.label_count, dataset.feature_count),
        propensity=dataset.propensity,
        split_rule="train and test are drawn apart from one model",
        text={"tokenizer": "words"},
    )
    return replace(dataset, manifest=manifest)


def from_shape(shape: Shape, seed: int, name: str) -> Dataset:
    """Draw labels, points and titles of one shape."""
    world = _World(shape, np.random.default_rng(seed))
    train_Y, test_Y = world.draw_targets(shape.train), world.draw_targets(shape.test)
    train, test = world.draw_titles(train_Y), world.draw_titles(test_Y)
    counts = [_token_counts(titles, shape.features) for titles in (train, test, world.label_titles)]
    fitted = np.bincount(counts[0].indices, minlength=shape.features)
    fitted += np.bincount(counts[2].indices, minlength=shape.features)
    words = _words(shape.features)
    vocabulary = [word.decode() for word in words.view(f"S{words.shape[1]}").ravel()]
    encoder = TextEncoder(TextOptions(), vocabulary, fitted, shape.train + shape.labels)
    return Dataset(
        name=name,
        train=Split(encoder.weigh(counts[0]), train_Y, _spell(train, words)),
        test=Split(encoder.weigh(counts[1]), test_Y, _spell(test, words)),
        Z=encoder.weigh(counts[2]),
        label_titles=_spell(world.label_titles, words),
        propensity=shape.propensity,
        encoder=encoder,
    )


@dataclass(frozen=True)
class _Ragged:
    """Rows of different lengths: row i is values[starts[i]:starts[i + 1]]."""

    values: Ints
    starts: npt.NDArray[np.integer]

    @staticmethod
    def starts_of(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        return starts.astype(np.int32) if starts[-1] <= np.iinfo(np.int32).max else starts

    def pick(self, rows: npt.NDArray[np.integer], rng: np.random.Generator) -> Ints:
        """One value at random from each of these rows."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        chosen: Ints = self.values[self.starts[rows] + (rng.random(len(rows)) * lengths).astype(np.int64)]
        return chosen


class _World:
    """Where labels live, what they are called, and how points come about."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape, self.rng = shape, rng
        self.popularity = rng.permutation(_zipf_weights(shape))
        expected = self.popularity * shape.train * shape.labels_per_point
        self.places = np.maximum(1, np.ceil(expected / POINTS_PER_PLACE)).astype(np.int64)
        self.first_place = np.cumsum(self.places) - self.places
        place_count = int(self.places.sum())
        # Wide enough that even a long run of neighbours seldom comes back to its first label.
        self.neighbourhoods = max(1, int(place_count / max(32, 8 * shape.labels_per_point)))
        self.position = rng.random(place_count) * self.neighbourhoods
        self.shared_words = rng.integers(
            shape.features, size=(self.neighbourhoods, NEIGHBOURHOOD_WORDS), dtype=np.int32
        )
        self.label_titles = self._name_labels()

    def draw_targets(self, points: int) -> sp.csr_array:
        """[points, L] targets: slots of all labels lined up along the places and cut into runs, one a point."""
        shape, rng = self.shape, self.rng
        sizes = np.minimum(rng.geometric(1 / shape.labels_per_point, points), shape.labels)
        starts = _Ragged.starts_of(sizes)
        # Rounding the running sum keeps the total exact.
        per_label = np.diff(np.rint(np.cumsum(np.append(0, self.popularity)) * starts[-1]).astype(np.int64))
        label = np.repeat(np.arange(shape.labels, dtype=np.int32), per_label)
        nth = np.arange(len(label)) - np.repeat(np.cumsum(per_label) - per_label, per_label)
        turn, place = np.divmod(nth, self.places[label])
        home, within = np.divmod(self.position[self.first_place[label] + place], 1.0)
        drift = DRIFT * self.neighbourhoods / len(self.position)
        within = (within + drift * rng.standard_normal(len(label), np.float32)) % 1.0
        # A neighbourhood's places take turns, so that a label rarely meets itself in one point.
        order = np.argsort(home * (turn.max(initial=0) + 1) + turn + within)
        targets: sp.csr_array = sp.csr_array(
            (np.ones(len(label), np.float32), label[order], starts), shape=(points, shape.labels)
        )
        targets = targets[rng.permutation(points).astype(np.int32)]
        targets.sum_duplicates()
        targets.data[:] = 1
        return targets

    def draw_titles(self, targets: sp.csr_array) -> _Ragged:
        """Of ten words three are from titles of the point's labels, two from their neighbourhood, five from all."""
        labels = _Ragged(targets.indices, targets.indptr)
        starts, row = self._lengths(targets.shape[0], self.shape.tokens_per_point)
        label = labels.pick(row, self.rng)
        own = self.label_titles.pick(label, self.rng)
        return _Ragged(self._mix(own, label, own_share=0.3, shared_share=0.2), starts)

    def _name_labels(self) -> _Ragged:
        starts, label = self._lengths(self.shape.labels, self.shape.tokens_per_label)
        own = self.rng.integers(self.shape.features, size=len(label), dtype=np.int32)
        return _Ragged(self._mix(own, label, own_share=0.5, shared_share=0.3), starts)

    def _lengths(self, titles: int, mean: float) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """Where each title starts, and the title that each token belongs to."""
        lengths = 1 + self.rng.poisson(max(0.0, mean - 1), titles)
        return _Ragged.starts_of(lengths), np.repeat(np.arange(titles), lengths)

    def _mix(self, own: Ints, label: npt.NDArray[np.integer], own_share: float, shared_share: float) -> Ints:
        """Keep a share of the words, take another from the pool of the label's first place, the rest from all words."""
        home = self.position[self.first_place[label]].astype(np.int64)
        shared = self.shared_words[home, self.rng.integers(NEIGHBOURHOOD_WORDS, size=len(own))]
        dice = self.rng.random(len(own), np.float32)
        anywhere = _common_words(self.shape.features, self.rng.random(len(own)))
        return np.where(dice < own_share, own, np.where(dice < own_share + shared_share, shared, anywhere))


def _zipf_weights(shape: Shape) -> npt.NDArray[np.float64]:
    """(rank + offset)^-a, summing to 1.

    The exponent gives the rarest label of a long list RAREST_LABEL_POINTS training points; the offset keeps the most
    frequent label below HEAD_SHARE of all points, or four times the mean where there are few labels.
    """
    ranks = np.arange(1, shape.labels + 1, dtype=np.float64)
    points_per_label = shape.train * shape.labels_per_point / shape.labels
    exponent = max(0.0, 1 - RAREST_LABEL_POINTS / points_per_label)
    highest = max(HEAD_SHARE / shape.labels_per_point, 4 / shape.labels)

    def weights(offset: float) -> npt.NDArray[np.float64]:
        raw = (ranks + offset) ** -exponent
        return np.asarray(raw / raw.sum())

    if weights(0)[0] <= highest:
        return weights(0)
    return weights(scipy.optimize.brentq(lambda offset: weights(offset)[0] - highest, 0, 100 * shape.labels, xtol=0.1))


def _common_words(features: int, uniform: npt.NDArray[np.float64]) -> Ints:
    """Words by a law of frequency like 1 / (rank + 10), through the inverse of its distribution function."""
    offset = 10.0
    ranks = offset * ((features + offset) / offset) ** uniform - offset
    return np.minimum(ranks.astype(np.int32), features - 1)


def _token_counts(titles: _Ragged, features: int) -> sp.csr_array:
    shape = (len(titles.starts) - 1, features)
    ones = np.ones(len(titles.values), np.float32)
    # scipy sums duplicates inside the arrays it is given, which the titles still need.
    counts = sp.csr_array((ones, titles.values, titles.starts), shape=shape, copy=True)
    counts.sum_duplicates()
    return counts


@functools.cache
def _syllables() -> npt.NDArray[np.uint8]:
    pairs = "".join(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)
    return np.frombuffer(pairs.encode(), np.uint8).reshape(-1, 2)


def _words(count: int) -> npt.NDArray[np.uint8]:
    """[count, width] letters of words that can be spoken: numbers in base 100, one syllable a digit."""
    digits = max(3, math.ceil(math.log(count, 100) - 1e-9))
    scattered = np.arange(count) * 314_159 % 100**digits  # coprime to 100: all differ, and neighbours look unlike
    syllables = scattered[:, None] // 100 ** np.arange(digits) % 100
    return np.ascontiguousarray(_syllables()[syllables].reshape(count, 2 * digits))


def _spell(titles: _Ragged, words: npt.NDArray[np.uint8]) -> TextColumn:
    """Write the titles out, a blank between two words."""
    width = words.shape[1] + 1
    spaced = np.concatenate([words, np.full((len(words), 1), ord(" "), np.uint8)], axis=1)
    letters = spaced[titles.values]
    kept = np.ones(letters.shape, bool)
    kept[titles.starts[1:] - 1, -1] = False  # no blank after a title's last word
    return TextColumn(letters[kept], titles.starts.astype(np.int64) * width - np.arange(len(titles.starts)))
