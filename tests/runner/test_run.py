import dataclasses
import errno
import json
import logging
import resource
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from xcbench.costs import StageCost
from xcbench.disk import readable_disk_errors
from xcbench.errors import InputError, XCBenchError
from xcbench.evaluation import evaluate
from xcbench.evaluation.seeds import contrast_over_seeds
from xcbench.plugins import Method
from xcbench.plugins.registry import get_method
from xcbench.report.comparison import compare_runs, dataset_of, training_noise
from xcbench.runner import execute as run_module
from xcbench.runner.execute import run
from xcbench.runner.meter import Meter
from xcbench.runner.model import Model, load_model
from xcbench.runner.plan import MemoryForecast, plan
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.store import Store, results
from xcbench.runner.toy import toy_dataset
from xcbench.shortlist import blend

STAGED = str(Path(__file__).with_name("staged_method.py"))


@pytest.fixture(scope="module")
def data():
    return toy_dataset()


@pytest.fixture
def go(tmp_path, data, monkeypatch):
    """Run in a store and cache of this test."""
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))

    def go(method="popularity", overwrite=OverwriteStrategy.KEEP, dataset=data, **spec):
        return run(RunSpec(method, **spec), data=dataset, overwrite=overwrite)

    return go


def test_a_record_holds_what_can_be_checked_from_its_parts(go, data):
    record = go(STAGED, ablations=("fast", "coarse"), seed=3, overrides={"graph.top": "5"})
    evaluation = evaluate(record.predictions(), data)
    assert {name: m.value for name, m in record.metrics.items()} == evaluation.values()
    assert all(m.low - 1e-9 <= m.value <= m.high + 1e-9 for m in record.metrics.values())
    assert (record.method, record.seed, record.dataset) == ("staged", 3, "toy-50")
    assert record.ablations == ("coarse", "fast")
    assert record.config["graph"] == {"kind": "walk", "top": 5}
    assert (record.config["rate"], record.config["clusters"]) == (0.5, 2)
    assert [(s.name, s.state) for s in record.stages] == [("graph", "ran"), ("clusters", "ran"), ("rank", "ran")]
    assert record.train_seconds >= sum(s.seconds for s in record.stages)
    assert record.seconds >= record.predict_seconds
    assert record.peak_memory >= max(s.peak_memory for s in record.stages) > 1 << 20
    assert record.model_bytes > 50 * 4
    assert "stage rank: ran" in record.log()
    assert record.environment["packages"]["torch"]
    stored = json.loads((record.folder / "record.json").read_text())
    assert stored["metrics"][0]["name"] == "P@1"


def test_the_same_run_again_comes_from_the_store(go, caplog, monkeypatch):
    first = go()
    monkeypatch.setattr(run_module, "_execute", lambda *_: pytest.fail("ran again"))
    caplog.set_level(logging.INFO, "xcbench")
    assert go() == first
    assert "in the store, finished" in caplog.text


def test_force_runs_again_and_replaces_the_record(go):
    first = go(STAGED)
    second = go(STAGED, overwrite=OverwriteStrategy.REDO)
    assert second.id == first.id
    assert [s.state for s in second.stages] == ["ran"] * 3
    assert np.array_equal(first.predictions().indices, second.predictions().indices)
    assert len(Store().ids()) == 1


def test_what_decides_a_result_decides_the_id_and_nothing_else(data):
    def of(method=STAGED, dataset=data, **spec):
        return resolve(RunSpec(method, **spec), dataset).id

    base = of()
    assert of(ablations=()) == of(preset="Toy-50") == of(dataset=dataclasses.replace(data)) == base
    assert of(ablations=("fast", "coarse")) == of(ablations=("coarse", "fast", "fast"))
    different = [
        of(seed=1),
        of(ensemble=2),
        of(preset="none"),
        of(preset="other"),
        of(overrides={"rate": "0.9"}),
        of(overrides={"graph.top": 3}),
        of(ablations=("fast",)),
        of(augment=(f"{STAGED}",)),
        of(augment=(f"{STAGED}",), overrides={"augment.double.times": 3}),
        of(rerank=STAGED),
        of(dataset=toy_dataset(seed=1)),
        of("knn"),
    ]
    assert len({base, *different}) == len(different) + 1


def test_another_version_of_a_method_is_another_run(data, monkeypatch):
    before = resolve(RunSpec("knn"), data).id
    monkeypatch.setattr(get_method("knn"), "code_version", "2")
    assert resolve(RunSpec("knn"), data).id != before


