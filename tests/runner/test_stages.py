"""Stages: what their keys are made of, that they run once, and that neither a kill nor a crowd can hurt them."""

import dataclasses
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.runner.staged_method import Staged, StagedConfig
from xcbench.data.binary import store_dataset
from xcbench.errors import XCBenchError
from xcbench.plugins import Method, all_but, settings_of, stage
from xcbench.plugins.stages import IDENTITY
from xcbench.runner.context import RunContext
from xcbench.runner.execute import run
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

METHOD = str(Path(__file__).with_name("staged_method.py"))


@pytest.fixture(scope="module")
def data():
    return toy_dataset()


@pytest.fixture
def cache(tmp_path):
    return StageCache(tmp_path / "stages")


@pytest.fixture
def trace(tmp_path):
    class Trace:
        path = str(tmp_path / "trace.txt")

        def take(self):
            """What was computed since the last look."""
            path = Path(self.path)
            lines = path.read_text().splitlines() if path.exists() else []
            path.unlink(missing_ok=True)
            return lines

    return Trace()


def context(cache, data, config=None, seed=0, **more):
    return RunContext(seed, "cpu", data, cache, Staged(config or StagedConfig()), **more)


def fit(cache, data, trace, seed=0, member=0, **changes):
    config = dataclasses.replace(StagedConfig(trace=trace.path), **changes)
    run = context(cache, data, config, seed).member(member)
    return Staged(config).fit(data, run), run


RANK = [f"rank {step}" for step in range(5)]


def test_a_second_fit_computes_nothing_and_gives_the_same(cache, data, trace):
    first, _ = fit(cache, data, trace)
    assert trace.take() == ["graph", "clusters", *RANK]
    second, run = fit(cache, data, trace)
    assert trace.take() == []
    assert np.array_equal(first.W, second.W)
    assert [(r.name, r.state) for r in run.stage_reports()] == [
        ("graph", "unused"),
        ("clusters", "unused"),
        ("rank", "reused"),
    ]


def test_an_ablation_computes_only_what_it_changes(cache, data, trace):
    fit(cache, data, trace)
    trace.take()
    _, run = fit(cache, data, trace, rate=0.5)
    assert trace.take() == RANK
    assert [r.state for r in run.stage_reports()] == ["unused", "reused", "ran"]
    fit(cache, data, trace, clusters=2)
    assert trace.take() == ["clusters", *RANK]
    fit(cache, data, trace, seed=1)
    assert trace.take() == ["clusters", *RANK]  # the graph is not seeded
    fit(cache, data, trace, pause=0.001)
    assert trace.take() == []  # no stage declares it


def test_what_other_code_made_is_computed_again(cache, data, trace, monkeypatch):
    fit(cache, data, trace)
    trace.take()
    monkeypatch.setattr("xcbench.runner.context.code_of", lambda *sources: "other code")
    fit(cache, data, trace)
    assert trace.take() == ["graph", "clusters", *RANK]
    fit(cache, data, trace)
    assert trace.take() == []


def test_checkpoints_that_other_code_wrote_are_dropped(cache):
    def interrupted(checkpoints):
        (checkpoints / "half.txt").write_text("half")
        raise KeyboardInterrupt

    def finish(checkpoints):
        return {"continued": (checkpoints / "half.txt").exists()}

    def values(code):
        with pytest.raises(KeyboardInterrupt):
            cache.compute("owner", "rank", "key", {}, interrupted, "old", redo=True)
        return cache.compute("owner", "rank", "key", {}, finish, code)[1]

    assert values("old") == {"continued": True}
    assert values("new") == {"continued": False}


def test_ensemble_members_share_what_is_declared_shared(cache, data, trace):
    first, _ = fit(cache, data, trace, member=0)
    trace.take()
    second, _ = fit(cache, data, trace, member=1)
    assert trace.take() == RANK
    assert not np.array_equal(first.W, second.W)


def owner(*stages, name="owner", config=None, version="7"):
    """A plug-in with these stages."""

    class Owner(Method):
        def fit(self, data, run):
            pass

    Owner.name = name
    Owner.code_version = version
    Owner.stages = stages
    return Owner(config or Settings())


def declared(function=lambda work: {}, **how):
    return stage(**{"name": "stage", "data": (), **how})(function)


def output(cache, data, *stages, seed=0):
    """What the last of these stages gives."""
    return context(cache, data, seed=seed).owned_by(owner(*stages)).stage(stages[-1], data)


