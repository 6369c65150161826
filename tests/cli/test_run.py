"""The verbs run, list, predict, compare, check and cache, called as a user would."""

import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.stand_in_device import StandInDevice
from xcbench.cli import main
from xcbench.cli.predict import _answer_text
from xcbench.data import catalog
from xcbench.data.binary import store_dataset
from xcbench.runner import environment, execute, meter, model
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import read_record
from xcbench.runner.toy import toy_dataset

STAGED = str(Path(__file__).parent.parent / "runner" / "staged_method.py")


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Call a command: exit code, standard output, standard error."""
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        capsys.readouterr()
        try:
            main([str(word) for word in words])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def toy(tmp_path):
    store_dataset(toy_dataset(), tmp_path / "toy")
    return tmp_path / "toy"


def one_line(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err.strip()


def test_run_prints_figures_with_intervals_stages_and_the_place_of_the_record(call, toy):
    code, out, err = call("run", "--method", STAGED, "--ablation", "fast", "--dataset", toy, "--seed", 2)
    assert code == 0
    assert out.startswith("staged fast on toy-50 (seed 2, 60 test points)")
    assert "P@1 " in out
    assert "95%" in out
    assert [line.split()[:2] for line in out.splitlines() if " ran " in line] == [
        ["graph", "ran"],
        ["clusters", "ran"],
        ["rank", "ran"],
    ]
    assert "peak memory" in out
    folder = Path(out.strip().splitlines()[-1].removeprefix("record: "))
    assert (folder / "record.json").is_file()
    assert "stage graph: ran" in err


def test_run_prints_the_memory_of_a_gpu_where_one_was_used(call, toy, monkeypatch):
    peaks = iter(range(1 << 30, 2 << 30, 1 << 20))
    words = ("run", "--method", STAGED, "--dataset", toy, "--device", "cpu")
    _, out, _ = call(*words)
    assert "GPU" not in out
    monkeypatch.setattr(meter, "peak_device_memory", lambda: next(peaks))
    _, out, _ = call(*words, "--force")
    assert re.search(r"^peak memory .*, on the GPU 1\.\d GiB, model", out, re.MULTILINE)
    assert re.search(r"peak memory +on the GPU$", out, re.MULTILINE)
    (folder,) = (toy.parent / "home" / "runs").glob("[!.]*")
    record = read_record(folder)
    assert record.peak_device_memory >= max(stage.peak_device_memory for stage in record.stages) >= 1 << 30


def test_run_again_says_the_same_from_the_store(call, toy):
    words = ("run", "--method", "knn", "--dataset", toy)
    _, first, _ = call(*words)
    code, second, err = call(*words)
    assert code == 0
    assert second == first
    assert "in the store" in one_line(err)


def test_json_is_one_flat_object_in_percent(call, toy):
    _, out, _ = call("run", "--method", "label-text", "--dataset", toy, "--json")
    found = json.loads(out)
    assert found.pop("run").startswith("label-text-")
    assert {"P@1", "nDCG@5", "PSP@3", "R@10"} <= found.keys()
    assert all(isinstance(value, float) for value in found.values())
    assert found["P@1"] > 50


def test_options_reach_the_run(call, toy, tmp_path):
    words = ["run", "--method", STAGED, "--ablation", "fast", "--ablation", "coarse", "--augment", STAGED]
    words += ["--rerank", STAGED, "--set", "graph.top=3", "--set", "augment.double.times=3", "--ensemble", 2]
    code, out, _ = call(*words, "--dataset", toy, "--store", tmp_path / "elsewhere", "--preset", "none", "--json")
    assert code == 0
    record = json.loads((tmp_path / "elsewhere" / json.loads(out)["run"] / "record.json").read_text())
    assert record["ablations"] == ["coarse", "fast"]
    assert record["config"]["graph"]["top"] == 3
    assert record["config"]["augment"] == {"double": {"times": 3}}
    assert record["config"]["rerank"] == {"reverse": {}}
    assert record["ensemble"] == 2
    assert record["preset"] is None


def test_spec_and_command_line_are_one(call, toy):
    from xcbench.runner.resolve import resolve
    from xcbench.runner.spec import RunSpec

    overrides = {"graph": {"top": 3}, "rate": 0.25, "trace": "a=b c"}
    spec = RunSpec(STAGED, str(toy), ("coarse",), (STAGED,), STAGED, "other", overrides, 3, 2)
    code, out, _ = call(*spec.arguments(), "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["run"] == resolve(spec).id


def test_dry_run_shows_config_stages_and_memory_and_does_nothing(call, toy, tmp_path):
    trace = tmp_path / "trace.txt"
    words = ("run", "--method", STAGED, "--dataset", toy, "--set", f"trace={trace}")
    code, out, _ = call(*words, "--dry-run")
    assert code == 0
    assert not trace.exists()
    assert "not in the store yet" in out
    assert "preset Toy-50" in out
    assert "graph.kind" in out
    assert out.count("to compute") == 3
    assert "expected peak memory" in out
    call(*words)
    _, out, _ = call(*words, "--ablation", "fast", "--dry-run")
    assert out.count("cached") == 2
    assert out.count("to compute") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "knnn"], "unknown method 'knnn'; did you mean knn?"),
        (["--method", "knn", "--set", "neighbors=3"], "did you mean neighbours?"),
        (["--method", "knn", "--set", "neighbours=many"], "neighbours expects int, got 'many'"),
        (["--method", "knn", "--set", "neighbours"], "expected key.path=value"),
        (["--method", "knn", "--set", "power=1", "--set", "power=2"], "two values"),
        (["--method", "knn", "--ablation", "txt"], "did you mean text?"),
        (["--method", "knn", "--dataset", "lf-debian-4"], "did you mean lf-debian-4k"),
        (["--method", "knn", "--ensemble", "0"], "at least 1 member"),
        (["--method", "knn", "--seed", "x"], "seed"),
        (["--method", "knn", "--device", "gpu"], "unknown device 'gpu'"),
        (["--method", "nowhere/mine.py"], "there is no file"),
        (["--methd", "knn"], "--method"),
        ([], "method"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(call, words, message):
    code, out, err = call("run", *words)
    assert code == 2
    assert out == ""
    assert message in one_line("\n".join(line for line in err.splitlines() if not line.startswith("run ")))


@pytest.fixture
def gpus(monkeypatch):
    """Let torch find so many GPUs."""

    def find(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return find


@pytest.mark.parametrize("verb", ["run", "table"])
@pytest.mark.parametrize(
    ("device", "count", "message"),
    [
        ("gpu", 0, "unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"),
        ("cuda", 0, "device 'cuda': torch finds no GPU on this machine"),
        ("cuda:7", 2, "device 'cuda:7': there is no GPU 7, torch finds 2 (numbered from 0)"),
    ],
)
def test_a_wrong_device_is_refused_before_any_data_is_loaded(call, gpus, monkeypatch, verb, device, count, message):
    gpus(count)
    monkeypatch.setattr(catalog, "load_dataset", None)  # calling it would fail
    words = {"run": ["run", "--method", "decaf"], "table": ["table", "decaf/table3"]}[verb]
    code, out, err = call(*words, "--device", device)
    assert (code, out) == (2, "")
    assert one_line(err) == f"xcbench: {message}"


def test_a_wrong_device_is_refused_although_the_run_is_stored(call, toy):
    words = ("run", "--method", "knn", "--dataset", toy)
    assert call(*words, "--device", "cpu")[0] == 0
    for option in ((), ("--dry-run",)):
        code, out, err = call(*words, "--device", "gpu", *option)
        assert (code, out) == (2, "")
        assert one_line(err) == "xcbench: unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"


def test_too_little_memory_on_the_device_is_said_before_any_stage_runs(call, toy, monkeypatch):
    monkeypatch.setattr(execute, "choose_device", lambda _: "cuda:0")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100 << 10, 8 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 30 << 10)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20 << 10)
    code, out, err = call("run", "--method", "decaf", "--dataset", toy)
    assert (code, out) == (1, "")
    assert "stage" not in err
    last = err.splitlines()[-1]
    assert re.match(r"xcbench: training needs about \d+ MiB, and cuda:0 has 0 MiB free: .*--device cpu", last)


def test_a_device_that_runs_out_of_memory_is_one_line(call, toy, monkeypatch):
    def train(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore\nlines")

    monkeypatch.setattr(execute, "train", train)
    code, out, err = call("run", "--method", "knn", "--dataset", toy, "--device", "cpu")
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    message = (
        "out of memory on cpu: CUDA out of memory. Tried to allocate 2 GiB.; a smaller dimension or batch needs less"
    )
    assert err.splitlines()[-1] == f"xcbench: {message}"


def test_lists(call, toy):
    code, out, _ = call("list", "methods")
    assert code == 0
    assert "Label popularity" in out
    _, out, _ = call("list", "ablations", "--method", STAGED, "--json")
    assert json.loads(out)[0] == {
        "method": "staged",
        "ablation": "cooc",
        "title in the paper": "Staged-Cooc",
        "changes": {"graph.kind": ["walk", "cooccurrence"]},
    }
    _, out, _ = call("list", "ablations", "--method", STAGED)
    assert 'graph.kind: "walk" -> "cooccurrence"' in out
    _, out, _ = call("list", "datasets")
    assert "lf-debian-4k" in out
    _, out, _ = call("list", "tables")
    assert "eclare/table5" in out
    assert call("list", "runs")[1] == "there are no runs yet\n"
    call("run", "--method", "popularity", "--dataset", toy)
    assert "popularity-" in call("list", "runs")[1]
    call("run", "--method", "knn", "--dataset", toy, "--set", "neighbours=3", "--rerank", "game", "--ensemble", 2)
    (varied,) = (run for run in json.loads(call("list", "runs", "--json")[1]) if run["run"].startswith("knn"))
    assert (varied["set"], varied["rerank"], varied["ensemble"]) == ("neighbours=3", "game", 2)
    code, _, err = call("list", "runs", "--method", "knn")
    assert code == 2
    assert "goes with `list ablations`" in one_line(err)
    code, _, err = call("list", "metods")
    assert code == 2
    assert "methods" in one_line(err)


def test_predict_reads_text_and_files(call, toy, tmp_path, monkeypatch):
    run_id = json.loads(call("run", "--method", "knn", "--dataset", toy, "--json")[1])["run"]
    code, out, _ = call("predict", "--run", run_id[:8], "--text", "topic7 group1", "--k", 3)
    assert code == 0
    assert out.splitlines()[0] == "topic7 group1"
    assert "topic7 group1" in out.splitlines()[2]
    titles = tmp_path / "titles.txt"
    titles.write_text("topic1 group0\n\ntopic2 group0\n")
    _, out, _ = call("predict", "--run", run_id, "--input", titles, "--json", "--k", 2)
    answers = json.loads(out)
    assert [[label["label"] for label in answer["labels"][:1]] for answer in answers] == [[1], [], [2]]
    assert [answer["note"] for answer in answers] == ["", "empty title", ""]
    assert all(len(answer["labels"]) <= 2 for answer in answers)
    monkeypatch.setattr("sys.stdin", io.StringIO("topic3 group0"))
    assert json.loads(call("predict", "--run", run_id, "--input", "-", "--json")[1])[0]["labels"][0]["label"] == 3
    assert "note: no known word" in call("predict", "--run", run_id, "--text", "nothing known")[1]


def test_predict_on_a_device(call, toy, monkeypatch):
    settings = ["--set", "dim=8"]
    for module in ("surrogate", "shortlister", "extreme"):
        settings += ["--set", f"{module}.training.steps=4"]
    run_id = json.loads(call("run", "--method", "decaf", "--dataset", toy, "--json", *settings)[1])["run"]
    words = ("predict", "--run", run_id, "--text", "topic7 group1", "--json")
    (expected,) = json.loads(call(*words)[1])

    monkeypatch.setattr(environment, "check_device", lambda _: None)
    monkeypatch.setattr(environment, "choose_device", lambda _: "standin:0")
    with StandInDevice() as device:
        (there,) = json.loads(call(*words, "--device", "cuda")[1])
        assert device.count("to device") > 0
        monkeypatch.setattr(model, "free_memory", lambda _: 1 << 20)
        code, out, err = call(*words, "--device", "cuda")
    assert [label["label"] for label in there["labels"]] == [label["label"] for label in expected["labels"]]
    assert (code, out) == (1, "")
    assert re.fullmatch(r"xcbench: the model needs about 12 MiB on standin:0, and 1 MiB are free; .*", one_line(err))


def test_a_run_says_how_many_points_have_no_truth(call, tmp_path):
    data = toy_dataset()
    hidden = np.argwhere(data.test.Y[:3].toarray() > 0)
    test = dataclasses.replace(data.test, filter=hidden)
    store_dataset(dataclasses.replace(data, test=test), tmp_path / "filtered")
    out = call("run", "--method", "popularity", "--dataset", tmp_path / "filtered")[1]
    assert "(seed 0, 60 test points, 3 of them without a true label, which count as 0)" in out


def test_small_scores_keep_their_digits():
    labels = [{"label": k, "title": "t", "score": score} for k, score in enumerate([0.5, 0.000912, 3.1e-9])]
    lines = _answer_text({"text": "a", "labels": labels, "note": ""}).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["0.500", "0.000912", "3.10e-09"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to predict"),
        (["--text", "a", "--k", "0"], "k is at least 1"),
        (["--input", "no-such-file"], "no-such-file"),
        (["--text", "a", "--device", "gpu"], "unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"),
    ],
)
def test_predict_refuses_what_it_cannot_do(call, toy, words, message):
    run_id = json.loads(call("run", "--method", "knn", "--dataset", toy, "--json")[1])["run"]
    code, _, err = call("predict", "--run", run_id, *words)
    assert code == 2
    assert message in one_line(err)


def test_predict_on_an_unknown_run(call):
    code, _, err = call("predict", "--run", "knn-123", "--text", "a")
    assert code == 2
    assert "unknown run" in one_line(err)


def test_compare_names_the_better_run(call, toy):
    ids = [
        json.loads(call("run", "--method", name, "--dataset", toy, "--json")[1])["run"]
        for name in ("popularity", "label-text")
    ]
    code, out, _ = call("compare", *ids, "--metric", "P@1")
    assert code == 0
    assert "better" in out
    assert "1 comparisons" in out
    _, out, _ = call("compare", *ids, "--metric", "P@1", "--metric", "PSP@3", "--json")
    rows = json.loads(out)
    assert [row["metric"] for row in rows] == ["P@1", "P@1", "PSP@3", "PSP@3"]
    assert rows[1]["difference"] > 0
    code, _, err = call("compare", ids[0])
    assert code == 2
    assert "at least two" in one_line(err)
    code, _, err = call("compare", *ids, "--metric", "Q@1")
    assert code == 2
    assert "Q@1" in one_line(err)


def test_check_says_what_holds(call, tmp_path):
    code, out, _ = call("check", "--method", "knn")
    assert code == 0
    assert "13 of 13 promises hold" in out
    code, out, _ = call("check", "--method", "popularity", "--json")
    assert code == 0
    assert any(finding["advice"] and finding["problem"] for finding in json.loads(out))
    broken = tmp_path / "broken.py"
    broken.write_text(Path(STAGED).read_text().replace("def predict(self, X, k):", "def predict(self, X):"))
    code, out, _ = call("check", "--method", broken)
    assert code == 1
    assert "FAILS" in out


def test_cache_lists_and_cleans(call, toy):
    assert "0 stages" in call("cache", "ls")[1]
    call("run", "--method", STAGED, "--dataset", toy)
    _, out, _ = call("cache", "ls")
    assert "clusters" in out
    assert "3 stages" in out
    code, _, err = call("cache", "clean")
    assert code == 2
    assert "say what to delete" in one_line(err)
    assert "deleted 0 folders" in call("cache", "clean", "--method", "knn")[1]
    assert "deleted 0 folders" in call("cache", "clean", "--older-than", 1)[1]
    assert "deleted 0 folders" in call("cache", "clean", "--unfinished")[1]
    code, _, err = call("cache", "clean", "--older-than", -1)
    assert code == 2
    assert "from 0 up" in one_line(err)
    (StageCache().folder / "eclare.graph-0123.checkpoints").mkdir()
    assert "unfinished: 1 folders" in call("cache", "ls")[1]
    assert "deleted 0 folders" in call("cache", "clean", "--method", "knn", "--unfinished")[1]
    assert "deleted 1 folders" in call("cache", "clean", "--method", "eclare", "--unfinished")[1]
    assert "deleted 3 folders" in call("cache", "clean", "--all")[1]
    assert "0 stages" in call("cache", "ls")[1]
    assert "staged-" in call("list", "runs")[1]


def test_stages_in_use_are_not_cleaned(call, toy):
    from xcbench.disk import locked

    call("run", "--method", STAGED, "--dataset", toy)
    with locked(StageCache().entries()[0].folder, "test"):
        assert "deleted 2 folders" in call("cache", "clean", "--all")[1]
        assert "1 stages" in call("cache", "ls")[1]
