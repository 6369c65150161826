"""Tables: every figure against a known answer, every missing one with its reason, every interruption without loss."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import yaml

from tests.report.conftest import METHOD, InProcess, make_toy
from xcbench.cli import main
from xcbench.report import experiments, paper, tables
from xcbench.report.experiments import Experiment, Row
from xcbench.report.render import render
from xcbench.report.scores import DatasetRuns
from xcbench.runner.spec import OverwriteStrategy


def row(label: str, **overrides: object) -> Row:
    return Row(label, METHOD, overrides=overrides)


def experiment(*rows: Row, metrics=("P@1", "C@1"), **more) -> Experiment:
    return Experiment("mine", "A table", rows, metrics, **more)


def filled(table: Experiment, dataset_runs: DatasetRuns, seeds=(0,), launcher=None) -> tables.Table:
    failures = tables.run_missing(table, [dataset_runs], seeds, launcher or InProcess())
    return tables.fill(table, dataset_runs, seeds, failures)


def cells(table: tables.Table, metric: str) -> dict[str, tables.Cell]:
    return {row.row.label: row.cells[metric] for row in table.rows if metric in row.cells}


def test_figures_marks_and_differences(dataset_runs):
    table = experiment(
        row("all right", right=1.0),
        row("nearly", right=0.995),
        row("half", right=0.5),
        Row("floor", "popularity"),
        metrics=("P@1", "P@5", "C@1", "LMI", "train_s"),
        reference="all right",
    )
    result = filled(table, dataset_runs)
    first = cells(result, "P@1")
    assert {label: cell.value for label, cell in first.items()} == {
        "all right": 100.0,
        "nearly": 99.5,
        "half": 50.0,
        "floor": 10.0,
    }
    # One point of 200 proves nothing, a hundred do.
    assert [label for label, cell in first.items() if cell.best] == ["all right"]
    assert [label for label, cell in first.items() if cell.tied] == ["nearly"]
    assert first["half"].difference == -50.0
    assert first["half"].p_value < 0.01
    assert first["nearly"].p_value > 0.05
    assert first["all right"].difference is None
    half = first["half"]
    assert half.low < 50.0 < half.high
    # 1.96 sqrt(0.5 * 0.5 / 200) is 6.9 points
    assert (half.high - half.low) / 2 == pytest.approx(6.9, abs=0.8)
    assert cells(result, "P@5")["all right"].value == 20.0
    assert cells(result, "C@1")["half"].value == 100.0  # every label is right somewhere in the first half
    lmi = cells(result, "LMI")
    assert set(lmi) == {"all right", "nearly", "half"}
    assert lmi["half"].value == 12.5
    assert lmi["half"].low is None
    assert all(cell.value > 0 for cell in cells(result, "train_s").values())
    assert [row.state for row in result.rows] == ["done"] * 4


def test_seeds_are_averaged_and_their_spread_is_shown(dataset_runs):
    table = experiment(row("steady", right=0.5), row("moving", right=0.5, noise=0), metrics=("P@1",))
    result = filled(table, dataset_runs, seeds=(0, 1, 2))
    steady = cells(result, "P@1")["steady"]
    assert steady.value == 50.0
    assert steady.deviation == 0.0
    assert all(len(row.records) == 3 for row in result.rows)
    assert {record.seed for record in result.rows[0].records} == {0, 1, 2}
    assert "3 seeds" in render([result])


def test_what_is_in_the_store_does_not_run_again(dataset_runs):
    table = experiment(row("a", right=0.5), row("the same as a", right=0.5), row("b", right=0.7))
    launcher = InProcess()
    tables.run_missing(table, [dataset_runs], (0,), launcher)
    assert launcher.started == ["a on toy, seed 0", "b on toy, seed 0"]
    again = InProcess()
    assert tables.run_missing(table, [dataset_runs], (0,), again) == {}
    assert again.started == []


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("record.json", lambda path: path.write_text("{ half a")),
        ("predictions.npz", lambda path: path.write_bytes(b"zip?")),
        ("predictions.npz", lambda path: path.unlink()),
    ],
)
def test_a_damaged_record_runs_again(dataset_runs, caplog, part, damage):
    table = experiment(row("a", right=0.5), row("b", right=1.0))
    (damaged, *_), _ = (r.records for r in filled(table, dataset_runs).rows)
    damage(damaged.folder / part)
    assert [r.state for r in tables.fill(table, dataset_runs, (0,)).rows] == ["not run", "done"]
    again = InProcess()
    result = filled(table, dataset_runs, launcher=again)
    assert again.started == ["a on toy, seed 0"]
    assert cells(result, "P@1")["a"].value == 50.0
    assert f"{damaged.id}/{part}" in caplog.text


def test_rows_that_cannot_run_or_failed_stay_and_say_why(dataset_runs):
    table = experiment(
        row("fine", right=1.0),
        row("unlucky", right=0.4),
        Row("to come", "lightxml"),
        row("sometimes", right=0.9, noise=1),
        metrics=("P@1",),
    )
    launcher = InProcess({"unlucky": "out of memory", "sometimes on toy, seed 1": "timed out after 3 s"})
    result = filled(table, dataset_runs, seeds=(0, 1), launcher=launcher)
    states = {row.row.label: (row.state, row.problem) for row in result.rows}
    assert states["fine"] == ("done", None)
    assert states["unlucky"] == ("failed", "seed 0: out of memory; seed 1: out of memory")
    assert states["to come"] == ("not available", "no package exists; needs pre-trained BERT weights")
    assert states["sometimes"] == ("done", "seed 1: timed out after 3 s")
    assert cells(result, "P@1")["sometimes"].value == 90.0
    text = render([result])
    for words in ("failed", "not available", "no package exists", "timed out after 3 s"):
        assert words in text


def test_a_run_that_fails_when_repeated_leaves_the_old_figure_and_says_so(dataset_runs):
    table = experiment(row("a", right=0.5), row("b", right=1.0))
    filled(table, dataset_runs)
    launcher = InProcess({"a on toy": "out of memory"})
    failures = tables.run_missing(table, [dataset_runs], (0,), launcher, overwrite=OverwriteStrategy.REDO)
    rows = tables.fill(table, dataset_runs, (0,), failures).rows
    assert [r.problem for r in rows] == ["an earlier run, since the new one failed: out of memory", None]
    assert [r.cells["P@1"].value for r in rows] == [50.0, 100.0]


def test_a_run_that_leaves_no_record_is_reported(dataset_runs):
    class Elsewhere(InProcess):
        def launch(self, jobs, timeout=None):
            from xcbench.runner.launchers import Outcome

            yield from (Outcome(job, None, 1.0) for job in jobs)

    failures = tables.run_missing(experiment(row("a")), [dataset_runs], (0,), Elsewhere())
    (why,) = failures.values()
    assert "does not hold its record" in why


def test_nothing_run_yet(dataset_runs):
    result = tables.fill(experiment(row("a")), dataset_runs, (0,))
    assert (result.rows[0].state, result.rows[0].problem) == ("not run", "not run yet")


def test_the_paper_s_figures_stand_beside_ours_on_its_own_data(store, tmp_path):
    known = experiments.load("eclare/table5")
    rows = tuple(Row(r.label, METHOD, overrides={"right": 0.3}) for r in known.rows[:2])
    table = Experiment("x", "x", rows, ("PSP@1", "P@1"), paper="ECLARE", place="T5", reference=rows[0].label)
    for name, expected in [("LF-AmazonTitles-131K", 33.54), ("toy", None)]:
        dataset_runs = DatasetRuns(make_toy(50, name), store, name)
        result = tables.fill(table, dataset_runs, (0,))
        found = result.published.get(("ECLARE", "PSP@1"))
        assert (found.value if found else None) == expected
        assert ("33.54" in render([result])) == (expected is not None)
    assert paper.datasets(known) == ["lf-amazontitles-131k", "lf-wikiseealsotitles-320k"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [{"label": "a", "method": "knnn"}]}, "row 'a': unknown method 'knnn'; did you mean knn?"),
        ({"rows": [{"label": "a", "method": "decaff"}]}, "did you mean decaf or"),
        (
            {"rows": [{"label": "a", "method": "knn", "ablation": "txt"}]},
            "unknown ablation of knn: 'txt'; did you mean",
        ),
        ({"rows": [{"label": "a", "method": "eclare", "ablation": "nographs"}]}, "did you mean nograph"),
        ({"rows": [{"label": "a", "method": "knn", "augment": "gandolf"}]}, "did you mean gandalf"),
        ({"rows": [{"label": "a", "method": "knn", "rerank": "gam"}]}, "did you mean game?"),
        (
            {"rows": [{"label": "a", "method": "knn", "overrides": {"neighbors": 3}}]},
            "row 'a': unknown config key of knn 'neighbors'; did",
        ),
        ({"rows": [{"label": "a", "metod": "knn"}]}, "line 5: unknown row key 'metod'; did you mean method"),
        ({"metrics": ["PPS@1"]}, "unknown metric 'PPS@1'; did you mean PS"),
        ({"metrics": ["trains"]}, "unknown metric 'trains'; did you mean train_s?"),
        ({"datasets": ["lf-debian-4"]}, "unknown dataset 'lf-debian-4'; did you mean lf-debian-4k"),
        ({"reference": "b"}, "reference: unknown row 'b'"),
        ({"seeds": [0, 0]}, "seeds are different whole numbers from 0 up, got [0, 0]"),
        ({"seeds": [-1]}, "seeds are different whole numbers from 0 up, got [-1]"),
        ({"claims": [{"says": "!", "better": "a", "worse": "a", "metrics": ["P@1"]}]}, "'a' stands on both sides"),
        ({"metrics": []}, "needs at least one metric"),
        (
            {
                "rows": [{"label": "a", "method": "knn"}, {"label": "b", "method": "popularity"}],
                "claims": [{"says": "Quick.", "better": "a", "worse": "b", "metrics": ["train_s"]}],
            },
            "a claim is tested over test points, which train_s has none of",
        ),
        ({"colour": "red"}, "unknown experiment key 'colour'"),
        ({"rows": [{"label": "a", "method": "knn"}] * 2}, "two rows are called 'a'"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, store, capsys, change, message):
    good = {"title": "t", "metrics": ["P@1"], "rows": [{"label": "a", "method": "knn"}]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(good | change))
    with pytest.raises(SystemExit) as end:
        main(["table", str(path), "--store", str(store.folder)])
    said = capsys.readouterr()
    assert end.value.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eclare/tabel5"], "unknown table or figure 'eclare/tabel5'; did you mean eclare/table5"),
        (["eclare/table5", "--seeds", "0,a"], "seeds are whole numbers"),
        (["eclare/table5", "--seeds", "1,1"], "different whole numbers"),
        (["eclare/table5", "--timeout", "soon"], "a time is a number of seconds"),
        (["eclare/table5", "--launcher", "slurm"], "unknown launcher 'slurm'"),
        (["none.yaml"], "none.yaml: no such file"),
    ],
)
def test_bad_options_get_one_clear_line(store, capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        main(["table", *arguments])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def write(path, rows, **more):
    text = {"title": "t", "metrics": ["P@1"], "rows": rows, **more}
    path.write_text(yaml.safe_dump(text))
    return str(path)


def scripted(label: str, **overrides: object) -> dict[str, object]:
    return {"label": label, "method": METHOD, "overrides": overrides}


def test_misfortunes_cost_one_cell_each(tmp_path, dataset_runs, capsys):
    """The whole way: real processes, real crashes, one readable table."""
    rows = [
        scripted("fine", right=0.5),
        scripted("wrong", end="error"),
        scripted("killed", end="kill"),
        scripted("crashed", end="crash"),
    ]
    path = write(tmp_path / "mine.yaml", rows)
    command = [
        "table",
        path,
        "--dataset",
        dataset_runs.source,
        "--store",
        str(dataset_runs.store.folder),
        "--jobs",
        "2",
    ]
    with pytest.raises(SystemExit) as end:
        main([*command, "--format", "csv"])
    said = capsys.readouterr()
    assert end.value.code == 1
    frame = pd.read_csv(io.StringIO(said.out)).set_index("row")
    assert frame.loc["fine", "value"] == 50.0
    assert frame["state"].to_dict() == {"fine": "done"} | dict.fromkeys(list(frame.index[1:]), "failed")
    assert frame["problem"].to_dict() | {"fine": ""} == {
        "fine": "",
        "wrong": "RuntimeError: the loss is not a number",
        "killed": "killed by the system, most likely out of memory",
        "crashed": "crashed (SIGSEGV)",
    }
    assert len(dataset_runs.store.ids()) == 1
    assert "[4/4]" in said.err


def test_interrupting_a_table_keeps_what_has_finished(tmp_path, dataset_runs):
    note = tmp_path / "pid"
    rows = [scripted("fine", right=0.5), scripted("endless", end="never", note=str(note))]
    path = write(tmp_path / "mine.yaml", rows)
    program = [
        sys.executable,
        "-m",
        "xcbench.cli.worker",
        str(os.getpid()),
        "table",
        path,
        "--dataset",
        dataset_runs.source,
    ]
    process = subprocess.Popen([*program, "--store", str(dataset_runs.store.folder)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "xcbench: interrupted; the same command goes on where it stopped"
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    table = experiments.load(path)
    assert [row.state for row in tables.fill(table, dataset_runs, (0,)).rows] == ["done", "not run"]


def test_a_store_that_cannot_be_written_is_said(tmp_path, dataset_runs, capsys):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    path = write(tmp_path / "mine.yaml", [scripted("fine")])
    with pytest.raises(SystemExit) as end:
        main(["table", path, "--dataset", dataset_runs.source, "--store", str(blocked)])
    assert end.value.code == 2
    assert str(blocked) in capsys.readouterr().err
    assert blocked.read_text() == "a file where a folder should be"


def test_output_file_and_formats(tmp_path, dataset_runs, capsys):
    tables.run_missing(experiment(row("fine", right=0.5)), [dataset_runs], (0,), InProcess())
    capsys.readouterr()
    path = write(tmp_path / "mine.yaml", [scripted("fine", right=0.5)])
    command = [
        "table",
        path,
        "--dataset",
        dataset_runs.source,
        "--store",
        str(dataset_runs.store.folder),
        "--run",
        "none",
    ]
    for form, sign in [("text", "fine"), ("md", "| fine |"), ("latex", "\\toprule"), ("html", "<!doctype html>")]:
        out = tmp_path / f"out.{form}"
        with pytest.raises(SystemExit) as end:
            main([*command, "--format", form, "--output", str(out)])
        assert end.value.code == 0
        assert sign in out.read_text("utf-8")
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit) as end:
        main([*command, "--output", str(tmp_path / "mine.yaml" / "out.txt")])
    assert end.value.code == 1
    assert "mine.yaml" in capsys.readouterr().err


@pytest.mark.slow
def test_a_table_runs_on_ray(dataset_runs):
    pytest.importorskip("ray")
    from xcbench.runner.ray_launcher import RayLauncher

    table = experiment(row("a", right=0.5), metrics=("P@1",))
    assert tables.run_missing(table, [dataset_runs], (0,), RayLauncher(1)) == {}
    assert cells(tables.fill(table, dataset_runs, (0,)), "P@1")["a"].value == 50.0
