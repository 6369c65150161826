"""Every setting of every method changes the keys of exactly the stages that read it.

Reading an undeclared setting raises (tests/runner/test_stages.py). Here all methods are trained, with all their
ablations, while it is written down which settings each stage reads: what is declared must be read by someone.
"""

import dataclasses
import typing

import numpy as np
import pytest

from tests.methods.problems import needs, quick
from tests.tiny_transformer import make_model
from xcbench.plugins.config import build, known_keys, leaves
from xcbench.plugins.contract import Method
from xcbench.plugins.registry import entries, get_method, get_reranker
from xcbench.plugins.stages import ConfigView
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.train import Schedule

VARIANTS = {
    "decaf": [{"embeddings": "pretrained"}],
    "siamese": [{"rounds": 2}],
    "annexml": [{"part_points": 50}],
}
"""Settings beside the ablations that lead to further code."""


def plugins():
    found = [get_method(entry.name) for entry in entries("method") if not entry.problem]
    found += [get_reranker(entry.name) for entry in entries("reranker") if not entry.problem]
    return [plugin for plugin in found if plugin.stages and plugin.name != "xrlinear"]


PLUGINS = {plugin.name: plugin for plugin in plugins()}


def keys(plugin, config, data, folder):
    run = RunContext(0, "cpu", data, StageCache(folder), plugin(config))
    return {stage.name: run.plan(stage, data).key for stage in plugin.stages}


def another(key, value, declared, tmp_path):
    """A valid value other than this one."""
    if key == "vectors":
        path = tmp_path / "vectors.npy"
        np.save(path, np.zeros((2, 2), np.float32))
        return str(path)
    options = [option for option in typing.get_args(declared) if option is not type(None)]
    if typing.get_origin(declared) is typing.Literal:
        return next(option for option in options if option != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (list, tuple)) or typing.get_origin(declared) is tuple:
        return [*(value or []), 0.9]
    if key == "word_dim":
        return value + 4
    if key.endswith(".schedule"):
        return Schedule("constant")
    if value is None:
        return 0.5 if float in options else 7
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}?"
    return value / 2 if value else 0.125


@pytest.fixture(scope="module")
def data():
    return toy_dataset()


@pytest.fixture(scope="module")
def reads(data, tmp_path_factory):
    """By plug-in and stage, the settings that are read while it trains with all its ablations."""
    found = {}

    def trained(name):
        if name not in found:
            found[name] = trace(PLUGINS[name], data, tmp_path_factory.mktemp(name))
        return found[name]

    return trained


def other_encoders(plugin, folder):
    """Settings with which a method reads titles, where its encoder can be exchanged."""
    if not hasattr(plugin.config_type(), "encoder"):
        return []
    pytest.importorskip("transformers", reason="the extra xcbench[transformer] is not installed")
    model = make_model(folder / "model")
    return [{"encoder.kind": "transformer", "encoder.model": model, "encoder.frozen": True}]


def trace(plugin, data, folder):
    seen = {stage.name: set() for stage in plugin.stages}
    original = ConfigView.__getattr__

    def spy(self, name):
        value = original(self, name)
        fields = {field.name for field in dataclasses.fields(self._config)}
        if name in fields and not isinstance(value, ConfigView):
            seen[self._stage.name].add(self._prefix + name)
        return value

    ablations = [ablation.patch for ablation in getattr(plugin, "ablations", {}).values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigView, "__getattr__", spy)
        for variant in [{}, *ablations, *VARIANTS.get(plugin.name, []), *other_encoders(plugin, folder)]:
            method = plugin(build(plugin.config_type, quick(plugin), variant))
            run = RunContext(0, "cpu", data, StageCache(folder), method)
            if isinstance(method, Method):
                method.fit(data, run)
            else:
                for stage in plugin.stages:
                    run.stage(stage, data)
    return seen


def covers(read, key):
    """Whether the setting, or a group that holds it, was read."""
    return any(key == one or key.startswith(f"{one}.") for one in read)


@pytest.mark.parametrize("name", PLUGINS)
def test_each_setting_changes_the_keys_of_the_stages_that_read_it_and_of_those_behind_them(name, data, reads, tmp_path):
    plugin = PLUGINS[name]
    read_by = reads(name)
    before = keys(plugin, plugin.config_type(), data, tmp_path)
    declared = known_keys(plugin.config_type)
    for key, value in leaves(plugin.config_type()).items():
        # What is inside a mapping, such as the groups of a training, is not declared key by key.
        changed = build(plugin.config_type, {key: another(key, value, declared.get(key), tmp_path)})
        after = keys(plugin, changed, data, tmp_path)
        readers = [stage for stage in plugin.stages if covers(read_by[stage.name], key)]
        expected = {stage.name for stage in plugin.stages if any(stage.depends_on(reader) for reader in readers)}
        assert {stage for stage in before if before[stage] != after[stage]} == expected, key


def test_every_built_in_plug_in_with_stages_is_looked_at():
    assert {"astec", "decaf", "eclare", "dismec", "mach", "siamese", "slice", "game"} <= set(PLUGINS)


@needs("xrlinear")
def test_xrlinear_reads_all_its_settings_but_the_beam(data, tmp_path):
    """Its library lives in an environment of its own, so that what it reads is not watched here."""
    plugin = get_method("xrlinear")
    before = keys(plugin, plugin.config_type(), data, tmp_path)
    for key, value in leaves(plugin.config_type()).items():
        changed = build(plugin.config_type, {key: another(key, value, known_keys(plugin.config_type)[key], tmp_path)})
        assert (keys(plugin, changed, data, tmp_path) == before) is (key == "beam_size"), key
