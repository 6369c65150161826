"""Titles to TF-IDF: learn the vocabulary from training and label titles, then encode all titles."""

import gzip
import json
from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure, cpu_seconds
from xcbench.data.embedded import embedded_folder
from xcbench.data.text import PIECES_PER_ROOT_TOKEN, TextEncoder

TITLES = 300_000
FITTED = 200_000
PROMISED_SECONDS = 10.0


def real_titles(count: int) -> list[str]:
    """Draw titles of the embedded datasets with replacement; they have about ten words each."""
    titles: list[str] = []
    for name in ("lf-wordnet-27k", "lf-debian-12k"):
        for part in ("trn", "tst"):
            with gzip.open(embedded_folder(name) / f"{part}.json.gz", "rt", encoding="utf-8") as lines:
                titles += [json.loads(line)["title"] for line in lines]

    rng = np.random.default_rng(0)
    chosen = rng.integers(len(titles), size=count)
    return [titles[i] for i in chosen]


def ours(titles: list[str], tokenizer: str) -> object:
    """Fit and encode with xcbench."""
    encoder = TextEncoder.fit(titles[:FITTED], tokenizer=tokenizer, min_count=2)
    return encoder.encode(titles)


def scikit_learn(titles: list[str]) -> object:
    """Fit and encode with scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=r"\w+[+#]*", min_df=2, dtype=np.float32)
    return vectorizer.fit(titles[:FITTED]).transform(titles)


def title_by_title(titles: list[str]) -> object:
    """Train word pieces on the titles, then split each title into pieces, as the tokenizers library offers it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    fitted = titles[:FITTED]
    model = Tokenizer(models.BPE())
    model.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    model.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()])
    size = int(PIECES_PER_ROOT_TOKEN * np.sqrt(_word_count(fitted)))
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    model.train_from_iterator(fitted, trainer)
    return [encoding.ids for encoding in model.encode_batch(titles)]


def _word_count(titles: list[str]) -> int:
    return sum(len(title.split()) for title in titles)


def measure() -> Iterator[Figure]:
    """Compare the CPU times of fitting and encoding."""
    titles = real_titles(TITLES)
    words_per_title = _word_count(titles) / TITLES
    note = f"{TITLES:,} titles of {words_per_title:.1f} words, fitted on {FITTED:,}"

    spent = cpu_seconds(lambda: ours(titles, "words"), repeat=2)
    yield Figure(
        what="words to TF-IDF, fit and encode",
        ours=spent,
        reference=PROMISED_SECONDS,
        unit="CPU s",
        reference_name="the promised time",
        at_least=1,
        note=note,
    )
    yield Figure(
        what="words to TF-IDF, fit and encode",
        ours=spent,
        reference=cpu_seconds(lambda: scikit_learn(titles), repeat=2),
        unit="CPU s",
        reference_name="scikit-learn's TfidfVectorizer",
        at_least=2,
        note=note,
    )
    yield Figure(
        what="word pieces to TF-IDF, fit and encode",
        ours=cpu_seconds(lambda: ours(titles, "wordpieces"), repeat=1),
        reference=cpu_seconds(lambda: title_by_title(titles), repeat=1),
        unit="CPU s",
        reference_name="the tokenizers library title by title, without TF-IDF",
        at_least=2,
        note=note,
    )
