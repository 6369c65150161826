"""Text to TF-IDF: words of any script, hand-computed weights, and an encoder that survives storage unchanged."""

import itertools
import json
import math
import re
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.data import words
from xcbench.data.compounds import MIN_PIECE, cut_word
from xcbench.data.text import TextEncoder, TextOptions
from xcbench.errors import DataError, InputError
from xcbench.plugins.codec import load_values, save_values
from xcbench.train import Points

TITLES = ["red apple pie", "green apple", "apple and pear", "the pear tree", "C++ primer", "C primer"]


def words_of(title, **options):
    """The features of one title, through the public way: an encoder fitted on nothing else."""
    return set(TextEncoder.fit([title], **options).vocabulary)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("C++ and C#, not c", {"c++", "and", "c#", "not", "c"}),
        ("python3-numpy: snake_case", {"python3", "numpy", "snake", "case"}),
        ("Привет, МИР!", {"привет", "мир"}),
        ("हिन्दी शब्द", {"हिन्दी", "शब्द"}),
        ("日本語 text", {"日", "本", "語", "text"}),
        ("محرك البحث", {"محرك", "البحث"}),
        ("한국어 책", {"한국어", "책"}),
        ("two\nlines\r\tand tabs", {"two", "lines", "and", "tabs"}),
        ("cafe\u0301 café", {"café"}),
        ("ｆｕｌｌ width", {"full", "width"}),
        ("💡 idea + # -- 42", {"idea", "42"}),
    ],
)
def test_words_of_every_script_are_found(title, words):
    assert words_of(title) == words


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text("aBcé日本+#_ \n-\u0301\u0939\u093f1\ud800\U00020001", max_size=12), max_size=6))
def test_words_are_those_that_a_plain_search_finds(titles):
    """The compiled pass against a regular expression for the same rule, on characters of every kind."""
    word = re.compile("[日本\U00020001]|(?:(?![日本\U00020001_])[\\w\u0301\u093f])+[+#]*")
    expected = [Counter(word.findall(unicodedata.normalize("NFKC", title).lower())) for title in titles]
    counts, found = words.count_words(titles)
    assert counts.shape == (len(titles), len(found))
    assert [{found[j]: n for j, n in enumerate(row) if n} for row in counts.toarray()] == expected
    assert found == list(dict.fromkeys(itertools.chain.from_iterable(expected)))


def test_case_is_kept_where_asked():
    assert words_of("US us", lowercase=False) == {"US", "us"}


def test_weights_are_those_computed_by_hand():
    encoder = TextEncoder.fit(["a a b", "a c", "c"])
    assert encoder.vocabulary == ["a", "c", "b"]  # by titles found in, then by name
    row = encoder.encode(["a a b unknown"]).toarray()[0]
    a, b = 2 * (math.log(4 / 3) + 1), math.log(4 / 2) + 1
    np.testing.assert_allclose(row, np.array([a, 0, b]) / math.hypot(a, b), rtol=1e-6)


def test_weights_agree_with_scikit_learn():
    vectorizer = pytest.importorskip("sklearn.feature_extraction.text").TfidfVectorizer(token_pattern=r"\w+[+#]*")
    expected = vectorizer.fit(TITLES).transform([*TITLES, "apple apple primer"]).toarray()
    encoder = TextEncoder.fit(TITLES)
    ours = encoder.encode([*TITLES, "apple apple primer"]).toarray()
    order = [encoder.vocabulary.index(word) for word in vectorizer.get_feature_names_out()]
    np.testing.assert_allclose(ours[:, order], expected, rtol=1e-5)


def test_options_choose_the_vocabulary():
    assert TextEncoder.fit(TITLES, min_count=2).vocabulary == ["apple", "pear", "primer"]
    assert TextEncoder.fit(TITLES, max_features=1).vocabulary == ["apple"]
    assert words_of("The pear and THE tree", stop_words="english") == {"pear", "tree"}
    assert words_of("The pear", stop_words="english", lowercase=False) == {"pear"}


@pytest.mark.parametrize("tokenizer", ["words", "wordpieces", "ngrams"])
def test_a_stored_encoder_encodes_alike(tokenizer):
    encoder = TextEncoder.fit(TITLES, tokenizer=tokenizer)
    again = TextEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    new = [*TITLES, "a pear pie primer", "", "nothing-known 日本"]
    ours, theirs = encoder.encode(new), again.encode(new)
    assert again.feature_count == encoder.feature_count == ours.shape[1]
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())


def test_pieces_share_what_words_cannot():
    """An unseen word gives nothing as a word, but the pieces that it shares with seen ones as pieces."""
    titles = ["walking talking", "walked talked", "walks talks"] * 5
    assert TextEncoder.fit(titles).encode(["walker"]).nnz == 0
    pieces = TextEncoder.fit(titles, tokenizer="wordpieces", max_features=20)
    assert pieces.feature_count <= 20
    unseen, seen = pieces.encode(["walker"]), pieces.encode(["walked", "talks"])
    similarity = (unseen @ seen.T).toarray()[0]
    assert similarity[0] > similarity[1]