@dataclasses.dataclass(frozen=True)
class Group:
    c: int = 3
    d: int = 4

    def total(self):
        return self.c + self.d


@dataclasses.dataclass(frozen=True)
class Settings:
    a: int = 1
    b: int = 2
    group: Group = dataclasses.field(default_factory=Group)
    file: str = dataclasses.field(default="", metadata={IDENTITY: len})

    @property
    def twice(self):
        return 2 * self.a


def key(cache, known, **changed):
    given = {"data": "data", "settings": ["a"], "version": "1", "name": "stage"} | changed
    seed = given.pop("seed", 0)
    who = given.pop("who", "owner")
    config = given.pop("config", Settings())
    one = declared(**given)
    run = context(cache, known, seed=seed).owned_by(owner(*one.after, one, name=who, config=config))
    return run.plan(one, known).key


def test_keys_are_made_of_exactly_what_is_declared(cache, data):
    same = key(cache, data)
    assert key(cache, data) == same
    assert key(cache, dataclasses.replace(data, name="renamed")) == same
    assert key(cache, data, config=Settings(b=3, group=Group(c=9))) == same
    upstream = declared(name="before")
    different = [
        key(cache, data, config=Settings(a=2)),
        key(cache, data, settings=["a", "b"]),
        key(cache, data, settings=["b"]),
        key(cache, data, settings=all_but()),
        key(cache, data, settings=all_but("b")),
        key(cache, data, version="2"),
        key(cache, data, seed=1),
        key(cache, data, seeded=False),
        key(cache, data, name="other"),
        key(cache, data, who="other"),
        key(cache, data, data=()),
        key(cache, data, data="unaugmented"),
        key(cache, toy_dataset(seed=1)),
        key(cache, data, after=[upstream]),
    ]
    assert len({same, *different}) == len(different) + 1
    assert key(cache, data, seeded=False, seed=1) == key(cache, data, seeded=False, seed=2)


def test_a_gpu_has_keys_of_its_own_whichever_gpu_it_is(cache, data):
    one = declared()
    keys = [
        dataclasses.replace(context(cache, data), device=device).owned_by(owner(one)).plan(one, data).key
        for device in ("cpu", "cuda", "cuda:0", "cuda:1")
    ]
    assert keys[0] != keys[1] == keys[2] == keys[3]


def test_a_group_of_settings_counts_whole_or_in_part(cache, data):
    changed = Settings(group=Group(d=5))
    assert key(cache, data, settings=["group"], config=changed) != key(cache, data, settings=["group"])
    assert key(cache, data, settings=["group.c"], config=changed) == key(cache, data, settings=["group.c"])
    but = all_but("group.d")
    assert key(cache, data, settings=but, config=changed) == key(cache, data, settings=but)


def test_a_setting_that_names_a_file_counts_by_what_identifies_the_file(cache, data):
    keys = [key(cache, data, settings=["file"], config=Settings(file=name)) for name in ("abc", "xyz", "long")]
    assert keys[0] == keys[1] != keys[2]


def test_a_stage_sees_its_declared_settings_and_no_others(cache, data):
    number = itertools.count()

    def read(what, settings):
        one = declared(lambda work: {"x": what(work.config)}, settings=settings, version=str(next(number)))
        return output(cache, data, one)["x"]

    assert read(lambda c: c.a, ["a"]) == 1
    assert read(lambda c: c.twice, ["a"]) == 2
    assert read(lambda c: c.group.c, ["group.c"]) == 3
    assert read(lambda c: c.group.total(), ["group"]) == 7
    assert read(lambda c: c.group.total(), ["group.c", "group.d"]) == 7
    assert read(lambda c: c.b, all_but("a")) == 2
    assert read(settings_of, ["a", "b"]) == {"a": 1, "b": 2}
    for what, settings, name in [
        (lambda c: c.b, ["a"], "'b'"),
        (lambda c: c.twice, ["b"], "'a'"),
        (lambda c: c.group, ["a"], "'group'"),
        (lambda c: c.group.d, ["group.c"], r"'group\.d'"),
        (lambda c: c.group.total(), ["group.c"], r"'group\.d'"),
        (lambda c: c.a, all_but("a"), "'a'"),
        (lambda c: c.group.d, all_but("group.d"), r"'group\.d'"),
    ]:
        with pytest.raises(XCBenchError, match=f"stage 'stage' reads setting {name} without declaring it"):
            read(what, settings)
    with pytest.raises(AttributeError):
        read(lambda c: c.nothing_of_that_name, ["a"])


