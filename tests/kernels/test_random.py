"""splitmix64 in its three forms: the same words, and those of the published generator."""

import numpy as np
import pytest
import torch

from xcbench.kernels.random import (
    STEP,
    below,
    scramble,
    scramble_int,
    seed_word,
    stream,
    word_at,
    word_at_int,
    words_at_tensor,
)

KEYS = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]


def test_the_words_are_the_published_generators():
    """The first outputs of splitmix64 with seed 1234567, from the reference implementation by Sebastiano Vigna."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [word_at_int(1234567, t) for t in (1, 2, 3)] == published


@pytest.mark.parametrize("key", KEYS)
def test_all_forms_give_the_same_words(key):
    addresses = list(range(50))
    words = [word_at_int(key, address) for address in addresses]
    compiled = [int(word_at(np.uint64(key), address)) for address in addresses]
    tensor = words_at_tensor(key, torch.tensor(addresses))
    assert compiled == words
    assert tensor.numpy().view(np.uint64).tolist() == words
    assert int(scramble(np.uint64(key))) == scramble_int(key)


def test_a_stream_depends_on_seed_and_address():
    keys = {int(stream(seed_word(seed), address)) for seed in (-1, 0, 1) for address in range(20)}
    assert len(keys) == 60
    assert int(stream(seed_word(5), 3)) == word_at_int(scramble_int(5 + int(STEP)), 3)


def test_numbers_are_below_their_bound():
    drawn = [below(np.uint64(word_at_int(3, t)), 7) for t in range(500)]
    assert set(drawn) == set(range(7))
