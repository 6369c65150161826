"""Every shipped table and figure is a test: it reads, its names exist or are planned, it leaves no paper row out."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from xcbench.plugins import registry
from xcbench.report import experiments, paper
from xcbench.report.availability import check, unavailable
from xcbench.report.claims import claimed_differences, published_differences
from xcbench.runner.resolve import resolve

NAMES = experiments.names()
EXPECTED = {
    "decaf": ["table1", "table4", "table5", "table6", "figure4", "figure5", "figure6"],
    "eclare": ["table2", "table4", "table5", "table7", "figure1", "figure7", "figure9"],
    "elias": ["table1", "table2", "table3", "figure3", "figure4", "figure5"],
    "gandalf": [*(f"table{number}" for number in range(2, 8)), "figure2", "figure2b", "figure3", "figure3b"],
}


def test_all_tables_and_figures_are_there():
    assert [f"{folder}/{name}" for folder, names in EXPECTED.items() for name in names] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_it_is_registered_or_planned(name):
    check(experiments.load(name))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_can_run_resolve(name, lf_debian_4k):
    experiment = experiments.load(name)
    for row in experiment.rows:
        if unavailable(row) is None:
            assert resolve(row.spec("lf-debian-4k", 0), lf_debian_4k).id


@pytest.mark.parametrize("name", [name for name in NAMES if "table" in name])
def test_rows_are_the_paper_s_and_none_is_missing(name):
    experiment = experiments.load(name)
    printed = {key[3] for key in paper.published() if key[:2] == (experiment.paper, experiment.place)}
    rows = {row.paper_row for row in experiment.rows if row.paper != "-"}
    assert rows == printed
    own = [row for row in experiment.rows if row.paper == "-"]
    assert all(unavailable(row) is None or row.method == "xrlinear" for row in own if row.rerank is None)


@pytest.mark.parametrize("name", [name for name in NAMES if "table" in name])
def test_metrics_are_the_paper_s(name):
    experiment = experiments.load(name)
    printed = {key[4] for key in paper.published() if key[:2] == (experiment.paper, experiment.place)}
    ours = {metric for metric in experiment.metrics if metric not in ("train_s", "model_mb")}
    named = {"predict_ms": "prediction time (ms)", "LMI": "LMI (lower better)"}
    assert {named.get(metric, metric) for metric in ours} == printed - {"prediction time CPU (ms)"}


@pytest.mark.parametrize("name", [name for name in NAMES if experiments.load(name).claims])
def test_claims_are_what_the_paper_s_own_figures_say(name):
    """On most datasets of the paper; a claim that the paper's own table contradicts is ours, not the paper's."""
    experiment = experiments.load(name)
    for claim in experiment.claims:
        assert claim.says.endswith(".")
        for metric in claim.metrics:
            for weights in claimed_differences(claim):
                found = published_differences(experiment, claim, metric, weights).values()
                agreeing = [difference > claim.margin for difference in found]
                assert sum(agreeing) * 2 >= len(agreeing), (claim.says, metric, weights, list(found))


def test_planned_names_are_not_registered():
    """Whoever registers a method removes its line in experiments/planned.yaml (and its ablations' as they come)."""
    planned = experiments.planned()
    for kind, names in [
        ("method", planned.methods),
        ("augmentation", planned.augmentations),
        ("reranker", planned.rerankers),
    ]:
        built = {entry.name for entry in registry.entries(kind)}
        assert not built & set(names), f"experiments/planned.yaml still plans {kind} {sorted(built & set(names))}"
    for method, ablations in planned.ablations.items():
        usable = {entry.name for entry in registry.entries("method") if not entry.problem}
        if method in usable:
            built = set(registry.get_method(method).ablations) & set(ablations)
            assert not built, f"experiments/planned.yaml still plans ablations {sorted(built)} of {method}"


def test_planned_names_are_used():
    used = {name for name in NAMES for row in experiments.load(name).rows for name in (row.method, *row.augment)}
    planned = experiments.planned()
    assert {*planned.methods, *planned.augmentations} <= used


def test_no_note_is_written_twice():
    """What several rows note is in experiments/notes.yaml."""
    for name in NAMES:
        text = (experiments.folder() / f"{name}.yaml").read_text("utf-8")
        assert not any(note in text for note in experiments.shared_notes().values())
    used = [row.note for name in NAMES for row in experiments.load(name).rows if row.note]
    assert set(experiments.shared_notes().values()) <= set(used)
    assert {note for note in used if used.count(note) > 1} <= set(experiments.shared_notes().values())


def test_paper_figures():
    table = experiments.load("eclare/table5")
    figure = paper.figure(table, "LF-AmazonTitles-131K", "ECLARE-NoGraph", "PSP@1")
    assert figure is not None
    assert figure.value == 30.49
    assert paper.figure(table, "lf-debian-4k", "ECLARE-NoGraph", "PSP@1") is None
    first = experiments.load("decaf/table1")
    assert paper.figure(first, "lf-amazontitles-131k", "DECAF", "predict_ms").value == 1.15  # CPU before GPU
    assert paper.figure(first, "lf-amazontitles-131k", "Astec", "predict_ms").value == 2.34
    assert paper.figure(first, "LF-AmazonTitles-1.3M", "DiSMEC", "P@1") is None  # a dash in the paper


@pytest.mark.slow
def test_an_installed_package_has_them(tmp_path):
    """The wheel carries the files, and a Python that sees only the wheel finds them."""
    root = Path(experiments.__file__).parents[2]
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(root)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.path.insert(0, {str(tmp_path / "site")!r})
import xcbench.report.experiments as shipped
print(len([shipped.load(name) for name in shipped.names()]), shipped.__file__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    count, where = done.stdout.split()
    assert int(count) == len(NAMES)
    assert where.startswith(str(tmp_path))
