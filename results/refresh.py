"""Make what this folder holds: `make results`. Runs what is missing, then renders everything anew.

The tables and figures are those with at least one run. `runs/` keeps all of these, without models and with the first
20 predictions of each point, so that a machine which has only some of the runs renders the others from there.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbclient

from xcbench.report import claims, experiments, grid, plots, render, tables
from xcbench.report.experiments import Experiment
from xcbench.report.notebooks import keep_summary
from xcbench.report.scores import DatasetRuns
from xcbench.runner.store import Record, Store
from xcbench.report.tradeoff import draw_tradeoff
from xcbench.files import atomic_file

HERE = Path(__file__).parent
DATASETS = ("lf-debian-4k", "lf-debian-12k", "lf-wordnet-27k")


class Kept(Store):
    """What this folder keeps of runs, and in front of it the full records of this machine."""

    def __init__(self, full: Store) -> None:
        super().__init__(HERE / "runs")
        self.full = full

    def get(self, run_id: str) -> Record | None:
        return self.full.get(run_id) or super().get(run_id)

    def records(self) -> Iterator[Record]:
        yield from self.full.records()
        yield from (record for record in super().records() if record.id not in self.full)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--store", help="the store of full records (default: the one in XCBENCH_HOME)")
    parser.add_argument("--run", choices=("missing", "none"), default="missing", help="none: render what has run")
    options = parser.parse_args()
    store = Store(options.store)
    for dataset in options.datasets:
        refresh(dataset, store, run=options.run == "missing")
    for source in sorted(HERE.glob("*.py")):
        if source.name != Path(__file__).name:
            execute(source)


def refresh(dataset: str, full: Store, run: bool) -> None:
    """Everything about one dataset."""
    folder, kept = HERE / dataset, Kept(full)
    shutil.rmtree(folder, ignore_errors=True)
    shelf = DatasetRuns.of(dataset, kept)
    used: dict[str, Record] = {}
    for name in experiments.names():
        experiment = experiments.load(name)
        if run:
            tables.run_missing(experiment, [DatasetRuns.of(dataset, full)], experiment.seeds, say=say)
        rows = tables.runnable(experiment)
        found = {r.id: r for row in rows for r in shelf.records(row, experiment.seeds).values()}
        if found or not experiment.rows:
            write(folder / name, experiment, shelf)
            used |= found
    draw_tradeoff(shelf, folder / "tradeoff.png")
    keep(used, dataset, kept)


def keep(used: dict[str, Record], dataset: str, kept: Kept) -> None:
    """Summaries of these runs on a dataset, and of no others on it."""
    for record in [record for record in Store(kept.folder).records() if record.dataset == dataset]:
        if record.id not in used:
            shutil.rmtree(record.folder)
    for record in used.values():
        if record.id in kept.full:
            keep_summary(record, Store(kept.folder))


def write(stem: Path, experiment: Experiment, shelf: DatasetRuns) -> None:
    """The rendered table with its claims, tidy figures, and the picture where there is one."""
    if experiment.rows:
        table = tables.fill(experiment, shelf, experiment.seeds)
        parts = [f"`xcbench table {experiment.name} --dataset {shelf.data.name}`\n", render.render([table], "md")]
        if experiment.claims:
            found = claims.judge_claims(experiment, [shelf], experiment.seeds)
            parts.append(grid.as_markdown([claims.claims_grid(experiment, found)]))
        parts.append(provenance(table))
        put(stem.with_suffix(".md"), "\n".join(parts))
        put(stem.with_suffix(".csv"), render.render([table], "csv"))
    if experiment.figure:
        stem.parent.mkdir(parents=True, exist_ok=True)
        plots.draw(experiment, shelf, experiment.seeds, stem.with_suffix(".png"))


def provenance(table: tables.Table) -> str:
    """When and where the figures were made."""
    records = [record for row in table.rows for record in row.records]
    if not records:
        return ""
    days = sorted(record.finished[:10] for record in records)
    environment = records[0].environment
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    return (
        f"Runs of {days[0]}{f' to {days[-1]}' if days[-1] != days[0] else ''} with xcbench {environment['xcbench']}, "
        f"Python {environment['python']}, {packages}; {environment['processor']}, {environment['threads']} threads, "
        f"{environment['device']}.\n"
    )


def execute(source: Path) -> None:
    """A notebook from its source, with its output."""
    say(f"executing {source.name}")
    notebook = jupytext.read(source)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(HERE)}}).execute()
    for number, cell in enumerate(notebook.cells):
        # Times of day and random ids would make every refresh a change.
        cell.metadata.pop("execution", None)
        cell["id"] = f"cell-{number}"
    put(source.with_suffix(".ipynb"), jupytext.writes(notebook, fmt="ipynb"))


def put(path: Path, text: str) -> None:
    with atomic_file(path) as part:
        part.write_text(text.rstrip() + "\n", "utf-8")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
