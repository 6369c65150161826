"""The folded encoders compute what the trained modules did, and survive the disk."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xcbench.errors import DataError
from xcbench.kernels.csr import SparseRows
from xcbench.labels import Clustering
from xcbench.nn import DocumentEncoder, GatedBlock, ResidualBlock, TokenEmbeddings
from xcbench.shortlist.beam import BeamShortlister
from xcbench.shortlist.exact import ExactShortlister
from xcbench.shortlist.predictors import CascadePredictor, FixedEncoder, folded
from xcbench.shortlist.predictors import cascade as module
from xcbench.shortlist.predictors.beam import BeamPredictor
from xcbench.shortlist.predictors.shortlist import ShortlistPredictor
from xcbench.train import document_side

V, D, L = 12, 5, 9


def points(n):
    return sp.random_array((n, V), density=0.3, format="csr", dtype=np.float32, random_state=np.random.default_rng(n))


def trained(block):
    """A block as no start leaves it."""
    with torch.no_grad():
        for p in block.parameters():
            p += 0.3 * torch.randn_like(p)
    return block


def fixed(block, E):
    return FixedEncoder(**folded(block), E=E.weight.detach().numpy())


@pytest.mark.parametrize("kind", [GatedBlock, ResidualBlock])
def test_a_folded_encoder_is_the_encoder(kind):
    torch.manual_seed(0)
    encoder = DocumentEncoder(trained(kind(D, 0.5)), TokenEmbeddings(V, D)).eval()
    X = points(7)
    want = encoder(SparseRows.of(X)).detach().numpy()
    np.testing.assert_allclose(fixed(encoder.block, encoder.E)(X), want, rtol=1e-5, atol=1e-6)


def encoders(shared):
    torch.manual_seed(1)
    first, second = (fixed(trained(GatedBlock(D, 0.1)), TokenEmbeddings(V, D)) for _ in range(2))
    return first, dataclasses.replace(second, E=first.E) if shared else second


def stages(kind):
    random = np.random.default_rng(5)
    H, W, b = (random.normal(size=shape).astype(np.float32) for shape in ((3, D), (L, D), L))
    if kind == "beam":
        return BeamPredictor.of(BeamShortlister.of(H, Clustering.of(np.arange(L) % 3, 3), 2), W, b)
    return ShortlistPredictor.of(ExactShortlister.of(W), 4, W, b)


@pytest.mark.parametrize("kind", ["beam", "shortlist"])
@pytest.mark.parametrize("shared", [True, False])
def test_predictions_are_those_of_the_stages_and_survive_the_disk(kind, shared, tmp_path, monkeypatch):
    first, second = encoders(shared)
    predictor = CascadePredictor(first, second, stages(kind))
    X = points(8)
    want = predictor.ranker.predict(first(X), second(X), 6)
    found = predictor.predict(X, 6)
    np.testing.assert_array_equal(found.indices, want.indices)
    np.testing.assert_allclose(found.scores, want.scores, rtol=1e-5)
    predictor.save(tmp_path)
    monkeypatch.setattr(module, "POINTS_AT_ONCE", 3)
    loaded = CascadePredictor.load(tmp_path)
    assert (loaded.first.E is loaded.second.E) == shared
    np.testing.assert_array_equal(loaded.predict(X, 6).indices, want.indices)
    assert len(loaded.predict(points(8)[:0], 6)) == 0


def test_a_damaged_folder_is_said_in_one_line(tmp_path):
    with pytest.raises(DataError, match="two saved encoders"):
        CascadePredictor.load(tmp_path)


def test_documents_read_tokens_until_the_embeddings_are_frozen():
    E, X = TokenEmbeddings(V, D), points(4)
    block = trained(GatedBlock(D, 0.0))
    learning, tokens = document_side(block, E, X)
    frozen, vectors = document_side(block, E, X, frozen=True)
    assert [n for n, _ in learning.named_parameters() if n.startswith("E.")] == ["E.weight"]
    assert not [n for n, _ in frozen.named_parameters() if n.startswith("E.")]
    torch.testing.assert_close(frozen.eval()(vectors), learning.eval()(SparseRows.of(tokens)))


def test_many_points_are_encoded_in_parts_and_none_at_all_too(monkeypatch):
    encoder = fixed(trained(GatedBlock(D, 0.0)), TokenEmbeddings(V, D))
    whole = encoder(points(7))
    monkeypatch.setattr(module, "POINTS_AT_ONCE", 3)
    np.testing.assert_allclose(encoder(points(7)), whole, rtol=1e-6)
    assert encoder(points(7)[:0]).shape == (0, D)
