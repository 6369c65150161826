"""Search and prediction on another device give what the CPU gives, copy tables once, and keep to their memory."""

import dataclasses
import math
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.shortlist.reference import assert_close, random_graph
from tests.stand_in_device import DEVICE, StandInDevice, StandInTensor
from xcbench.errors import InputError
from xcbench.kernels.selection import key_of
from xcbench.labels import Clustering
from xcbench.shortlist import BeamShortlister, ExactShortlister, Game, HNSWShortlister, exact_topk
from xcbench.shortlist.device import blocks
from xcbench.shortlist.device.rows import keys_of_sums, list_entries, longest_listing
from xcbench.shortlist.device.search import row_logits, search
from xcbench.shortlist.device.selection import keys_of, largest, unpacked
from xcbench.shortlist.predictors import BeamPredictor, CascadePredictor, FixedEncoder, ShortlistPredictor

N = 37
D = 16
L = 300
K = 40
V = 50


class Allocations(TorchDispatchMode):
    """Adds up the bytes of the device's tensors that operations make: the largest one, and all that live at a time."""

    def __init__(self):
        super().__init__()
        self.largest = 0
        self.living = 0
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {id(value) for value in tree_flatten((args, kwargs))[0]}
        for value in tree_flatten(result)[0]:
            if isinstance(value, StandInTensor) and id(value) not in given:
                self.count(value.data_on_cpu)
            elif isinstance(value, Tensor) and value.is_meta:
                self.count(value)
        return result

    def count(self, tensor):
        if tensor._is_view():
            return
        size = tensor.numel() * tensor.element_size()
        self.largest = max(self.largest, size)
        self.living += size
        self.peak = max(self.peak, self.living)
        weakref.finalize(tensor, self.release, size)

    def release(self, size):
        self.living -= size


@pytest.fixture
def random():
    return np.random.default_rng(8)


@pytest.fixture
def device():
    with StandInDevice() as device:
        yield device


@pytest.fixture(params=["all at once", "in small parts"])
def parts(request, monkeypatch):
    """Everything at once, or in blocks of which most have several."""
    if request.param == "in small parts":
        monkeypatch.setattr(blocks, "POINTS_AT_ONCE", 10)
        monkeypatch.setattr(blocks, "BYTES_AT_ONCE", 1500)


def normal(random, *shape):
    return random.normal(size=shape).astype(np.float32)


def clustering(random):
    """Clusters of very different sizes; one has no label."""
    return Clustering.of(np.minimum(random.geometric(0.08, L), K - 1) - 1, K)


def beam_shortlister(random, mode=None, power=1.0):
    game = None if mode is None else Game(random_graph(random, K, 0.1), 6, mode, power)
    return BeamShortlister.of(normal(random, K, D), clustering(random), 7, normal(random, K), game)


def beam_predictor(random, mode=None, power=1.0):
    game = None if mode is None else Game(random_graph(random, L, 0.05), 9, mode, power)
    shortlister = beam_shortlister(random, mode)
    return BeamPredictor.of(shortlister, 0.3 * normal(random, L, D), normal(random, L), game)


def encoder(random, E=None):
    E = normal(random, V, D) if E is None else E
    return FixedEncoder(0.2 * normal(random, D, D), normal(random, D), normal(random, D), E)


def points(random, n=N):
    return sp.random_array((n, V), density=0.2, format="csr", dtype=np.float32, random_state=random)


def test_keys_have_the_order_of_the_cpu_s_keys_and_keep_their_content(random):
    scores = np.array([-math.inf, -3.5, -1e-30, -0.0, 0.0, 1e-30, 0.7, 0.7, 3.0, math.inf], np.float32)
    labels = np.array([5, 2**31 - 1, 0, 3, 3, 1, 9, 4, 0, 7])
    keys = keys_of(torch.from_numpy(scores)[None], torch.from_numpy(labels))[0]
    expected = [key_of(score, label) for score, label in zip(scores, labels, strict=True)]
    assert np.array_equal(np.argsort(keys.numpy(), kind="stable"), np.argsort(expected, kind="stable"))
    content = unpacked(keys[None])
    np.testing.assert_array_equal(content.labels[0], labels)
    np.testing.assert_array_equal(content.scores[0], scores)


def test_what_is_missing_is_padded():
    keys = keys_of(torch.tensor([[0.5, 0.9]]), torch.tensor([[3, -1]]))
    content = unpacked(largest(keys, 4))
    assert content.labels.tolist() == [[3, -1, -1, -1]]
    assert content.scores.tolist() == [[0.5, -math.inf, -math.inf, -math.inf]]


def test_rows_are_listed_side_by_side():
    indptr = torch.tensor([0, 2, 2, 5])
    rows = torch.tensor([[2, -1, 0], [1, 1, -1]])
    assert longest_listing(indptr, rows) == 5
    listing = list_entries(indptr, rows, 5)
    assert listing.entries.tolist() == [[2, 3, 4, 0, 1], [0] * 5]
    assert listing.places[0].tolist() == [0, 0, 0, 2, 2]
    assert listing.is_entry.tolist() == [[True] * 5, [False] * 5]