def test_presets_follow_the_dataset_unless_told_otherwise(data):
    def rate(**spec):
        return resolve(RunSpec(STAGED, **spec), data).method.config.rate

    assert rate() == 0.2  # the dataset is called toy-50, the preset Toy-50
    assert rate(preset="none") == 0.1
    assert rate(preset="OTHER") == 0.3
    assert rate(overrides={"rate": "0.7"}) == 0.7
    assert rate(ablations=("fast",)) == 0.5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ablations": ("fst",)}, "unknown ablation of staged: 'fst'; did you mean fast"),
        ({"ablations": ("fast", "slow")}, "ablation 'slow' sets rate to 0.01, but ablation 'fast' sets rate to 0.5"),
        ({"ablations": ("fast",), "overrides": {"rate": "0.3"}}, "--set sets rate to '0.3', but ablation 'fast'"),
        ({"preset": "othr"}, "did you mean other"),
        ({"overrides": {"rat": 1}}, "did you mean rate"),
        ({"overrides": {"augment.double.times": 3}}, "unknown augmentation of this run: 'double'"),
        ({"overrides": {"augment.double": 3}}, "expected augment.NAME.key"),
        ({"augment": (STAGED,), "overrides": {"augment.dubble.times": 3}}, "did you mean double"),
        ({"augment": (STAGED,), "overrides": {"augment.double.tmes": 3}}, "did you mean times"),
        ({"augment": ("no-such",)}, "unknown augmentation 'no-such'"),
        ({"rerank": "no-such"}, "unknown reranker 'no-such'"),
        ({"ensemble": 0}, "at least 1 member"),
        ({"seed": -1}, "at least 0"),
        ({"dataset": "lf-debian-4"}, "did you mean lf-debian-4k"),
    ],
)
def test_a_wrong_spec_is_refused_with_what_would_be_right(data, spec, message):
    with pytest.raises(InputError) as caught:
        resolve(RunSpec(STAGED, **spec), None if "dataset" in spec else data)
    assert message in str(caught.value)


def test_an_ensemble_is_the_mean_of_its_members(go):
    record = go(STAGED, ensemble=3)
    model = load_model(record, STAGED)
    members = [member.predict(toy_dataset().test.X, 50) for member in model.members]
    assert len({member.scores.tobytes() for member in members}) == 3
    expected = blend(members, 50)
    assert np.array_equal(record.predictions().indices, expected.indices)
    ran = [(s.member, s.name) for s in record.stages if s.state == "ran"]
    assert [name for _, name in ran].count("rank") == 3
    assert {s.key for s in record.stages if s.name == "clusters"} == {record.stages[1].key}
    single = go(STAGED)
    assert [s.state for s in single.stages] == ["unused", "unused", "reused"]  # the first member is the run alone
    assert np.array_equal(single.predictions().indices, members[0].indices)


def test_time_of_training_counts_reused_stages(go):
    slow = go(STAGED, overrides={"pause": "0.3"})
    reused = go(STAGED, ablations=("fast",), overrides={"pause": "0.3"})
    assert slow.train_seconds > 0.3
    assert reused.train_seconds > 0.3
    assert [s.state for s in reused.stages] == ["unused", "reused", "ran"]


def test_an_augmentation_changes_training_but_neither_stages_before_it_nor_evaluation(go, data):
    plain = go(STAGED)
    doubled = go(STAGED, augment=(STAGED,))
    assert doubled.augment == ("double",)
    assert doubled.config["augment"] == {"double": {"times": 2}}
    assert doubled.stages[0].key == plain.stages[0].key  # the graph is counted on the data before augmentation
    assert doubled.stages[2].key != plain.stages[2].key
    assert doubled.fingerprint == data.fingerprint
    assert {n: m.value for n, m in doubled.metrics.items()} == evaluate(doubled.predictions(), data).values()
    assert len(results().augment.unique()) == 2


def test_a_reranker_comes_last_and_is_part_of_the_model(go, data):
    record = go(STAGED, rerank=STAGED)
    plain = go(STAGED)
    assert np.array_equal(record.predictions().indices, plain.predictions().indices[:, ::-1])
    assert record.rerank == "reverse"


def test_the_model_predicts_new_text_without_the_dataset(go, data, caplog):
    record = go("knn", ablations=("text",))
    model = load_model(record)
    found = model.predict_text(["topic7 group1 word3", "", "unknown"], 4)
    assert caplog.messages[-1:] == ["2 of 3 titles have no word that the model knows, such as ''"]
    assert found.indices.shape == (3, 4)
    assert found.indices[0, 0] == 7
    assert (found.indices[1:] == -1).all()
    assert model.label_titles[7] == "topic7 group1"
    again = model.predict(data.test.X, record.predictions().k, data.test.titles)
    assert np.array_equal(again.indices, record.predictions().indices)
    assert load_model(record).predict_text(["topic7"], 80).k == 80


