import json
import math
import shutil
from pathlib import Path

import pytest

import xcbench
from xcbench.errors import DataError, InputError, XCBenchError
from xcbench.runner.record_upgrades import SCHEMA, upgraded
from xcbench.runner.store import COLUMNS, Store, load_record, read_record, results

HISTORIC = sorted((Path(__file__).parent / "historic_records").iterdir())
STAGED = Path(__file__).parent / "historic_records" / "staged-20f862988ce4"


@pytest.fixture
def store(tmp_path):
    shutil.copytree(STAGED, tmp_path / "runs" / STAGED.name)
    return Store(tmp_path / "runs")


def test_every_schema_has_a_sample():
    schemas = {json.loads((folder / "record.json").read_text())["schema"] for folder in HISTORIC}
    assert schemas == set(range(1, SCHEMA + 1))


def test_records_without_device_memory_have_used_none(store):
    (record,) = store.records()
    assert "peak_device_memory" not in (STAGED / "record.json").read_text()
    assert record.peak_device_memory == 0
    assert {stage.peak_device_memory for stage in record.stages} == {0}
    assert set(results(store)["peak_device_memory"]) == {0}


@pytest.mark.parametrize("folder", HISTORIC, ids=lambda folder: folder.name)
def test_records_of_every_schema_stay_readable(folder):
    record = read_record(folder)
    assert record.id == folder.name
    assert 0 <= record.metrics["P@1"].low <= record.metrics["P@1"].value <= record.metrics["P@1"].high <= 100
    if record.is_summary:
        assert record.depth == 20
    else:
        assert len(record.predictions()) == record.test_points
    assert record.log()
    assert [stage.name for stage in record.stages]
    assert record.environment["xcbench"]


def test_renamed_settings_of_schema_1():
    """ECLARE, with overrides of renamed settings."""
    folder = next(folder for folder in HISTORIC if folder.name.startswith("eclare"))
    before = json.loads((folder / "record.json").read_text())
    record = read_record(folder)
    assert before["schema"] == 1
    assert record.augment == ("ignore-filtered",)
    assert record.config["augment"] == {"ignore-filtered": {}}
    assert record.config["game"] == {"mode": "code", "power": 0.25}
    assert record.config["rerank"]["calibrated"]["sparse"]["max_log_drop"] == 8.0
    for part in ("surrogate", "shortlister", "extreme"):
        old, new = before["config"][part]["training"], record.config[part]["training"]
        assert new["min_steps"] == old["least_steps"]
        assert new["label_lr_factor"] == old["free_rate"]
        assert new["block_lr_factor"] == old["block_rate"]
        assert (old["precision"], old["compile"]) == ("auto", "auto")
        assert (new["precision"], new["compile"]) == ("float32", "off")  # what it meant on this run's CPU
    assert record.overrides == {
        "extreme.training.min_steps": "600",
        "game.mode": "code",
        "rerank.calibrated.sparse.max_log_drop": 8.0,
    }
    assert {stage.state for stage in record.stages} >= {"parallel"}
    now = json.dumps(record.to_json())
    for word in ("least_steps", "free_rate", "block_rate", "fall", '"filtered"', "game_power", "beside"):
        assert word not in now


def test_only_settings_of_the_sparse_ranker_are_renamed_there():
    value = json.loads((STAGED / "record.json").read_text())
    value["config"] = {"fall": 1, "rerank": {"sparse": {"fall": 2}, "mine": {"fall": 3}}, "game": "mine"}
    value["overrides"] = {
        "rerank.mine.fall": 3,
        "rerank.sparse.fall": 2,
        "augment.filtered.a": 1,
        "x": {"free_rate": 4},
    }
    result = upgraded(value)
    assert result["config"] == {
        "fall": 1,
        "rerank": {"sparse": {"max_log_drop": 2}, "mine": {"fall": 3}},
        "game": "mine",
    }
    assert result["overrides"] == {
        "rerank.mine.fall": 3,
        "rerank.sparse.max_log_drop": 2,
        "augment.ignore-filtered.a": 1,
        "x": {"label_lr_factor": 4},
    }
    assert result["schema"] == SCHEMA
    assert upgraded(result) == result
    assert value["schema"] == 1


def test_a_record_survives_the_way_to_json_and_back(store, tmp_path):
    record = next(store.records())
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps(record.to_json()))
    assert read_record(folder) == record


def test_an_undefined_figure_is_nan_and_null(store, tmp_path):
    value = next(store.records()).to_json()
    value["metrics"][0]["value"] = None
    (tmp_path / "record.json").write_text(json.dumps(value))
    record = read_record(tmp_path)
    name = value["metrics"][0]["name"]
    assert math.isnan(record.metrics[name].value)
    assert record.to_json()["metrics"][0]["value"] is None


def test_results_are_one_tidy_frame(store):
    frame = results(store.folder)
    record = next(store.records())
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == sum(len(r.metrics) for r in store.records())
    row = frame[(frame.run == record.id) & (frame.metric == "P@1")].iloc[0]
    assert row.value == record.metrics["P@1"].value
    assert (row.method, row.ablation, row.augment, row.seed) == ("staged", "coarse+fast", "double", 3)
    assert json.loads(row.overrides) == record.overrides
    assert frame.value.dtype == "float64"


def test_an_empty_store_gives_an_empty_frame_with_the_same_columns(tmp_path):
    frame = xcbench.results(tmp_path / "nowhere")
    assert len(frame) == 0
    assert list(frame.columns) == list(COLUMNS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"schema": 1', '"schema": 999'),
        lambda text: text.replace('"seed"', '"sead"'),
        lambda text: text.replace('"low"', '"lw"'),
    ],
)
def test_a_corrupted_record_is_named_and_the_others_are_read(store, tmp_path, caplog, damage):
    whole = store.path("whole")
    shutil.copytree(STAGED, whole)
    path = store.path(STAGED.name) / "record.json"
    path.write_text(damage(path.read_text()))
    assert [record.folder.name for record in store.records()] == ["whole"]
    assert str(path) in caplog.text
    assert len(caplog.records) == 1
    assert set(results(store).folder) == {str(whole)}
    with pytest.raises(DataError, match=r"record\.json"):
        load_record(STAGED.name, store.folder)


def test_half_written_records_are_not_seen(store):
    shutil.copytree(STAGED, store.folder / ".staged-0.xyz.part")
    (store.folder / "staged-111111111111").mkdir()
    assert store.ids() == [STAGED.name]


def test_a_run_is_found_by_any_clear_name(store):
    run_id = STAGED.name
    for name in (
        run_id,
        run_id[:-3],
        run_id.rpartition("-")[2],
        run_id.rpartition("-")[2][:4],
        str(store.path(run_id)),
    ):
        assert load_record(name, store.folder).id == run_id
    shutil.copytree(STAGED, store.path(run_id[:-1] + "x"))
    with pytest.raises(InputError, match="write more of it"):
        store.find(run_id[:-2])
    with pytest.raises(InputError, match="did you mean"):
        store.find(run_id[:-4] + "zzzz")
    with pytest.raises(InputError, match="unknown run"):
        store.find("")


def test_a_file_is_not_a_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(XCBenchError, match="not a folder"):
        Store(tmp_path / "file")


def test_broken_predictions_are_one_line(store):
    record = next(store.records())
    (record.folder / "predictions.npz").write_bytes(b"zip?")
    with pytest.raises(DataError, match=r"predictions\.npz"):
        record.predictions()
