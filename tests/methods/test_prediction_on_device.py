"""Every predictor that can move to a device predicts there what it predicts on the CPU."""

import numpy as np
import pytest
from xcbench.methods import decaf, eclare

from tests.methods.problems import needs, train
from tests.shortlist.reference import assert_close, random_graph
from tests.stand_in_device import DEVICE, MEMORY, StandInDevice
from xcbench.errors import XCBenchError
from xcbench.labels import Clustering
from xcbench.nn import TokenEmbeddings
from xcbench.plugins.config import build
from xcbench.plugins.contract import MovablePredictor
from xcbench.runner import model as model_module
from xcbench.runner.execute import run
from xcbench.runner.model import Model
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import BeamShortlister
from xcbench.shortlist.device import DeviceCascade

QUICK = {"min_steps": 8, "batch_size": 32, "epochs": 1}


def settings(*modules):
    """A few steps of training in each module."""
    return {"dim": 8} | {f"{module}.{key}": value for module in modules for key, value in QUICK.items()}


def encoder_settings(*modules):
    """The same for methods whose encoder has settings of its own."""
    return {"encoder.dim" if key == "dim" else key: value for key, value in settings(*modules).items()}


CASCADE = settings("surrogate.training", "shortlister.training", "extreme.training")
METHODS = {
    "decaf": ("decaf", CASCADE | {"clusters": 16, "beam": 6}),
    "decaf with nearest neighbours": ("decaf", CASCADE | {"shortlist": "hnsw"}),
    "eclare": ("eclare", CASCADE | {"clusters": 16, "beam": 6}),
    "eclare as in the paper": ("eclare", CASCADE | {"clusters": 16, "beam": 6, "game.mode": "paper"}),
    "astec": ("astec", settings("surrogate", "extreme")),
    "elias": ("elias", encoder_settings("warm_up", "fixed", "learnt") | {"index.clusters": 8}),
    "ova": ("ova", encoder_settings("training")),
    "siamese": ("siamese", {"dim": 8, "epochs": 1}),
    "slice": ("slice", {"dim": 20}),
}


@pytest.fixture(scope="module")
def data():
    return toy_dataset()


@pytest.mark.parametrize("name", [*[*METHODS][:-1], pytest.param("slice", marks=needs("dismec"))])
def test_predictions_are_those_of_the_cpu(name, data, tmp_path):
    method, config = METHODS[name]
    predictor = train(method, data, **config)
    X = data.test.X
    expected = predictor.predict(X, 10)
    assert isinstance(predictor, MovablePredictor)
    assert np.array_equal(predictor.to("cpu").predict(X, 10).scores, expected.scores)

    with StandInDevice() as device:
        there = predictor.to("standin")
        assert device.count("to device") > 0
        assert_close(there.predict(X, 10), expected)
        assert there.predict(X[:0], 10).indices.shape == (0, 10)
        there.save(tmp_path)
    assert np.array_equal(type(predictor).load(tmp_path).predict(X, 10).scores, expected.scores)


@pytest.mark.parametrize("on_device", [False, True])
def test_astec_predicts_in_parts(data, monkeypatch, on_device):
    predictor = train("astec", data, **METHODS["astec"][1])
    expected = predictor.predict(data.test.X, 10)
    monkeypatch.setattr("xcbench.shortlist.predictors.cascade.POINTS_AT_ONCE", 7)
    monkeypatch.setattr("xcbench.shortlist.device.blocks.POINTS_AT_ONCE", 3)
    sizes = []
    shortlist = type(predictor.neighbours).shortlist

    def counted(self, f, k):
        sizes.append(len(f))
        return shortlist(self, f, k)

    monkeypatch.setattr(type(predictor.neighbours), "shortlist", counted)
    with StandInDevice():
        found = predictor.to("standin" if on_device else "cpu").predict(data.test.X, 10)
    assert max(sizes) == 7
    assert sum(sizes) == len(data.test)
    assert_close(found, expected)