def test_equal_labels_are_summed(random):
    labels = random.integers(-1, 6, (8, 30))
    values = random.random((8, 30)).astype(np.float32)
    found = unpacked(largest(keys_of_sums(torch.from_numpy(labels), torch.from_numpy(values), 30), 7))
    for i in range(8):
        sums = {label: values[i][labels[i] == label].sum() for label in range(6) if (labels[i] == label).any()}
        best = sorted(sums, key=sums.get, reverse=True)
        assert found.labels[i].tolist() == best + [-1] * (7 - len(best))
        np.testing.assert_allclose(found.scores[i][: len(best)], [sums[label] for label in best], rtol=1e-6)


@pytest.mark.usefixtures("parts", "device")
@pytest.mark.parametrize("k", [1, 5, L + 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_exact_search(random, k, with_bias):
    X, W = normal(random, N, D), normal(random, L, D)
    bias = normal(random, L) if with_bias else None
    expected = exact_topk(X, W, k, bias)
    assert_close(exact_topk(X, torch.from_numpy(W).to(DEVICE), k, bias), expected)
    assert_close(ExactShortlister.of(W, bias).to(DEVICE).shortlist(X, k), expected)


@pytest.mark.usefixtures("parts", "device")
def test_ties_are_broken_and_nan_left_out_as_on_the_cpu(random):
    X = random.integers(-1, 2, (N, D)).astype(np.float32)
    W = random.integers(-1, 2, (L, D)).astype(np.float32)
    W[5] = np.nan
    W[6] = -np.inf
    found = exact_topk(X, torch.from_numpy(W).to(DEVICE), 20)
    expected = exact_topk(X, W, 20)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.usefixtures("parts", "device")
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("mode", [None, "off", "code", "paper"])
def test_beams(random, mode, power):
    shortlister = beam_shortlister(random, mode, power)
    X = normal(random, N, D)
    there = shortlister.to(DEVICE)
    assert there.width == shortlister.width
    assert_close(there.clusters(X), shortlister.clusters(X))
    assert_close(there.clusters(torch.from_numpy(X).to(DEVICE)), shortlister.clusters(X))
    np.testing.assert_allclose(there.shortlist(X, 25).scores, shortlister.shortlist(X, 25).scores, rtol=1e-5)
    if mode is None:
        np.testing.assert_array_equal(there.shortlist(X, 25).indices, shortlister.shortlist(X, 25).indices)


@pytest.mark.usefixtures("parts", "device")
@pytest.mark.parametrize("k", [5, 300])
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("mode", [None, "off", "code", "paper"])
def test_prediction_by_beams(random, mode, power, k):
    predictor = beam_predictor(random, mode, power)
    X1, X2 = normal(random, N, D), normal(random, N, D)
    assert_close(predictor.to(DEVICE).predict(X1, X2, k), predictor.predict(X1, X2, k))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("mode", ["code", "paper"])
def test_a_graph_without_edges(random, mode):
    predictor = beam_predictor(random, mode)
    no_edges = Game(sp.csr_array((L, L), dtype=np.float32), 9, mode)
    predictor = dataclasses.replace(predictor, game=no_edges)
    X = normal(random, N, D)
    assert_close(predictor.to(DEVICE).predict(X, X, 5), predictor.predict(X, X, 5))


@pytest.mark.usefixtures("parts", "device")
@pytest.mark.parametrize("kind", ["exact", "beam", "hnsw"])
def test_prediction_behind_other_shortlisters(random, kind):
    W = normal(random, L, D)
    shortlister = {
        "exact": lambda: ExactShortlister.of(0.1 * W),
        "beam": lambda: beam_shortlister(random),
        "hnsw": lambda: HNSWShortlister.of(W),
    }[kind]()
    predictor = ShortlistPredictor.of(shortlister, 30, 0.3 * W, normal(random, L))
    X1, X2 = normal(random, N, D), normal(random, N, D)
    assert_close(predictor.to(DEVICE).predict(X1, X2, 8), predictor.predict(X1, X2, 8))


@pytest.mark.usefixtures("parts", "device")
@pytest.mark.parametrize("kind", ["beam", "exact"])
@pytest.mark.parametrize("shared", [True, False])
def test_cascades(random, kind, shared, tmp_path):
    predictor = cascade(random, kind, shared)
    X = points(random)
    there = predictor.to(DEVICE)
    np.testing.assert_allclose(predictor.first.to(DEVICE)(X), predictor.first(X), rtol=1e-5, atol=1e-5)
    assert_close(there.predict(X, 6), predictor.predict(X, 6))
    assert there.predict(X[:0], 6).indices.shape == (0, 6)

    there.save(tmp_path)
    loaded = CascadePredictor.load(tmp_path).predict(X, 6)
    np.testing.assert_array_equal(loaded.scores, predictor.predict(X, 6).scores)


def cascade(random, kind="beam", shared=True):
    first = encoder(random)
    second = encoder(random, first.E if shared else None)
    ranker = beam_predictor(random, "code")
    if kind == "exact":
        W = 0.1 * normal(random, L, D)
        ranker = ShortlistPredictor.of(ExactShortlister.of(W), 30, W)
    return CascadePredictor(first, second, ranker)


def test_tables_are_copied_once_and_then_only_points_and_results(random, device):
    predictor = cascade(random)
    X = points(random)
    with device.recording() as moving:
        there = predictor.to(DEVICE)
    copied = [event.shape for event in moving]
    assert {event.kind for event in moving} == {"to device"}
    assert copied.count((V, D)) == 1  # the embeddings that both encoders share
    assert copied.count((L, D)) == 1
    assert copied.count((K, D)) == 1

    for _ in range(2):
        with device.recording() as predicting:
            there.predict(X, 6)
        to_device = sum(event.size for event in predicting if event.kind == "to device")
        to_host = [event.shape for event in predicting if event.kind == "to host"]
        waits = [event for event in predicting if event.kind == "wait"]
        assert to_device <= 8 * (N + 1) + (8 + 4) * X.nnz  # the rows of X, and nothing else
        assert to_host == [(N, 6), (N, 6)]
        assert len(waits) == 3  # for the sizes of clusters, and of the neighbours in each graph

    assert predictor.to("cpu") is predictor
    assert there.to("cpu") is predictor


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("mode", [None, "code", "paper"])
def test_memory_keeps_to_the_limit_however_many_points(random, monkeypatch, mode):
    limit = 200_000
    monkeypatch.setattr(blocks, "BYTES_AT_ONCE", limit)
    monkeypatch.setattr(blocks, "POINTS_AT_ONCE", 200)
    predictor = beam_predictor(random, mode)
    there = predictor.to(DEVICE)
    X = normal(random, 700, D)
    with Allocations() as allocations:
        found = there.predict(X, X, 5)
    assert limit / 2 < allocations.largest <= limit
    assert allocations.peak <= 12 * limit
    assert_close(found, predictor.predict(X, X, 5))


@pytest.mark.usefixtures("device")
def test_blocks_are_smaller_where_less_memory_is_free(random, monkeypatch):
    limit = 200_000
    monkeypatch.setattr(blocks, "BYTES_AT_ONCE", limit)
    monkeypatch.setattr(blocks, "LEAST_BYTES_AT_ONCE", 1000)
    predictor = beam_predictor(random)
    there = predictor.to(DEVICE)
    X = normal(random, 700, D)
    asked = []

    def free_memory(device):
        asked.append(device)
        return 12 * limit // 8

    monkeypatch.setattr(blocks, "free_memory", free_memory)
    monkeypatch.setattr(blocks, "POINTS_AT_ONCE", 200)
    with Allocations() as allocations:
        found = there.predict(X, X, 5)
    assert set(asked) == {DEVICE}
    assert limit / 16 < allocations.largest <= limit // 8
    assert allocations.peak <= 12 * limit // 8
    assert_close(found, predictor.predict(X, X, 5))


def test_the_limit_holds_for_a_million_labels(monkeypatch):
    """The shapes of LF-AmazonTitles-1.3M, on torch's meta device, which computes shapes alone."""
    labels = 1_305_265
    clusters = 1 << 17
    dim = 512
    beam = 160
    members = 10
    monkeypatch.setattr(blocks, "free_memory", lambda device: 16 << 30)
    with torch.device("meta"):
        X = torch.empty(blocks.POINTS_AT_ONCE, dim)
        H = torch.empty(clusters, dim)
        W = torch.empty(labels, dim)
        no_bias = torch.empty(0)
        indptr = torch.empty(clusters + 1, dtype=torch.int64)
        best = torch.empty(len(X), beam, dtype=torch.int64)

    with Allocations() as allocations:
        search(X, H, no_bias, beam)
        search(X, W, no_bias, 100)
        listing = list_entries(indptr, best, beam * members)
        logits = row_logits(X, W, no_bias, listing.entries)
        largest(keys_of(logits, listing.entries), 100)
    assert blocks.BYTES_AT_ONCE / 2 < allocations.largest <= blocks.BYTES_AT_ONCE


@pytest.mark.usefixtures("device")
def test_wrong_widths_are_said_in_one_line(random):
    there = beam_predictor(random).to(DEVICE)
    with pytest.raises(InputError, match=r"expected vectors \[n, 16\], got \[37, 15\]"):
        there.predict(normal(random, N, 15), normal(random, N, D), 3)
    with pytest.raises(InputError, match="same points"):
        there.predict(normal(random, N, D), normal(random, 3, D), 3)
