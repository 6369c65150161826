"""Tokens that share company are close; files are read strictly."""

import numpy as np
import pytest
import scipy.sparse as sp

from xcbench.data.word_vectors import learn_vectors, read_vectors, read_word_vectors, vectors_digest
from xcbench.errors import DataError


def test_tokens_with_the_same_company_are_close():
    random = np.random.default_rng(0)
    bags = np.zeros((400, 12), np.float32)
    for bag in bags:  # two topics of six tokens, four of one topic in each text
        bag[6 * random.integers(2) + random.permutation(6)[:4]] = 1
    vectors = learn_vectors(sp.csr_array(bags), 3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    cosines = vectors @ vectors.T
    assert cosines[:6, :6].min() > 0.3 > cosines[:6, 6:].max()
    np.testing.assert_array_equal(vectors, learn_vectors(sp.csr_array(bags), 3))


@pytest.mark.parametrize("bags", [np.zeros((2, 3)), np.eye(3), np.ones((1, 1))])
def test_text_without_pairs_has_zero_vectors(bags):
    vectors = learn_vectors(sp.csr_array(bags.astype(np.float32)), 5)
    assert vectors.shape == (bags.shape[1], 5)
    assert not vectors.any()


def test_files_are_read_strictly(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, np.ones((3, 2)))
    assert read_vectors(path, (3, 2)).dtype == np.float32
    with pytest.raises(DataError, match=r"expected floats of shape \(3, 4\)"):
        read_vectors(path, (3, 4))
    path.write_text("no array")
    with pytest.raises(DataError, match="npy"):
        read_vectors(path, (3, 2))


def test_a_file_is_told_from_another_by_what_it_holds(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    assert vectors_digest(tmp_path / "a") != vectors_digest(tmp_path / "b")
    with pytest.raises(DataError, match=r"nosuch\.npy: cannot be read \(No such file"):
        vectors_digest(tmp_path / "nosuch.npy")


def test_word_vectors_are_read_by_word(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\nred apple 3 4\nPear 5 6\nred 7 8e0\nred 0 0\n")
    places, vectors = read_word_vectors(path, ["red", "pear", "the", "red apple"], 2)
    assert dict(zip(places.tolist(), vectors.tolist(), strict=True)) == {2: [1, 2], 3: [3, 4], 0: [7, 8]}
    path.write_text("2 2\nred 7 8 \nthe 1 2\n")  # word2vec's first line has two counts
    places, vectors = read_word_vectors(path, ["red"], 2)
    assert vectors.tolist() == [[7, 8]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2\nred 1\n", r"glove.txt, line 2: expected a word and 2 numbers, got 1 numbers"),
        ("the 1 2\nred 1 x\n", r"glove.txt, line 2: expected 2 numbers after the word: .*'x'"),
        ("the 1 2\nred 1 nan\n", r"glove.txt, line 2: expected finite numbers"),
        ("the 1 2\n", "holds a vector of none of the 1 words"),
        ("", "holds a vector of none of the 1 words"),
        ("\x80PNG\n", "line 1: expected a word and 2 numbers"),
    ],
)
def test_bad_word_vectors_are_refused_with_their_line(tmp_path, content, message):
    path = tmp_path / "glove.txt"
    path.write_text(content, "latin-1")
    with pytest.raises(DataError, match=message):
        read_word_vectors(path, ["red"], 2)
    with pytest.raises(DataError, match="cannot be read"):
        read_word_vectors(tmp_path, ["red"], 2)


def test_equal_singular_values_give_the_same_vectors_each_time():
    """Twelve pairs of words that are alike but for their names: an iterative solver may begin at any mixture."""
    pairs = sp.csr_array(np.repeat(np.kron(np.eye(12), np.ones((1, 2))), 3, axis=0).astype(np.float32))
    first = learn_vectors(pairs, 6)
    for _ in range(5):
        np.testing.assert_array_equal(learn_vectors(pairs, 6), first)
