"""What stands in the pages: the figures of the tables, text that stays text, and links that lead somewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from tests.report.site.conftest import HOSTILE
from xcbench.cli import main
from xcbench.errors import InputError
from xcbench.evaluation import Truth
from xcbench.report import experiments
from xcbench.report.render import render
from xcbench.report.scores import DatasetRuns
from xcbench.report.site import build_report
from xcbench.report.site.bins import bins_data
from xcbench.report.site.leaderboard import Leaderboard, leaderboard
from xcbench.report.site.links import file_name
from xcbench.report.site.predictions import ShownPoints, run_data
from xcbench.report.summaries import keep_summary
from xcbench.report.tables import fill
from xcbench.report.variants import variants_on
from xcbench.runner.store import Store


class Page(HTMLParser):
    """The tags of a page, and the texts inside of its scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, object] = {}
        self._script: str | None = None
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if tag == "script" and found.get("type") == "application/json":
            self._script = found["id"]

    def handle_data(self, text):
        if self._script is not None:
            self.data[self._script] = json.loads(text)
            self._script = None

    def values(self, name: str) -> set[str]:
        return {attributes[name] for _, attributes in self.tags if attributes.get(name)}


@pytest.fixture(scope="session")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_there_is_a_page_for_everything(site):
    for name in ("index", "datasets/toy", "datasets/toy-predictions", "methods/knn", "methods/eclare", "tables/mine"):
        assert (site / f"{name}.html").is_file()


def test_every_link_leads_to_a_file_and_a_place_in_it(pages):
    followed = 0
    for path, page in pages.items():
        for link in page.values("href") | page.values("src"):
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            assert not parts.scheme, f"{path.name} needs a network: {link}"
            assert not parts.netloc
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment:
                assert parts.fragment in pages[target].values("id"), f"{path.name}: {link}"
            followed += 1
    assert followed > 100


def test_titles_stay_text(site, pages):
    for path in site.rglob("*"):
        if path.suffix == ".html":
            assert "<script>document" not in path.read_text("utf-8")
            assert "<b>parts" not in path.read_text("utf-8")
    for page in pages.values():
        assert not any("onclick" in attributes for _, attributes in page.tags)
        scripts = [attributes for tag, attributes in page.tags if tag == "script"]
        assert all("src" in script or script.get("type") == "application/json" for script in scripts)
    data = pages[site / "datasets" / "toy-predictions.html"].data["points-data"]
    assert data["titles"][3] == f"title number 3 {HOSTILE}"
    assert data["labels"][2] == f"label 2 {HOSTILE}"


def test_the_script_sets_no_html():
    script = (Path(__file__).parents[3] / "xcbench/report/site/static/report.js").read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?://(?!www\.w3)", script
    )


@pytest.fixture(scope="session")
def board(toy_runs) -> Leaderboard:
    return leaderboard(toy_runs)


def test_the_leaderboard_has_the_figures_of_a_table(board, toy_runs, experiment_file):
    by_run = {entry.variant.records[0].id: entry for entry in board.entries}
    table = fill(experiments.load(str(experiment_file)), toy_runs, (0,))
    compared = 0
    for row in table.rows[:2]:
        entry = by_run[row.records[0].id]
        for name, cell in row.cells.items():
            shown = entry.cells[name]
            assert shown.value == cell.value
            assert (shown.low, shown.high) == pytest.approx((cell.low, cell.high), abs=0.5)
            compared += 1
    assert compared == 4


def test_the_leaderboard_ranks_averages_seeds_and_marks_ties(board, pages, site):
    values = [entry.cells["P@1"].value for entry in board.entries]
    assert values == sorted(values, reverse=True)
    knn = next(entry for entry in board.entries if entry.variant.name == "knn")
    assert [record.seed for record in knn.variant.records] == [0, 1]
    assert {entry.variant.kind for entry in board.entries} == {"method", "ablation", "settings"}
    # knn finds the only feature of every point; half right is significantly worse.
    assert knn.cells["P@1"].value == 100
    fair = next(entry for entry in board.entries if "0.5" in entry.variant.name)
    assert not fair.cells["P@1"].tied

    data = pages[site / "datasets" / "toy.html"].data["board-data"]
    shown = {entry["name"]: entry["figures"]["P@1"][0] for entry in data["entries"]}
    assert shown == {entry.variant.name: entry.cells["P@1"].value for entry in board.entries}


def test_bars_lie_where_the_intervals_do(board):
    drawn = 0
    for entry in board.entries:
        for name, bar in entry.bars.items():
            cell = entry.cells[name]
            assert 0 <= bar.low <= bar.high <= 100
            assert bar.low - 1e-6 <= bar.value <= bar.high + 1e-6
            assert (bar.low == bar.high) == (cell.low == cell.high or bar.high == 0)
            drawn += 1
    assert drawn > 40


