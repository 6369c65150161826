"""The verbs `table`, `claims` and `plot`: a paper's tables, conclusions and figures, from runs of ours."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

from xcbench.cli.console import goes_on, terminal_width
from xcbench.cli.options import Names
from xcbench.defaults import DEFAULT_DATASET
from xcbench.ranks import process_count

if TYPE_CHECKING:
    from xcbench.report.experiments import Experiment
    from xcbench.report.scores import DatasetRuns
    from xcbench.report.tables import Failures
    from xcbench.runner.launchers import Launcher
    from xcbench.runner.spec import OverwriteStrategy


@Parameter(name="*")
@dataclass(frozen=True)
class RunSelection:
    """Which runs a table, its claims or its figure are about."""

    dataset: Names = ()
    """Another dataset than the file's; may be given several times."""
    seeds: str | None = None
    """Other seeds than the file's, as in 0,1,2."""
    store: Path | None = None
    """The folder of run records; by default in XCBENCH_HOME."""

    def datasets_of(self, experiment: "Experiment") -> "list[DatasetRuns]":
        """Return the stored runs on each dataset of an experiment, or on each dataset that the user named."""
        return self.load_datasets(self.dataset or experiment.datasets)

    def seeds_of(self, experiment: "Experiment") -> tuple[int, ...]:
        """Return the seeds of an experiment, or those that the user named."""
        return self.parsed_seeds() or experiment.seeds

    def load_datasets(self, names: tuple[str, ...]) -> "list[DatasetRuns]":
        """Return the stored runs on each of these datasets."""
        from xcbench.report import tables
        from xcbench.runner.store import Store

        return tables.load_dataset_runs(names, Store(self.store))

    def parsed_seeds(self) -> tuple[int, ...] | None:
        """Return the seeds that the user named, or None."""
        from xcbench.report import experiments

        if not self.seeds:
            return None
        return experiments.parse_seeds(self.seeds)


ALL_RUNS = RunSelection()


def table(
    name: str,
    /,
    *,
    selection: RunSelection = ALL_RUNS,
    format: Literal["text", "md", "latex", "html", "csv"] = "text",  # noqa: A002
    run: Literal["missing", "stale", "none", "all"] = "missing",
    launcher: str = "local",
    jobs: int = 1,
    device: str = "auto",
    timeout: str | None = None,
    output: Path | None = None,
) -> None:
    """Run what a table still lacks, each run in a process of its own, and print it.

    Parameters
    ----------
    name
        A table or figure that `xcbench list tables` shows, such as eclare/table5, or the path of a YAML file.
    format
        How to print it.
    run
        missing: what the store lacks. stale: that, and what other code than this made. none: show what is there. all:
        everything anew.
    launcher
        local: processes of this machine. ray: a Ray cluster (with the extra `ray` installed).
    jobs
        How many runs at a time; the cores are divided among them. Where there are GPUs each run has one to itself, so
        that at most as many run at a time as there are GPUs.
    device
        auto, cpu, cuda or cuda:N, for every run.
    timeout
        The longest a run may take, such as 90s, 30m or 2h.
    output
        Write to this file instead.
    """
    from xcbench.errors import InputError
    from xcbench.report import experiments, tables
    from xcbench.report.render import render
    from xcbench.runner import launchers
    from xcbench.runner.environment import check_device, check_device_name
    from xcbench.runner.spec import OverwriteStrategy

    check_device_name(device)
    if launcher == "local" and run != "none":
        check_device(device)
    if process_count() > 1:
        raise InputError("torchrun is for `xcbench run`: a table starts its own processes, one per run")

    experiment = experiments.load(name)
    if not experiment.rows:
        _print_note(f"{name} shows a dataset and no runs: `xcbench plot {name}` draws it")
        return

    seconds = launchers.parse_duration(timeout) if timeout else None
    chosen_launcher = launchers.by_name(launcher, jobs)
    seeds = selection.seeds_of(experiment)
    datasets = selection.datasets_of(experiment)

    failures: Failures = {}
    if run != "none":
        strategies = {
            "missing": OverwriteStrategy.KEEP,
            "stale": OverwriteStrategy.STALE,
            "all": OverwriteStrategy.REDO,
        }
        failures = _run_missing(experiment, datasets, seeds, chosen_launcher, seconds, strategies[run], device)

    if experiment.examples:
        _write(_examples(experiment, datasets, seeds, format, terminal_width(output)), output)
    else:
        filled = [tables.fill(experiment, runs, seeds, failures) for runs in datasets]
        _write(render(filled, format, terminal_width(output)), output)
    if failures:
        sys.exit(1)


