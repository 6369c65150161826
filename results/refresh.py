"""Make what this folder holds: `make results`. Runs what is missing of `plan.yaml`, then renders everything anew.

The tables and figures are those with at least one run. `runs/` keeps summaries of all these runs: no models, and only
the hits in the first 100 places. What has a summary there is not missing: the whole takes hours, and may be made by
several machines one after the other.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jupytext
import nbclient

from xcbench.data.embedded import embedded_names
from xcbench.files import atomic_file
from xcbench.report import claims, examples, experiments, grid, plots, render, tables
from xcbench.report.experiments import Experiment
from xcbench.report.scores import DatasetRuns
from xcbench.report.summaries import keep_summary
from xcbench.report.tradeoff import draw_tradeoff
from xcbench.report.typed_yaml import read_yaml
from xcbench.report.variants import name_of
from xcbench.runner.launchers import LocalLauncher
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.store import Record, Store

HERE = Path(__file__).parent
DATASETS = tuple(embedded_names())

STRATEGIES = {"missing": OverwriteStrategy.KEEP, "stale": OverwriteStrategy.STALE, "none": None}
RUN_HELP = "missing: what has no record. stale: that, and what other code made. none: render what has run"

SHOWN_PREDICTIONS = {
    "lf-debian-4k": {
        # `browse` prints the first five.
        "knn": 5,
        # `compare` fuses these, down to place 20.
        "knn + text": 20,
        "bonsai + metadata": 20,
        "dismec + metadata": 20,
        "parabel + metadata": 20,
        "siamese": 20,
        "decaf": 20,
        "eclare": 20,
        # gandalf/table5 shows five of these, without pairs that do not count.
        "astec": 10,
        "astec + gandalf": 10,
        "inceptionxml": 10,
        "inceptionxml + gandalf": 10,
    },
}
"""How many predictions the notebooks show, by dataset and name of a run. No other run keeps predictions here."""


@dataclass(frozen=True)
class Part:
    """Tables and figures that are made on one dataset."""

    dataset: str
    seeds: tuple[int, ...]
    tables: tuple[str, ...] = ()
    """Their names; all, if none are given."""
    rows: tuple[str, ...] = ()
    """Labels of the rows that are run; all, if none are given."""

    def of(self, experiment: Experiment) -> Experiment | None:
        """Return the experiment with the rows that this part runs of it; None if it runs nothing of it."""
        if self.tables and experiment.name not in self.tables:
            return None
        if not self.rows:
            return experiment
        rows = tuple(experiment.row(label) for label in self.rows)
        return replace(experiment, rows=rows, claims=(), reference=None)


@dataclass(frozen=True)
class Plan:
    """What is run: `plan.yaml`."""

    parts: tuple[Part, ...]

    def on(self, dataset: str) -> list[Part]:
        """Return the parts on one dataset."""
        return [part for part in self.parts if part.dataset == dataset]

    def seeds(self, dataset: str, experiment: Experiment) -> tuple[int, ...]:
        """Return the seeds that an experiment is shown with: all that any of its rows is run with, or else its own."""
        seeds = [part.seeds for part in self.on(dataset) if part.of(experiment) is not None]
        return tuple(sorted(set().union(*seeds))) or experiment.seeds


class FullRecordsAndSummaries(Store):
    """The full records of this machine; of runs that it does not have, what this folder keeps of them."""

    def __init__(self, full: Store) -> None:
        super().__init__(full.folder)
        self.summaries = Store(HERE / "runs")

    def get(self, run_id: str) -> Record | None:
        return super().get(run_id) or self.summaries.get(run_id)

    def records(self) -> Iterator[Record]:
        yield from super().records()
        for record in self.summaries.records():
            if record.id not in self:
                yield record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--store", help="the store of full records (default: the one in XCBENCH_HOME)")
    parser.add_argument("--run", choices=("missing", "stale", "none"), default="missing", help=RUN_HELP)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; with more than 1, times are not comparable")
    options = parser.parse_args()

    plan = read_yaml(HERE / "plan.yaml", Plan)
    store = Store(options.store)
    overwrite = STRATEGIES[options.run]
    for dataset in options.datasets:
        if overwrite is not None:
            run_planned(plan, dataset, store, overwrite, options.jobs)
        render_all(plan, dataset, store)
    for source in sorted(HERE.glob("*.py")):
        if source.name != Path(__file__).name:
            execute(source)


def run_planned(plan: Plan, dataset: str, full: Store, overwrite: OverwriteStrategy, jobs: int) -> None:
    """Run what the plan has for a dataset and neither this machine nor this folder has yet."""
    runs = [DatasetRuns.of(dataset, FullRecordsAndSummaries(full))]
    for part in plan.on(dataset):
        for name in experiments.names():
            experiment = part.of(experiments.load(name))
            if experiment is not None:
                launcher = LocalLauncher(jobs)
                tables.run_missing(experiment, runs, part.seeds, launcher, overwrite=overwrite, progress=log)


def render_all(plan: Plan, dataset: str, full: Store) -> None:
    """Render everything about one dataset, and keep summaries of the runs behind it."""
    folder = HERE / dataset
    shutil.rmtree(folder, ignore_errors=True)
    dataset_runs = DatasetRuns.of(dataset, FullRecordsAndSummaries(full))

    used: dict[str, Record] = {}
    for name in experiments.names():
        experiment = experiments.load(name)
        experiment = replace(experiment, seeds=plan.seeds(dataset, experiment))
        records = records_of(experiment, dataset_runs)
        if records or not experiment.rows:
            write(folder / name, experiment, dataset_runs)
            used |= records

    draw_tradeoff(dataset_runs, folder / "tradeoff.png")
    keep(used, dataset_runs, full)


def records_of(experiment: Experiment, dataset_runs: DatasetRuns) -> dict[str, Record]:
    """The finished runs of an experiment on one dataset, by id."""
    result = {}
    for row in tables.runnable(experiment):
        for record in dataset_runs.records(row, experiment.seeds).values():
            result[record.id] = record
    return result


def keep(used: dict[str, Record], dataset_runs: DatasetRuns, full: Store) -> None:
    """Keep summaries of these runs on a dataset, and of no others on it."""
    data = dataset_runs.data
    summaries = Store(HERE / "runs")
    for record in list(summaries.records()):
        if record.dataset == data.name and record.id not in used:
            shutil.rmtree(record.folder)

    shown = SHOWN_PREDICTIONS.get(data.name, {})
    for record in used.values():
        if record.id in full:
            keep_summary(record, summaries, data, predictions=shown.get(name_of(record), 0))


def write(stem: Path, experiment: Experiment, dataset_runs: DatasetRuns) -> None:
    """Write the rendered table with its claims, tidy figures, and the picture where there is one."""
    if experiment.examples:
        shown = examples.examples_grid(experiment, dataset_runs, experiment.seeds)
        put(stem.with_suffix(".md"), grid.as_markdown([shown]))
    elif experiment.rows:
        table = tables.fill(experiment, dataset_runs, experiment.seeds)
        parts = [
            f"`xcbench table {experiment.name} --dataset {dataset_runs.data.name}`\n",
            render.render([table], "md"),
        ]
        if experiment.claims:
            findings = claims.judge_claims(experiment, [dataset_runs], experiment.seeds)
            parts.append(grid.as_markdown([claims.claims_grid(experiment, findings)]))
        parts.append(provenance(table))
        put(stem.with_suffix(".md"), "\n".join(parts))
        put(stem.with_suffix(".csv"), render.render([table], "csv"))
    if experiment.figure:
        stem.parent.mkdir(parents=True, exist_ok=True)
        plots.draw(experiment, dataset_runs, experiment.seeds, stem.with_suffix(".png"))


def provenance(table: tables.Table) -> str:
    """When and where the figures were made."""
    records = [record for row in table.rows for record in row.records]
    if not records:
        return ""

    days = sorted(record.finished[:10] for record in records)
    when = days[0]
    if days[-1] != days[0]:
        when = f"{days[0]} to {days[-1]}"
    environment = records[0].environment
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    return (
        f"Runs of {when} with xcbench {environment['xcbench']}, "
        f"Python {environment['python']}, {packages}; {environment['processor']}, {environment['threads']} threads, "
        f"{environment['device']}.\n"
    )


def execute(source: Path) -> None:
    """Write a notebook from its source, with its output."""
    log(f"executing {source.name}")
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


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