def test_pieces_are_the_same_in_every_process():
    """The library hashes with a key of its own in each process, and a model that depends on it would show here."""
    program = (
        "import hashlib, json, random; from xcbench.data.text import TextEncoder\n"
        "dice = random.Random(3); letters = 'abcdefgh'\n"
        "titles = [' '.join(''.join(dice.choices(letters, k=5)) for _ in range(4)) for _ in range(200)]\n"
        "encoder = TextEncoder.fit(titles, tokenizer='wordpieces', max_features=300)\n"
        "print(hashlib.sha256(json.dumps(encoder.to_dict()).encode()).hexdigest())\n"
    )
    seen = {subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(seen) == 1


def test_batches_do_not_change_the_result(monkeypatch):
    whole = TextEncoder.fit(TITLES)
    rows = whole.encode(TITLES).toarray()
    monkeypatch.setattr(words, "_CHARACTERS_AT_ONCE", 20)
    parts = TextEncoder.fit(iter(TITLES))
    assert parts.vocabulary == whole.vocabulary
    np.testing.assert_array_equal(parts.encode(TITLES).toarray(), rows)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=8),
    st.sampled_from(["words", "wordpieces", "ngrams"]),
    st.sampled_from(["none", "english"]),
)
def test_any_text_gives_unit_rows_or_empty_ones(titles, tokenizer, stop_words):
    try:
        encoder = TextEncoder.fit(titles, tokenizer=tokenizer, stop_words=stop_words)
    except DataError:
        return
    X = encoder.encode(titles)
    assert X.shape == (len(titles), encoder.feature_count)
    assert X.dtype == np.float32
    assert X.has_canonical_format
    lengths = np.sqrt((X.toarray().astype(np.float64) ** 2).sum(axis=1))
    assert np.all((lengths == 0) | (np.abs(lengths - 1) < 1e-5))
    assert X.nnz > 0
    one_by_one = [encoder.encode([title]).toarray()[0] for title in titles]
    np.testing.assert_array_equal(X.toarray(), one_by_one)


def test_tiny_and_empty_text():
    encoder = TextEncoder.fit(["x"])
    assert encoder.encode([]).shape == (0, 1)
    assert encoder.encode(["", "y"]).nnz == 0
    for nothing in ([], [""], ["...", "--"], ["the of"]):
        with pytest.raises(DataError, match="no title holds a single word"):
            TextEncoder.fit(nothing, stop_words="english")
    with pytest.raises(DataError, match="min_count"):
        TextEncoder.fit(["a b", "c"], min_count=2)


def test_a_limit_beyond_all_pieces_is_no_limit():
    every = TextEncoder.fit(TITLES, tokenizer="wordpieces", max_features=1000)
    endless = TextEncoder.fit(TITLES, tokenizer="wordpieces", max_features=10**30)
    assert endless.vocabulary == every.vocabulary


@pytest.mark.parametrize(
    "wrong",
    [{"tokenizer": "bpe"}, {"stop_words": "klingon"}, {"min_count": 0}, {"max_features": 0}, {"max_features": True}],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(InputError):
        TextOptions(**wrong)


def test_what_is_no_encoder_is_refused():
    stored = TextEncoder.fit(TITLES).to_dict()
    for wrong in (None, {}, stored | {"vocabulary": ["a"]}, stored | {"pieces": "{}"}, stored | {"title_counts": "x"}):
        with pytest.raises(DataError, match="not a stored text encoder"):
            TextEncoder.from_dict(wrong)
    pieces = TextEncoder.fit(TITLES, tokenizer="wordpieces").to_dict()
    with pytest.raises(DataError, match="not a stored word-piece model"):
        TextEncoder.from_dict(pieces | {"pieces": "{}"}).encode(["a"])


def test_ngrams_are_all_runs_of_three_or_four_letters_of_marked_words():
    encoder = TextEncoder.fit(["an ant", "ant"], tokenizer="ngrams")
    assert set(encoder.vocabulary) == {"▁an", "an▁", "▁an▁", "ant", "nt▁", "▁ant", "ant▁"}
    counts = dict(zip(encoder.vocabulary, encoder.title_counts.tolist(), strict=True))
    assert counts == {"▁an": 2, "an▁": 1, "▁an▁": 1, "ant": 2, "nt▁": 2, "▁ant": 2, "ant▁": 2}
    row = encoder.encode(["antler"]).toarray()[0]
    assert {encoder.vocabulary[i] for i in np.flatnonzero(row)} == {"▁an", "ant", "▁ant"}
    assert np.linalg.norm(row) == pytest.approx(1)


def words_in_order(encoder, sequences):
    rows = itertools.pairwise(sequences.indptr)
    return [[encoder.vocabulary[token] for token in sequences.indices[first:last]] for first, last in rows]


def test_sequences_have_the_known_words_in_their_order():
    encoder = TextEncoder.fit(["b e c", "the d"], stop_words="english")
    found = encoder.sequences(["E b, unknown the e!", "", "never seen", "d c b e"])
    assert words_in_order(encoder, found) == [["e", "b", "e"], [], [], ["d", "c", "b", "e"]]
    assert found.shape == (4, 4)
    assert (found.data == 1).all()
    cut = encoder.sequences(["e b e c", "", "c"], length=2)
    assert words_in_order(encoder, cut) == [["e", "b"], [], ["c"]]
    assert encoder.sequences([]).shape == (0, 4)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text("abc d", max_size=12), min_size=1, max_size=6), st.data())