def test_a_stage_sees_its_declared_data_and_no_other(cache, data):
    assert output(cache, data, declared(lambda work: {"n": len(work.data.train)}, data="data"))["n"] == len(data.train)
    with pytest.raises(XCBenchError, match="stage 'stage' reads 'unaugmented' without declaring it in `data`"):
        output(cache, data, declared(lambda work: {"n": len(work.unaugmented.train)}, data="data", version="2"))


def test_a_stage_is_of_its_methods_version_unless_it_has_its_own(cache, data):
    own = declared(name="a")
    other = declared(name="a", version="x")
    run = context(cache, data).owned_by(owner(own, other, version=Staged.version))
    assert run.plan(own, data).inputs["version"] == Staged.version
    assert run.plan(other, data).inputs["version"] == "x"


def test_reading_an_undeclared_stage_is_refused(cache, data):
    one = declared(lambda work: {"x": 1}, name="one")
    two = declared(lambda work: {"x": 2 + work[one]["x"]}, name="two")
    with pytest.raises(XCBenchError, match="'two' reads stage 'one' without declaring it"):
        output(cache, data, one, two)
    three = declared(lambda work: {"x": 3 + work[one]["x"]}, name="three", after=[one])
    four = declared(lambda work: {"x": work[one]["x"] + work[three]["x"]}, name="four", after=[three])
    assert output(cache, data, one, three, four)["x"] == 5


def test_a_stage_that_the_method_does_not_list_is_refused(cache, data):
    one, two = declared(name="one"), declared(name="two")
    with pytest.raises(XCBenchError, match="owner: stage 'two' is not listed in its `stages`"):
        context(cache, data).owned_by(owner(one)).stage(two, data)


def test_seeds_differ_by_stage_and_seed_and_global_generators_follow(cache, data):
    def draw(work):
        import torch

        return {"drawn": [work.seed, np.random.random(), float(torch.rand(()))]}  # noqa: NPY002

    drawn = [
        output(cache, data, declared(draw, name=name, version=version), seed=seed)["drawn"]
        for version in "12"
        for name, seed in [("a", 0), ("b", 0), ("a", 1)]
    ]
    assert drawn[:3] == drawn[3:]
    assert len({tuple(d) for d in drawn[:3]}) == 3


def test_redo_computes_every_stage_again_but_shared_ones_once(cache, data, trace):
    config = StagedConfig(trace=trace.path)
    fit(cache, data, trace)
    trace.take()
    run = context(cache, data, config, overwrite=OverwriteStrategy.REDO)
    for number in (0, 1):
        Staged(config).fit(data, run.member(number))
    assert sorted(trace.take()) == sorted(["graph", "clusters", *RANK, *RANK])


def test_a_damaged_stage_is_computed_again(cache, data, trace, caplog):
    first, _ = fit(cache, data, trace)
    trace.take()
    folder = next(e.folder for e in cache.entries() if e.note.name == "rank")
    (folder / "0.npy").write_bytes(b"nonsense")
    second, _ = fit(cache, data, trace)
    assert trace.take() == RANK
    assert np.array_equal(first.W, second.W)
    assert "computing stage rank again" in caplog.text


def test_a_continued_stage_costs_what_led_to_its_checkpoints_too(cache, data):
    """Of three processes that died, two had saved something, 100 and 50 s after they began."""

    def save_and_die(work):
        (work.checkpoints / "half").write_text("done")
        raise RuntimeError("no")

    def die(work):
        raise RuntimeError("no")

    for compute, seconds in ((save_and_die, 100), (save_and_die, 50), (die, 0)):
        with pytest.raises(RuntimeError):
            output(cache, data, declared(compute, name="x"))
        (record,) = cache.folder.glob("*.checkpoints/attempt.json")
        began = json.loads(record.read_text())
        record.write_text(json.dumps(began | {"started": began["started"] - seconds}))
    output(cache, data, declared(lambda work: {"found": True}, name="x"))
    assert cache.entries()[0].note.seconds == pytest.approx(150, abs=5)


def test_a_failed_stage_leaves_no_entry_and_keeps_its_checkpoints(cache, data):
    def fail(work):
        (work.checkpoints / "half").write_text("done")
        raise RuntimeError("no")

    def check(work):
        return {"found": (work.checkpoints / "half").exists()}

    with pytest.raises(RuntimeError):
        output(cache, data, declared(fail, name="x"))
    assert cache.entries() == []
    assert output(cache, data, declared(check, name="x"))["found"] is True
    assert cache.remains() == []