def test_features_without_text_cannot_read_text(go, data):
    record = go("knn", dataset=dataclasses.replace(data, encoder=None))
    with pytest.raises(InputError, match="cannot read text"):
        load_model(record).predict_text(["topic7"], 3)


def test_a_method_from_a_file_must_be_named_again(go):
    record = go(STAGED)
    with pytest.raises(InputError, match="--method FILE"):
        load_model(record)
    assert len(load_model(record, STAGED).members) == 1


@pytest.mark.parametrize("size", [(1, 2), (2, 2), (50, 200)])
def test_any_size_runs(go, size):
    labels, points = size
    record = go("knn", dataset=toy_dataset(labels, points, test=3))
    assert record.predictions().k == labels
    assert 0 <= record.metrics["P@1"].value <= 100


def test_a_plan_computes_nothing(go, tmp_path, data):
    trace = tmp_path / "trace.txt"
    spec = RunSpec(STAGED, overrides={"trace": str(trace)}, ensemble=2)
    before = plan(spec, data=data)
    assert not trace.exists()
    assert [(stage.member, stage.name, note) for stage, note in before.stages] == [
        (0, "graph", None),
        (0, "clusters", None),
        (0, "rank", None),
        (1, "graph", None),
        (1, "clusters", None),
        (1, "rank", None),
    ]
    assert before.record is None
    assert "guess" in before.memory.source
    record = run(RunSpec(STAGED, overrides={"trace": str(trace)}), data=data)
    after = plan(spec, data=data)
    assert [note is not None for *_, note in after.stages] == [True, True, True, True, True, False]
    assert after.memory.bytes == record.peak_memory
    assert after.resolved.config == before.resolved.config


def test_a_wrong_device_is_refused(data, tmp_path):
    for device in ("gpu", "cuda:99"):
        with pytest.raises(InputError, match="device"):
            run(RunSpec("popularity"), data=data, store=tmp_path, device=device)


def test_expected_memory_is_said_before_anything_is_computed(go, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "xcbench")
    go()
    assert "MiB at its peak (a guess" in caplog.messages[1]
    assert "may not fit" not in caplog.text
    forecast = MemoryForecast(1 << 30, "the method's own estimate")
    monkeypatch.setattr(run_module, "forecast_memory", lambda *_, **__: forecast)
    monkeypatch.setattr(run_module, "free_memory", lambda: 1 << 20)
    caplog.clear()
    go(overwrite=OverwriteStrategy.REDO)
    assert caplog.messages[1].endswith("about 1024 MiB at its peak (the method's own estimate)")
    assert "that may not fit, since" in caplog.messages[2]


def test_a_method_that_knows_its_need_is_asked(go, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "xcbench")
    monkeypatch.setattr(get_method("popularity"), "estimate_memory", lambda *_: 1 << 30)
    monkeypatch.setattr(run_module, "free_memory", lambda: 1 << 20)
    go()
    assert caplog.messages[1].endswith("at its peak (this process, and training by the method's own estimate)")
    assert "that may not fit, since" in caplog.messages[2]


def test_what_needs_more_memory_than_there_is_does_not_start(go, data, monkeypatch):
    monkeypatch.setattr(get_method("popularity"), "estimate_memory", lambda *_: 1 << 60)
    with pytest.raises(XCBenchError, match=r"is not started: the run needs about .* GiB of memory .* this machine has"):
        go()
    assert len(plan(RunSpec("popularity"), data=data).problems) == 1


def test_what_needs_more_disk_than_is_free_does_not_start(go, data, monkeypatch):
    costs = {"graph": StageCost(output=1 << 50), "clusters": StageCost(checkpoint=1 << 50)}
    monkeypatch.setattr(Method, "estimate_costs", lambda *_: costs)
    # Its output, once more in the model, and the checkpoint.
    with pytest.raises(XCBenchError, match=r"is not started: the run needs about 3145728\.0 GiB on the disk of"):
        go(STAGED)


def test_what_the_first_prediction_must_compile_is_not_timed(go, data, monkeypatch):
    events = []

    class Watched(Meter):
        def __enter__(self):
            events.append("starts")
            return super().__enter__()

        def __exit__(self, *reason):
            events.append("stops")
            super().__exit__(*reason)

    predict = Model.predict
    monkeypatch.setattr(run_module, "Meter", Watched)
    monkeypatch.setattr(
        Model, "predict", lambda self, X, *rest: (events.append(X.shape[0]), predict(self, X, *rest))[1]
    )
    go()
    whole, training = ["starts"], ["starts", "stops"]
    assert events == [*whole, *training, 1, "starts", len(data.test), "stops", "stops"]