def test_sequences_keep_their_order_wherever_rows_go(titles, data):
    encoder = TextEncoder.fit(["a b c", *titles])
    found = encoder.sequences(titles)
    assert words_in_order(encoder, found) == [title.split() for title in titles]
    picked = np.array(data.draw(st.lists(st.integers(0, len(titles) - 1), max_size=8)), np.int64)
    expected = [titles[i].split() for i in picked]
    assert words_in_order(encoder, found[picked]) == expected
    batch = Points(found, sp.csr_array((len(titles), 2), dtype=np.float32)).cut(picked)
    assert words_in_order(encoder, batch.X) == expected


def test_sequences_count_what_the_bag_counts():
    encoder = TextEncoder.fit(TITLES)
    counts = encoder.sequences(TITLES).toarray().astype(np.float32)
    np.testing.assert_allclose(encoder.to_tfidf(sp.csr_array(counts)).toarray(), encoder.encode(TITLES).toarray())


def test_only_whole_words_have_sequences():
    with pytest.raises(ValueError, match="this encoder has ngrams"):
        TextEncoder.fit(TITLES, tokenizer="ngrams").sequences(TITLES)


def test_an_encoder_survives_as_values(tmp_path):
    encoder = TextEncoder.fit(TITLES, min_count=2)
    save_values(tmp_path, {"encoder": encoder.to_values()})
    again = TextEncoder.from_dict(load_values(tmp_path)["encoder"])
    assert again.to_dict() == encoder.to_dict()


@pytest.mark.parametrize(
    ("word", "known", "pieces"),
    [
        ("htmlpreelement", {"html", "pre", "element"}, ["html", "pre", "element"]),
        ("htmlpreelement", {"html", "element"}, []),
        ("rainjacket", {"rain", "jacket", "rainjack", "et"}, ["rain", "jacket"]),
        ("abcabcabc", {"abc", "abcabc"}, ["abc", "abcabc"]),
        ("tobe", {"to", "be"}, []),
        ("", {"abc"}, []),
        ("abc" * 40, {"abc"}, []),
    ],
)
def test_a_word_is_cut_into_the_fewest_known_words(word, known, pieces):
    assert cut_word(word, known) == pieces


@settings(deadline=None, max_examples=100)
@given(st.sets(st.text("ab", min_size=1, max_size=5)), st.text("ab", max_size=12))
def test_cuts_are_the_shortest_that_a_plain_search_finds(known, word):
    def cuts(rest):
        if not rest:
            return [[]]
        ends = [end for end in range(MIN_PIECE, len(rest) + 1) if rest[:end] in known]
        return [[rest[:end], *others] for end in ends for others in cuts(rest[end:])]

    every = cuts(word)
    found = cut_word(word, known)
    assert found in every or not every
    assert len(found) == min(map(len, every), default=0)


def test_unknown_words_count_as_the_known_words_in_them():
    titles = ["html element", "pre", "html pre page"]
    plain = TextEncoder.fit(titles)
    cutting = TextEncoder.fit(titles, cut_unknown=True)
    assert cutting.vocabulary == plain.vocabulary
    unknown = ["HTMLPreElement page", "page xyz"]
    apart = ["html pre element page", "page"]
    assert plain.encode(unknown).nnz == 2
    assert (cutting.encode(unknown) != plain.encode(apart)).nnz == 0
    assert words_in_order(cutting, cutting.sequences(unknown)) == [["html", "pre", "element", "page"], ["page"]]
    assert (cutting.encode(titles) != plain.encode(titles)).nnz == 0
    assert cutting.unknown_words(unknown) == (2, 3)
    assert TextEncoder.from_dict(json.loads(json.dumps(cutting.to_dict()))).options.cut_unknown


def test_encoders_stored_before_words_were_cut_load():
    stored = TextEncoder.fit(TITLES).to_dict()
    del stored["options"]["cut_unknown"]
    assert TextEncoder.from_dict(stored).options == TextOptions()