def test_a_table_page_has_what_the_table_renderer_writes(site, toy_runs, experiment_file):
    page = (site / "tables" / "mine.html").read_text("utf-8")
    table = fill(experiments.load(str(experiment_file)), toy_runs, (0,))
    body = re.findall(r"<tbody>.*?</tbody>", render([table], "html"), re.DOTALL)
    assert len(body) == 2
    for rows in body:
        assert rows in page
    assert "does not hold" in page or "undecided for want of seeds" in page
    assert "33.54" in page  # what the paper prints on LF-AmazonTitles-131K
    assert "LF-AmazonTitles-131K" in page
    assert "One seed: the noise of training is not in the intervals." in page
    assert (site / "figures" / "mine-toy.svg").is_file()


def test_a_method_page_says_what_ablations_change(site):
    page = (site / "methods" / "eclare.html").read_text("utf-8")
    assert "ECLARE-NoGraph" in page
    assert "Mittal" in page
    assert re.search(r"<code>classifier\.\w+</code>: \S+ → <b>", page)


def test_bins_add_up_to_the_metric(toy_runs):
    variants = variants_on(toy_runs.store.records(), toy_runs.data.fingerprint)
    data = bins_data(toy_runs, variants)
    assert sum(data["labels"]) == toy_runs.data.label_count
    for variant in variants:
        whole = np.mean([record.evaluate(toy_runs.data, ["P@5"]).values()["P@5"] for record in variant.records])
        parts = data["figures"][variant.name]["P@5"]
        assert sum(value for value, _, _ in parts) == pytest.approx(whole)


def test_predictions_and_places_are_those_of_the_run(toy_runs):
    record = next(record for record in toy_runs.store.records() if record.overrides.get("right") == 0.5)
    found = run_data(record, ShownPoints.of(toy_runs.data))
    ranked = record.predictions().indices
    Y = toy_runs.data.test.Y
    for point in range(len(toy_runs.data.test)):
        assert found["predictions"][point] == [label for label in ranked[point, :5].tolist() if label >= 0]
        (true,) = Y.indices[Y.indptr[point] : Y.indptr[point + 1]].tolist()
        places = np.flatnonzero(ranked[point] == true)
        assert found["places"][point] == [int(places[0]) + 1 if len(places) else 0]


def test_a_run_that_is_kept_by_its_hits_has_places_and_no_predictions(toy_runs, tmp_path):
    small = Store(tmp_path)
    record = next(record for record in toy_runs.store.records() if record.method == "knn")
    keep_summary(record, small, toy_runs.data)
    shown = ShownPoints.of(toy_runs.data)
    whole = run_data(record, shown)
    kept = run_data(small.find(record.id), shown)
    assert kept["predictions"] is None
    assert kept["places"] == whole["places"]
    assert Truth.of(toy_runs.data).positives.nnz == sum(len(places) for places in kept["places"])


def test_runs_of_other_code_are_marked(toy_runs, tmp_path):
    summaries = Store(tmp_path)
    for record in toy_runs.store.records():
        keep_summary(record, summaries, toy_runs.data)
    changed = next(record for record in summaries.records() if record.method == "popularity")
    path = changed.folder / "record.json"
    value = json.loads(path.read_text())
    value["environment"]["code"] = "of yesterday"
    path.write_text(json.dumps(value))
    board = leaderboard(DatasetRuns(toy_runs.data, summaries, toy_runs.source))
    assert [entry.variant.name for entry in board.entries if entry.is_by_other_code] == ["popularity"]


def test_file_names_are_plain_and_differ():
    names = ["a b", "a_20b", "ä", "a/b", "..", "a<b>", "A+b", "a%20b"]
    files = [file_name(name) for name in names]
    assert all(re.fullmatch(r"[A-Za-z0-9._+-]+", file) for file in files)
    assert file_name("eclare/table5") == "eclare-table5"


def test_a_folder_with_something_else_is_left_alone(toy_runs, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds something else"):
        build_report([toy_runs], tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(InputError, match="is a file"):
        build_report([toy_runs], tmp_path / "thesis.tex")


def test_the_verb_writes_and_replaces_a_report(toy_runs, experiment_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(experiments, "names", lambda: [str(experiment_file)])
    monkeypatch.setattr("xcbench.report.site.build.plugin_pages", lambda: iter(()))
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            where = ["--dataset", toy_runs.source, "--store", str(toy_runs.store.folder)]
            main(["report", *where, "--output", str(tmp_path / "report")])
        assert not end.value.code
    assert str(tmp_path / "report" / "index.html") in capsys.readouterr().out
    assert (tmp_path / "report" / "datasets" / "toy.html").is_file()


def test_runs_on_data_that_is_gone_are_one_line(toy_runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["report", "--store", str(toy_runs.store.folder)])
    assert end.value.code == 2
    errors = capsys.readouterr().err
    assert "warning: the report is without toy: " in errors
    assert "can be loaded; name one with --dataset" in errors


def test_an_empty_store_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["report", "--store", str(tmp_path / "none"), "--output", str(tmp_path / "report")])
    assert end.value.code == 2
    assert "has no runs to report on" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