def test_a_library_without_a_seed_is_said_to_have_none(go, monkeypatch):
    assert "cannot be seeded" not in go().log()
    monkeypatch.setattr(get_method("popularity"), "repeatable", False)
    assert "its library cannot be seeded" in go(seed=1).log()


def test_a_full_disk_is_one_line_after_the_figures(go, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_module, "write_json", full)
    caplog.set_level(logging.INFO, "xcbench")
    with pytest.raises(XCBenchError, match="No space left on device") as caught:
        go()
    assert "runs" in str(caught.value)
    assert "P@1" in caplog.text
    assert Store().ids() == []
    assert [p for p in Store().folder.iterdir() if p.name != ".locks"] == []


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path, array: np.save(path, array), "No space left on device"),
        (lambda path, array: save_file({"a": array}, path), "File too large"),
    ],
)
def test_a_disk_that_takes_no_more_is_one_line_whoever_notices_it(tmp_path, write, words):
    """numpy and safetensors, who write stages and checkpoints, raise errors of their own kind, without a number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(XCBenchError, match=words), readable_disk_errors(tmp_path):
            write(tmp_path / "large.npy", np.zeros(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_store_that_cannot_be_written_is_refused_before_training(go, monkeypatch, tmp_path):
    def forbidden(*_, **__):
        raise PermissionError(errno.EROFS, "Read-only file system", str(tmp_path / "runs"))

    record = go()
    monkeypatch.setattr(Path, "mkdir", forbidden)
    monkeypatch.setattr(run_module, "_execute", lambda *_: pytest.fail("trained"))
    assert go().id == record.id  # what is there can still be read
    with pytest.raises(XCBenchError, match="Read-only file system"):
        go(seed=1)


def test_runs_compare_by_the_points_they_share(go, data):
    good, bad, same = go("label-text"), go("popularity"), go("popularity", seed=1)
    first, second, third, *_ = compare_runs([good, bad, same], ["P@1", "PSP@3"], data)
    assert (first.run, first.difference) == (good.id, None)
    assert second.difference == pytest.approx(bad.metrics["P@1"].value - good.metrics["P@1"].value)
    assert second.p_value < 0.05
    assert not second.tied
    assert third.value == second.value
    tie = compare_runs([bad, same], ["P@1"], data)[1]
    assert (tie.difference, tie.tied) == (0, True)
    with pytest.raises(InputError, match="at least two"):
        compare_runs([good], ["P@1"], data)
    other = go("popularity", dataset=toy_dataset(seed=1))
    with pytest.raises(InputError, match="different data"):
        compare_runs([good, other], ["P@1"], data)


def test_runs_compare_over_seeds(go, data):
    """Against the test by hand; a seed that is missing and two seeds of one run are refused."""
    ours = [go(STAGED, seed=seed) for seed in (0, 1, 2)]
    theirs = [go("popularity", seed=seed) for seed in (0, 1, 2)]
    first, second = compare_runs([theirs[1], ours[2]], ["P@1"], data, seeds=(0, 1, 2))
    scores = [[run.evaluate(data, ["P@1"]).per_point("P@1") for run in runs] for runs in (ours, theirs)]
    expected = contrast_over_seeds(scores, [1, -1])
    assert (second.difference, second.low, second.p_value) == (expected.difference, expected.low, expected.p_value)
    assert second.value == pytest.approx(np.mean([run.metrics["P@1"].value for run in ours]))
    assert first.value == theirs[0].metrics["P@1"].value

    with pytest.raises(InputError, match="not in its store with seed 3"):
        compare_runs([ours[0], theirs[0]], ["P@1"], data, seeds=(0, 3))
    with pytest.raises(InputError, match="in its seed alone"):
        compare_runs(ours, ["P@1"], data, seeds=(0, 1))


def test_training_noise_is_that_of_runs_which_differ_in_their_seed_alone(go, data):
    values = [go(STAGED, seed=seed).metrics["P@1"].value for seed in (0, 1)]
    record = go(STAGED, seed=2)
    go(STAGED, seed=3, overrides={"rate": 0.9})
    noise = training_noise(record, "P@1", data)
    assert noise.count == 3
    assert noise.deviation == pytest.approx(np.std([*values, record.metrics["P@1"].value], ddof=1))
    assert training_noise(go("popularity"), "P@1", data) is None


def test_a_dataset_that_changed_is_refused(go, tmp_path, data):
    from xcbench.data.binary import store_dataset

    folder = tmp_path / "toy"
    store_dataset(data, folder)
    record = run(RunSpec("popularity", str(folder)))
    assert dataset_of(record).fingerprint == data.fingerprint
    store_dataset(toy_dataset(seed=1), folder)
    with pytest.raises(InputError, match="its content differs"):
        dataset_of(record)
