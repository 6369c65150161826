"""Building the report: which pages there are, what each is given, and how they are written."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from xcbench import __version__
from xcbench.disk import readable_disk_errors
from xcbench.errors import InputError, XCBenchError
from xcbench.files import atomic_folder
from xcbench.plugins import registry
from xcbench.report import experiments
from xcbench.report.claims import CLAIMS_LEGEND
from xcbench.report.costs import conditions
from xcbench.report.experiments import Experiment
from xcbench.report.grid import with_minus
from xcbench.report.render import BY_OTHER_CODE, ONE_SEED, heading_of, place_in_paper
from xcbench.report.scores import DatasetRuns
from xcbench.report.site import links
from xcbench.report.site.bins import bins_data
from xcbench.report.site.leaderboard import (
    RANKED_BY,
    SHOWN_AT_FIRST,
    Entry,
    Leaderboard,
    board_data,
    leaderboard,
)
from xcbench.report.site.papers import PaperTable, beside_paper, paper_tables, part_of, verdict_counts
from xcbench.report.site.plugins import KINDS as PLUGIN_KINDS
from xcbench.report.site.plugins import PlugInPage, plugin_pages
from xcbench.report.site.predictions import ShownPoints, can_show, points_data, run_data
from xcbench.report.tables import ALPHA
from xcbench.report.variants import KINDS, Kind
from xcbench.runner.store import Record, Store

MARKER = ".xcbench-report"
"""Says that a folder is a report, so that it may be replaced by a newer one."""
AT_FIRST: tuple[Kind, ...] = ("method", "augmented", "reranked", "ensemble")
"""The kinds of runs that a leaderboard shows before a reader chooses others."""
_log = logging.getLogger(__name__)


def datasets_with_runs(store: Store) -> list[DatasetRuns]:
    """Return every dataset that a store has runs on, the one with the fewest labels first.

    Parameters
    ----------
    store
        The runs. Those on datasets that can no longer be loaded cost a warning each.
    """
    sources = {record.dataset: record.dataset_source for record in store.records()}
    if not sources:
        raise InputError(f"{store.folder} has no runs to report on; `xcbench run` and `xcbench table` make some")
    loaded = [_load(name, source, store) for name, source in sorted(sources.items())]
    found = [runs for runs in loaded if runs is not None]
    if not found:
        raise InputError(f"no dataset of the runs in {store.folder} can be loaded; name one with --dataset")
    return sorted(found, key=lambda runs: runs.data.label_count)


def _load(name: str, source: str, store: Store) -> DatasetRuns | None:
    try:
        return DatasetRuns.of(source, store)
    except XCBenchError as error:
        _log.warning("the report is without %s: %s", name, error)
        return None


def build_report(datasets: Sequence[DatasetRuns], output: Path) -> Path:
    """Write the report and return its first page.

    Parameters
    ----------
    datasets
        The datasets, each with the store of its runs.
    output
        The folder to write. One that holds an older report is replaced; another that is not empty is an `InputError`.
    """
    _check_output(output)
    with readable_disk_errors(output.parent), atomic_folder(output.absolute()) as folder:
        _Site(datasets, folder).write()
    return output / "index.html"


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; the report is a folder")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise InputError(f"{output} holds something else than a report; name a new folder")


@dataclass(frozen=True)
class _Line:
    """A linked line of a list."""

    name: str
    title: str
    href: str


class _Site:
    """All pages of one report."""

    def __init__(self, datasets: Sequence[DatasetRuns], folder: Path) -> None:
        self.datasets = datasets
        self.folder = folder
        self.plugins = list(plugin_pages())
        self.experiments = [experiments.load(name) for name in experiments.names()]
        self._environment = Environment(
            loader=PackageLoader("xcbench.report.site"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )

        self._environment.filters["minus"] = with_minus

    @cached_property
    def boards(self) -> list[Leaderboard]:
        """The leaderboard of each dataset."""
        return [leaderboard(runs) for runs in self.datasets]

    @cached_property
    def tables(self) -> dict[str, list[PaperTable]]:
        """Every table and figure on each dataset, by name."""
        filled = {}
        for experiment in self.experiments:
            _log.info("filling %s", experiment.name)
            filled[experiment.name] = paper_tables(experiment, self.datasets)
        return filled

    def write(self) -> None:
        """Write all pages."""
        (self.folder / MARKER).write_text("", "utf-8")
        assets = self.folder / "assets"
        assets.mkdir()
        for name in ("report.css", "report.js"):
            with resources.as_file(resources.files("xcbench.report.site") / "static" / name) as path:
                shutil.copyfile(path, assets / name)

        for runs, board in zip(self.datasets, self.boards, strict=True):
            self._write_dataset(runs, board)
            if can_show(runs.data):
                self._write_predictions(runs, board)
        for plugin in self.plugins:
            self._write_plugin(plugin)
        for experiment in self.experiments:
            self._write_table(experiment)
        self._write_index()

    def _write_page(self, path: str, template: str, **values: Any) -> None:
        text = self._environment.get_template(template).render(
            version=__version__,
            root="../" * path.count("/"),
            page=path,
            datasets=[_dataset_line(runs) for runs in self.datasets],
            provenance=self._provenance,
            timed=("train_s", "predict_ms"),
            alpha=f"{ALPHA:.0%}",
            one_seed=ONE_SEED,
            by_other_code=BY_OTHER_CODE,
            conditions=conditions,
            **values,
        )
        self._write_text(path, text)

    def _write_text(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Half a character, as in titles that are not UTF-8, has no bytes.
        target.write_text(text, "utf-8", "replace")

    @cached_property
    def _provenance(self) -> str:
        records = self._records
        days = sorted(record.finished[:10] for record in records)
        if not days:
            return f"Made by xcbench {__version__}."
        return f"Made by xcbench {__version__} from {len(records)} runs of {days[0]} to {days[-1]}."

    @cached_property
    def _records(self) -> list[Record]:
        entries = itertools.chain.from_iterable(board.entries for board in self.boards)
        return [record for entry in entries for record in entry.variant.records]

    def _write_index(self) -> None:
        methods = [plugin for plugin in self.plugins if plugin.kind == "method"]
        others = []
        for kind in ("augmentation", "reranker"):
            lines = [_plugin_line(plugin) for plugin in self.plugins if plugin.kind == kind]
            others.append({"title": PLUGIN_KINDS[kind], "lines": lines})
        self._write_page(
            "index.html",
            "index.html",
            run_count=len(self._records),
            method_count=len({record.method for record in self._records}),
            cards=[_card(runs, board) for runs, board in zip(self.datasets, self.boards, strict=True)],
            ranked_by=RANKED_BY,
            methods=[self._method_line(plugin) for plugin in methods],
            others=others,
            tables=self._table_groups(),
        )

    def _method_line(self, plugin: PlugInPage) -> dict[str, Any]:
        line = _plugin_line(plugin)
        cells = [_plain_figure(board, plugin.name) for board in self.boards]
        return {"name": line.name, "title": line.title, "href": line.href, "cells": cells}

    def _table_groups(self) -> list[dict[str, Any]]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for experiment in self.experiments:
            filled = self.tables[experiment.name]
            line = {
                "href": links.table_page(experiment.name),
                "place": place_in_paper(experiment.place) or experiment.name,
                "title": experiment.title,
                "counts": [_count(of_dataset) for of_dataset in filled],
                "verdicts": verdict_counts(filled),
            }
            groups.setdefault(experiment.paper or "Others", []).append(line)
        return [{"title": title, "lines": lines} for title, lines in groups.items()]

    def _write_dataset(self, runs: DatasetRuns, board: Leaderboard) -> None:
        data = runs.data
        kinds = []
        for kind, title in KINDS.items():
            count = sum(entry.variant.kind == kind for entry in board.entries)
            if count:
                kinds.append({"name": kind, "title": title, "count": count, "shown": kind in AT_FIRST})
        predictions = ""
        if can_show(data):
            predictions = links.predictions_page(data.name)
        self._write_page(
            links.dataset_page(data.name),
            "dataset.html",
            name=data.name,
            labels=data.label_count,
            train=len(data.train),
            test=len(data.test),
            board=board,
            ranked_by=RANKED_BY,
            kinds=kinds,
            shown=SHOWN_AT_FIRST,
            method_links=self._method_links,
            predictions=predictions,
            board_data=board_data(board),
            bins_data=bins_data(runs, [entry.variant for entry in board.entries]),
        )

    @cached_property
    def _method_links(self) -> Mapping[str, str]:
        return {page.name: links.plugin_page(page.kind, page.name) for page in self.plugins if page.kind == "method"}

    def _write_predictions(self, runs: DatasetRuns, board: Leaderboard) -> None:
        data = runs.data
        shown = ShownPoints.of(data)
        variants = [entry.variant for entry in board.entries]
        files = {variant.name: links.run_file(data.name, number) for number, variant in enumerate(variants)}
        for variant in variants:
            value = json.dumps(run_data(variant.records[0], shown), separators=(",", ":"))
            self._write_text(files[variant.name], f"receiveRun({json.dumps(files[variant.name])}, {value});\n")
        self._write_page(
            links.predictions_page(data.name),
            "predictions.html",
            name=data.name,
            dataset_href=links.dataset_page(data.name),
            points=len(shown.points),
            points_data=points_data(shown, variants, files),
        )

    def _write_plugin(self, plugin: PlugInPage) -> None:
        boards = []
        for runs, board in zip(self.datasets, self.boards, strict=True):
            entries = [entry for entry in board.entries if _is_with(entry, plugin)]
            if entries:
                part = {
                    "name": runs.data.name,
                    "href": links.dataset_page(runs.data.name),
                    "board": board,
                    "entries": entries,
                }
                boards.append(part)
        self._write_page(
            links.plugin_page(plugin.kind, plugin.name),
            "plugin.html",
            plugin=plugin,
            kind=PLUGIN_KINDS[plugin.kind],
            boards=boards,
            ranked_by=RANKED_BY,
            shown=SHOWN_AT_FIRST,
            tables=[_table_line(experiment) for experiment in self.experiments if _uses(experiment, plugin)],
        )

    def _write_table(self, experiment: Experiment) -> None:
        filled = self.tables[experiment.name]
        with_runs = [of_dataset for of_dataset in filled if of_dataset.rows_with_runs or not experiment.rows]
        (self.folder / "figures").mkdir(exist_ok=True)
        parts = []
        for of_dataset in with_runs:
            stem = links.file_name(f"{experiment.name}-{of_dataset.runs.data.name}")
            parts.append(part_of(of_dataset, self.folder, stem))
        self._write_page(
            links.table_page(experiment.name),
            "table.html",
            experiment=experiment,
            heading=heading_of(experiment),
            parts=parts,
            beside=beside_paper(experiment, with_runs),
            claims_legend=" ".join(CLAIMS_LEGEND),
        )


def _dataset_line(runs: DatasetRuns) -> _Line:
    return _Line(runs.data.name, runs.data.name, links.dataset_page(runs.data.name))


def _plugin_line(plugin: PlugInPage) -> _Line:
    return _Line(plugin.name, plugin.title, links.plugin_page(plugin.kind, plugin.name))


def _table_line(experiment: Experiment) -> dict[str, str]:
    where = f"{experiment.paper} {place_in_paper(experiment.place)}".strip()
    return {
        "place": where or experiment.name,
        "title": experiment.title,
        "href": links.table_page(experiment.name),
    }


def _card(runs: DatasetRuns, board: Leaderboard) -> dict[str, Any]:
    best = []
    for shown in board.columns:
        if shown.name in ("P@1", "PSP@1"):
            best += [
                {"metric": shown.name, "shown": shown.show(entry.cells[shown.name].value), "name": entry.variant.name}
                for entry in board.entries
                if shown.name in entry.cells and entry.cells[shown.name].best
            ]
    return {
        "name": runs.data.name,
        "href": links.dataset_page(runs.data.name),
        "labels": runs.data.label_count,
        "train": len(runs.data.train),
        "test": len(runs.data.test),
        "runs": sum(len(entry.variant.records) for entry in board.entries),
        "best": best,
    }


def _plain_figure(board: Leaderboard, method: str) -> dict[str, Any]:
    """Return what a method reaches as it is, and whether no other method reaches more."""
    plain = {
        entry.variant.method: entry.cells[RANKED_BY].value
        for entry in board.entries
        if entry.variant.kind == "method" and RANKED_BY in entry.cells
    }
    if method not in plain:
        return {"value": "", "shown": "–", "best": False}
    value = plain[method]
    return {"value": value, "shown": f"{value:.2f}", "best": value == max(plain.values())}


def _count(of_dataset: PaperTable) -> str:
    rows = len(of_dataset.table.rows)
    if not rows:
        return "drawn"
    return f"{of_dataset.rows_with_runs} of {rows}"


def _is_with(entry: Entry, plugin: PlugInPage) -> bool:
    record = entry.variant.records[0]
    return plugin.name in _names(plugin.kind, record.method, record.augment, record.rerank)


def _uses(experiment: Experiment, plugin: PlugInPage) -> bool:
    return any(plugin.name in _names(plugin.kind, row.method, row.augment, row.rerank) for row in experiment.rows)


def _names(kind: registry.Kind, method: str, augment: Sequence[str], rerank: str | None) -> Sequence[str]:
    """Return the plug-ins of one kind that a run is made of."""
    if kind == "method":
        return (method,)
    if kind == "augmentation":
        return augment
    return (rerank or "",)