def test_training_points_are_shortlisted_on_the_device(data):
    random = np.random.default_rng(0)
    L = data.label_count
    K = 8
    D = 6
    H = random.normal(size=(K, D)).astype(np.float32)
    x = random.normal(size=(len(data.train), D)).astype(np.float32)
    clustering = Clustering.of(np.arange(L) % K, K)
    found = BeamShortlister.of(H, clustering, 3)
    config = build(decaf.DecafConfig, {})
    on_cpu = decaf.training_candidates(config, found, x, "cpu")
    with StandInDevice() as device:
        there = decaf.training_candidates(config, found, x, "standin")
        assert (K, D) in {event.shape for event in device.events}
    assert np.array_equal(there.groups, on_cpu.groups)


def test_eclare_shortlists_training_points_on_the_device(data):
    random = np.random.default_rng(1)
    L = data.label_count
    K = 8
    D = 6
    E = TokenEmbeddings(data.feature_count, D)
    shortlister = {
        "H": random.normal(size=(K, D)).astype(np.float32),
        "bias": random.normal(size=K).astype(np.float32),
        "cluster_of": np.arange(L) % K,
        "graph": random_graph(random, L, 0.1),
        "encoder": {
            "W": random.normal(size=(D, D)).astype(np.float32),
            "b": np.ones(D, np.float32),
            "skip": np.ones(D, np.float32),
        },
    }
    config = build(eclare.EclareConfig, {"beam": 3})
    given = (config, E, data.train, shortlister, shortlister["graph"])
    on_cpu = eclare.training_candidates(*given)
    with StandInDevice() as device:
        there = eclare.training_candidates(*given, "standin")
        copied = {event.shape for event in device.events}
    assert {(K, D), (data.feature_count, D)} <= copied
    assert np.array_equal(there.groups, on_cpu.groups)


@needs("dismec")
def test_a_run_on_a_device_predicts_there(data, tmp_path, monkeypatch):
    spec = RunSpec("slice", overrides={"dim": "20"})
    on_cpu = run(spec, data=data, store=tmp_path / "cpu", cache=tmp_path / "cache", device="cpu")
    monkeypatch.setattr("xcbench.runner.execute.choose_device", lambda requested: requested)
    monkeypatch.setattr("xcbench.runner.execute.check_device", lambda requested: None)
    with StandInDevice() as device:
        there = run(spec, data=data, store=tmp_path / "there", cache=tmp_path / "cache", device="standin:0")
    assert device.count("to device") > 0
    assert there.environment["device"] == "standin:0"
    assert_close(there.predictions(), on_cpu.predictions())


def test_a_model_moves_what_can_move(data):
    popularity = train("popularity", data)
    movable = train("decaf", data, **METHODS["decaf"][1])
    model = Model((popularity, movable), data.label_count)
    expected = model.predict(data.test.X, 5)
    assert model.to("cpu").members == model.members
    with StandInDevice():
        there = model.to(str(DEVICE))
        assert there.members[0] is popularity
        assert isinstance(there.members[1], DeviceCascade)
        assert_close(there.predict(data.test.X, 5), expected)


def test_a_model_that_does_not_fit_is_refused_before_anything_is_copied(data, monkeypatch):
    movable = train("decaf", data, **METHODS["decaf"][1])
    popularity = train("popularity", data)
    model = Model((movable, popularity), data.label_count)
    monkeypatch.setattr(model_module, "free_memory", lambda device: 1 << 20)
    with StandInDevice() as device:
        with pytest.raises(XCBenchError, match=r"the model needs about 12 MiB on standin:0, and 1 MiB are free; --dev"):
            model.to(str(DEVICE))
        assert device.count("to device") == 0
        assert Model((popularity,), data.label_count).to(str(DEVICE)).members == (popularity,)


@pytest.mark.parametrize("name", ["decaf", "eclare", "eclare as in the paper", "astec"])
def test_what_a_model_takes_on_a_device_is_known_before(data, name):
    method, config = METHODS[name]
    predictor = train(method, data, **config)
    with StandInDevice():
        before = MEMORY.start_of_peak()
        there = predictor.to("standin")
        taken = MEMORY.living - before
        assert model_module._bytes_on_device([predictor]) == taken > 0
        there.predict(data.test.X[:1], 1)