def _examples(
    experiment: "Experiment",
    datasets: "list[DatasetRuns]",
    seeds: tuple[int, ...],
    form: Literal["text", "md", "latex", "html", "csv"],
    width: int | None,
) -> str:
    """Return a table of predictions side by side."""
    from xcbench.errors import InputError
    from xcbench.report import grid
    from xcbench.report.examples import examples_grid

    if form == "csv":
        raise InputError(f"{experiment.name} shows examples, which text, md, latex and html can show, but not csv")
    grids = [examples_grid(experiment, runs, seeds) for runs in datasets]
    return grid.show(grids, form, experiment.title, width)


def _run_missing(
    experiment: "Experiment",
    datasets: "list[DatasetRuns]",
    seeds: tuple[int, ...],
    launcher: "Launcher",
    timeout: float | None,
    overwrite: "OverwriteStrategy",
    device: str,
) -> "Failures":
    """Make the runs that a table lacks; returns those that failed."""
    from xcbench.report import tables

    with goes_on():
        return tables.run_missing(
            experiment,
            datasets,
            seeds,
            launcher,
            timeout,
            overwrite,
            progress=_print_note,
            device=device,
        )


def claims(
    name: str,
    /,
    *,
    selection: RunSelection = ALL_RUNS,
    format: Literal["text", "md", "latex", "html"] = "text",  # noqa: A002
    output: Path | None = None,
) -> None:
    """Test what the paper concludes from a table on the runs that the store holds.

    Parameters
    ----------
    name
        A table or figure that `xcbench list tables` shows, or the path of a YAML file.
    format
        How to print it.
    output
        Write to this file instead.
    """
    from xcbench.report import experiments, grid
    from xcbench.report.claims import claims_grid, judge_claims

    experiment = experiments.load(name)
    if not experiment.claims:
        _print_note(f"{name}: the file lists no claims")
        return

    seeds = selection.seeds_of(experiment)
    datasets = selection.datasets_of(experiment)
    findings = judge_claims(experiment, datasets, seeds)
    text = grid.show([claims_grid(experiment, findings)], format, f"Claims of {name}", terminal_width(output))
    _write(text, output)


def plot(
    name: str,
    /,
    *,
    selection: RunSelection = ALL_RUNS,
    output: Path | None = None,
) -> None:
    """Draw a figure from the runs that the store holds (`xcbench table` makes them).

    Parameters
    ----------
    name
        A figure that `xcbench list tables` shows, such as decaf/figure6, or the path of a YAML file; or `tradeoff`:
        accuracy against time for every method that has run on a dataset.
    output
        The file to write (.png, .pdf or .svg); by default named after figure and dataset, in this folder.
    """
    from xcbench.errors import unknown_name
    from xcbench.report import experiments

    if name == "tradeoff":
        _plot_tradeoff(selection, output)
        return

    known = [*experiments.names(), "tradeoff"]
    if name not in known and not name.endswith((".yaml", ".yml")):
        raise unknown_name("figure", name, known)
    _plot_experiment(name, selection, output)


def _plot_experiment(name: str, selection: RunSelection, output: Path | None) -> None:
    from xcbench.report import experiments, plots

    experiment = experiments.load(name)
    seeds = selection.seeds_of(experiment)
    datasets = selection.datasets_of(experiment)

    for runs in datasets:
        path = _picture_path(experiment.name, runs, output, len(datasets))
        drawn = plots.draw(experiment, runs, seeds, path)
        for row, reason in drawn.missing.items():
            _print_note(f"{row}: not available: {reason}")
        _print_drawn(name, runs, drawn.path)


def _plot_tradeoff(selection: RunSelection, output: Path | None) -> None:
    from xcbench.report.tradeoff import draw_tradeoff

    seeds = selection.parsed_seeds()
    datasets = selection.load_datasets(selection.dataset or (DEFAULT_DATASET,))

    for runs in datasets:
        path = _picture_path("tradeoff", runs, output, len(datasets))
        _print_drawn("tradeoff", runs, draw_tradeoff(runs, path, seeds))


def _picture_path(name: str, runs: "DatasetRuns", output: Path | None, dataset_count: int) -> Path:
    """Return the file to draw into. If there are several datasets, each gets a file with its name."""
    dataset = runs.data.name
    if output is None:
        return Path(f"{name.replace('/', '-')}-{dataset}.png")
    if dataset_count == 1:
        return output
    return output.with_name(f"{output.stem}-{dataset}{output.suffix}")


def _print_drawn(name: str, runs: "DatasetRuns", path: Path | None) -> None:
    print(f"{name} on {runs.data.name}: {path or 'there is nothing to draw yet'}")


def _print_note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file."""
    from xcbench.disk import readable_disk_errors
    from xcbench.files import atomic_file

    if output is None:
        sys.stdout.write(text)
        return

    with readable_disk_errors(output.parent), atomic_file(output) as part:
        part.write_text(text, "utf-8")