def test_the_log_says_ran_and_reused(cache, data, trace, caplog):
    caplog.set_level(logging.INFO, "xcbench")
    fit(cache, data, trace)
    fit(cache, data, trace)
    lines = [r.getMessage() for r in caplog.records if ": ran (" in r.getMessage() or ": reused (" in r.getMessage()]
    assert [line.partition(" (")[0] for line in lines] == [
        "stage graph: ran",
        "stage clusters: ran",
        "stage rank: ran",
        "stage rank: reused",
    ]


def test_a_stage_returns_named_values(cache, data):
    with pytest.raises(TypeError, match="stage x must return a dict of values, got list"):
        output(cache, data, declared(lambda work: [1], name="x"))


def test_progress_is_plain_lines_without_a_terminal(cache, data, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "xcbench")
    monkeypatch.setattr("xcbench.progress.LINE_EVERY", 0)
    assert list(context(cache, data).progress([5, 6, 7], "epochs")) == [5, 6, 7]
    assert [r.getMessage() for r in caplog.records] == [
        "epochs: 33%, 0 s left",
        "epochs: 67%, 0 s left",
        "epochs: 100%, 0 s left",
    ]


def test_ls_and_remove(cache, data, trace):
    fit(cache, data, trace)
    entries = cache.entries()
    assert {e.note.name for e in entries} == {"graph", "clusters", "rank"}
    assert all(e.size > 0 and e.note.seconds >= 0 and e.note.peak_memory > 0 for e in entries)
    (cache.folder / f".{entries[0].folder.name}.abc.part").mkdir()
    (cache.folder / f"{entries[0].folder.name}.checkpoints").mkdir()
    assert len(cache.remains()) == 2
    for path in [*(e.folder for e in entries), *cache.remains()]:
        assert cache.remove(path)
    assert cache.entries() == []
    assert cache.remains() == []


def command(tmp_path, trace, *more):
    """The command line of a run of the staged method in a process of its own."""
    dataset = tmp_path / "toy"
    if not dataset.exists():
        store_dataset(toy_dataset(), dataset)
    words = ["run", "--method", METHOD, "--dataset", str(dataset), "--set", f"trace={trace.path}", "--json"]
    return [sys.executable, "-m", "xcbench", *words, *more]


def start(tmp_path, trace, *more):
    return subprocess.Popen(
        command(tmp_path, trace, *more),
        env=os.environ | {"XCBENCH_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out), err


def test_a_killed_run_continues_from_its_checkpoint_to_the_same_result(tmp_path, trace):
    killed = start(tmp_path, trace, "--set", "die_at=3")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert trace.take() == ["graph", "clusters", *RANK[:4]]
    continued, log = finish(start(tmp_path, trace))
    assert trace.take() == RANK[3:]
    assert "stage clusters: reused" in log
    spec = RunSpec(METHOD, overrides={"trace": trace.path})
    unbroken = run(spec, data=toy_dataset(), store=tmp_path / "other", cache=tmp_path / "other")
    assert trace.take() == ["graph", "clusters", *RANK]
    assert continued == {"run": continued["run"]} | {name: m.value for name, m in unbroken.metrics.items()}


def test_a_crowd_computes_each_stage_and_each_run_once(tmp_path, trace):
    """Two processes want the same run, a third one wants an ablation that shares two stages with it."""
    words = [("--set", "pause=1.5"), ("--set", "pause=1.5"), ("--set", "pause=1.5", "--ablation", "fast")]
    running = [start(tmp_path, trace, *more) for more in words]
    (first, _), (second, _), (third, _) = map(finish, running)
    assert sorted(trace.take()) == sorted(["graph", "clusters", *RANK, *RANK])
    assert first == second
    assert first["run"] != third["run"]
    assert StageCache(tmp_path / "home" / "stages").remains() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_is_one_line_and_leaves_nothing_half_done(tmp_path, trace, number, code):
    process = start(tmp_path, trace, "--set", "pause=60")
    deadline = time.monotonic() + 60
    while not Path(trace.path).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1] == "xcbench: interrupted; the same command goes on where it stopped"
    assert "Traceback" not in err
    assert StageCache(tmp_path / "home" / "stages").entries() == []
