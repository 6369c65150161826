"""InceptionXML's encoder against a plain one that pads every title to S words and multiplies as the paper writes."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import conv1d, gelu, pad

from xcbench.errors import InputError
from xcbench.kernels.csr import SparseRows
from xcbench.nn import InceptionEncoder, PointNorm, TokenEmbeddings, inception_size
from xcbench.nn.dropout import start_step

VOCABULARY = 30


def titles(*lengths, seed=0):
    """Titles of so many random words."""
    random = np.random.default_rng(seed)
    indptr = np.cumsum([0, *lengths])
    tokens = random.integers(0, VOCABULARY, indptr[-1]).astype(np.int32)
    return SparseRows(indptr, tokens, np.ones(len(tokens), np.float32), VOCABULARY)


def encoder(dim=128, length=8, dropout=0.0):
    """An encoder whose gates are open: at their start, at 0, the attentions would not matter."""
    torch.manual_seed(0)
    module = InceptionEncoder(TokenEmbeddings(VOCABULARY, dim), length, dropout)
    with torch.no_grad():
        module.g1.fill_(0.3)
        module.g2.fill_(-0.2)
        module.projection.bias.normal_()
    return module


def padded(module, texts):
    """X0 [points, S, D], with zeros behind the last word."""
    S = module.length
    X0 = torch.zeros(len(texts), S, module.E.weight.shape[1])
    for i in range(len(texts)):
        tokens = texts.indices[texts.indptr[i] : texts.indptr[i + 1]]
        X0[i, : len(tokens)] = module.E.weight[tokens]
    return X0


def attended(module, texts):
    """X2 as the paper writes it."""
    X0 = padded(module, texts)
    W1 = module.W1()
    W2 = module.W2()
    X1 = X0 + module.g1 * (X0 @ X0.transpose(1, 2)) @ (W1 @ X0)
    X1_T = X1.transpose(1, 2)
    X2_T = X1_T + module.g2 * (X1_T @ X0) @ (W2 @ X1_T)
    return X2_T.transpose(1, 2)


def reference(module, texts):
    """The whole encoder, in eval mode."""
    rows = conv1d(attended(module, texts), module.projection.weight, module.projection.bias)
    rows = module.projection_norm(gelu(rows))
    branches = [
        conv1d(pad(rows, (beyond, beyond), "circular"), branch.weight, branch.bias, 4)
        for branch, beyond in zip(module.branches, (0, 2, 6), strict=True)
    ]
    rows = module.branches_norm(gelu(torch.cat(branches, 1)))
    rows = module.last_norm(gelu(conv1d(rows, module.last.weight, module.last.bias, 4)))
    return rows.flatten(1)


def test_shapes_and_parameters_are_the_papers():
    module = InceptionEncoder(TokenEmbeddings(VOCABULARY, 300), 32)
    assert inception_size(300) == 480
    assert module(titles(3, 32, 1, 0)).shape == (4, 480)
    parameters = sum(parameter.numel() for parameter in module.parameters()) - VOCABULARY * 300
    head = 480 * 480 + 480 + 2 * 480
    assert parameters + head == 402_194
    assert module.g1.item() == module.g2.item() == 0


@pytest.mark.parametrize("lengths", [(3, 8, 1), (1,), (5, 0, 2), (0, 0)])
@pytest.mark.parametrize("training", [True, False])
def test_encoder_equals_a_plain_one(lengths, training):
    module = encoder()
    texts = titles(*lengths)
    module.train(training)
    plain = encoder().train(training)
    torch.testing.assert_close(module(texts), reference(plain, texts), rtol=1e-3, atol=1e-4)


def test_gradients_equal_those_of_a_plain_one():
    texts = titles(3, 8, 1, 5)
    direction = torch.randn(4, inception_size(128))
    grads = []
    for compute in (InceptionEncoder.forward, reference):
        module = encoder().train()
        (compute(module, texts) * direction).sum().backward()
        grads.append({name: parameter.grad for name, parameter in module.named_parameters()})
    assert set(grads[0]) == set(grads[1])
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-3, atol=1e-3, msg=name)


def test_padding_never_changes_a_titles_vector():
    module = encoder().eval()
    texts = titles(2, 8, 5, 0)
    together = module(texts)
    for i in range(4):
        alone = module(texts.take(np.array([i])))
        torch.testing.assert_close(alone[0], together[i], rtol=1e-5, atol=1e-6)


def test_word_order_matters():
    module = encoder().eval()
    tokens = np.array([4, 7, 4], np.int32)
    indptr = np.array([0, 3])
    ones = np.ones(3, np.float32)
    first = module(SparseRows(indptr, tokens, ones, VOCABULARY))
    second = module(SparseRows(indptr, tokens[[1, 0, 2]], ones, VOCABULARY))
    assert (first - second).abs().max() > 1e-3


def test_dropout_follows_the_step_and_words_get_gradients():
    module = encoder(dropout=0.25).train()
    texts = titles(3, 4)
    outputs = []
    for step in (5, 5, 6):
        start_step(1, step)
        module.W1.u.fill_(0.1)  # a power iteration moves it at each step
        module.W2.u.fill_(0.1)
        outputs.append(module(texts))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    outputs[0].sum().backward()
    assert set(np.flatnonzero(module.E.touched)) == set(texts.indices)


def test_a_batch_of_one_point_is_normed_by_the_running_figures():
    norm = PointNorm(3).train()
    norm(torch.randn(50, 3) * 4 + 1)
    before = norm.running_mean.clone()
    x = torch.randn(1, 3)
    expected = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(norm(x), expected)
    assert torch.equal(norm.running_mean, before)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="up to 9 words met an encoder for 8"):
        encoder()(titles(2, 9))
    for dim in (8, 62, 66):
        with pytest.raises(InputError, match=f"got {dim}"):
            InceptionEncoder(TokenEmbeddings(VOCABULARY, dim))


def test_places_in_a_table():
    matrix = sp.csr_array(np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], np.float32))
    T, places = SparseRows.of(matrix).in_table()
    assert T == 3
    assert places.tolist() == [0, 1, 6, 7, 8]
    assert SparseRows.of(matrix[1:2]).in_table()[0] == 0
