"""What was tried is a table: its variants exist, its figures are figures, and a search appends to it."""

from functools import partial

import pytest

from experiments.search import __main__ as search
from experiments.search.trials import COLUMNS, FOLDER, METRICS, append_trial, read_trials, read_variants
from xcbench.plugins import registry
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec

TABLES = sorted(path.stem for path in FOLDER.glob("*.csv"))
RERANKERS = ("calibrated", "sparse")


def test_every_method_and_reranker_with_variants_has_a_table():
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == TABLES


@pytest.mark.parametrize("name", TABLES)
def test_variants_of_the_table_are_listed_or_marked(name):
    variants = read_variants(name)
    for row in read_trials(name):
        if row["status"] == "listed":
            assert row["variant"] in variants
        elif row["status"] == "gone":
            assert row["variant"] not in variants
        else:
            assert row["status"] == "reference"


@pytest.mark.parametrize("name", TABLES)
def test_rows_say_what_was_measured(name):
    methods = {entry.name for entry in registry.entries("method")}
    for row in read_trials(name):
        assert tuple(row) == COLUMNS
        assert set(row["method"].split("+")) <= methods
        assert row["dataset"] in ("lf-debian-4k", "lf-debian-12k", "lf-wordnet-27k")
        assert row["fold"]
        assert row["seed"]
        assert row["vocabulary"] in ("slice", "whole")
        figures = [row[metric] for metric in METRICS if row[metric]]
        assert figures or row["note"]
        assert all(0 < float(figure) < 100 for figure in figures)


@pytest.mark.parametrize("name", TABLES)
def test_no_yaml_keeps_figures_in_comments(name):
    for line in (FOLDER / f"{name}.yaml").read_text("utf-8").splitlines():
        _, _, comment = line.partition("#")
        assert not any(character.isdigit() for character in comment), line


@pytest.mark.parametrize("name", TABLES)
def test_variants_can_run(name, lf_debian_4k):
    for variant, settings in read_variants(name).items():
        if name in RERANKERS:
            spec = RunSpec("decaf", "lf-debian-4k", rerank=name, overrides=settings)
        elif name == "recipes":
            spec = RunSpec("decaf", "lf-debian-4k", augment=("gandalf",), rerank="calibrated", overrides=settings)
        else:
            spec = RunSpec(name, "lf-debian-4k", overrides=settings)
        assert resolve(spec, lf_debian_4k).id, variant


def test_a_row_is_appended(tmp_path):
    values = dict(zip(METRICS, (1.234, 2, 3, 4, 5), strict=True))
    for fold in (0, 1):
        append_trial("mine", "a", "decaf", ["ignore-filtered"], "lf-debian-4k", fold, 0, values, 1.25, tmp_path)

    first, second = read_trials("mine", tmp_path)
    assert tuple(first) == COLUMNS
    assert (first["variant"], first["status"], first["augment"]) == ("a", "listed", "ignore-filtered")
    assert (first["P@1"], first["R@10"], first["seconds"]) == ("1.23", "5.00", "1.2")
    assert (first["fold"], second["fold"]) == ("0", "1")


def test_a_search_prints_and_saves_what_variants_reach(tmp_path, monkeypatch, capsys):
    (tmp_path / "knn.yaml").write_text("few: {neighbours: 5}\nmany: {neighbours: 50}\n")
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(search, "read_variants", partial(read_variants, folder=tmp_path))
    monkeypatch.setattr(search, "append_trial", partial(append_trial, folder=tmp_path))
    monkeypatch.setattr("sys.argv", ["search", "knn", "--fold", "1", "--only", "few", "--save"])
    search.main()

    *_, header, scores = capsys.readouterr().out.splitlines()
    assert header.split() == [*METRICS, "CPU", "s", "variant"]
    (row,) = read_trials("knn", tmp_path)
    assert (row["variant"], row["method"], row["dataset"], row["fold"]) == ("few", "knn", "lf-debian-4k", "1")
    assert [row[metric] for metric in METRICS] == scores.split()[:5]
