"""The verbs that turn a paper's table or figure into figures of ours: table, claims, plot."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from xcbench.ranks import process_count

if TYPE_CHECKING:
    from xcbench.report.experiments import Experiment
    from xcbench.report.scores import DatasetRuns


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which runs a table, its claims or its figure are about."""

    dataset: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """Another dataset than the file's; may be given several times."""
    seeds: str | None = None
    """Other seeds than the file's, as in 0,1,2."""
    store: Path | None = None
    """The folder of run records; by default in XCBENCH_HOME."""

    def of(self, experiment: "Experiment") -> "tuple[list[DatasetRuns], tuple[int, ...]]":
        from xcbench.report import experiments, tables
        from xcbench.runner.store import Store

        seeds = experiments.parse_seeds(self.seeds) if self.seeds else experiment.seeds
        return tables.shelves(self.dataset or experiment.datasets, Store(self.store)), seeds


HERE = Where()


def table(
    name: str,
    /,
    *,
    where: Where = HERE,
    format: Literal["text", "md", "latex", "html", "csv"] = "text",  # noqa: A002
    run: Literal["missing", "none", "all"] = "missing",
    launcher: str = "local",
    jobs: int = 1,
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
        missing: what the store lacks. none: show what is there. all: everything anew.
    launcher
        local: processes of this machine. ray: a Ray cluster (with the extra `ray` installed).
    jobs
        How many runs at a time; the cores are divided among them.
    timeout
        The longest a run may take, such as 90s, 30m or 2h.
    output
        Write to this file instead.
    """
    from xcbench.errors import InputError
    from xcbench.report import experiments, tables
    from xcbench.report.render import render
    from xcbench.runner import launchers
    from xcbench.runner.spec import OverwriteStrategy

    if process_count() > 1:
        raise InputError("torchrun is for `xcbench run`: a table starts its own processes, one a run")
    experiment = experiments.load(name)
    if not experiment.rows:
        _say(f"{name} shows a dataset and no runs: `xcbench plot {name}` draws it")
        return
    limit = launchers.parse_duration(timeout) if timeout else None
    engine = launchers.by_name(launcher, jobs)
    shelves, seeds = where.of(experiment)
    failures: tables.Failures = {}
    if run != "none":
        overwrite = OverwriteStrategy.REDO if run == "all" else OverwriteStrategy.KEEP
        try:
            failures = tables.run_missing(experiment, shelves, seeds, engine, limit, overwrite, say=_say)
        except KeyboardInterrupt:
            _say("interrupted: running children were ended, finished runs are kept; the same command goes on from here")
            raise
    _write(render([tables.fill(experiment, shelf, seeds, failures) for shelf in shelves], format), output)
    if failures:
        sys.exit(1)


def claims(
    name: str,
    /,
    *,
    where: Where = HERE,
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
        _say(f"{name}: the file lists no claims")
        return
    findings = judge_claims(experiment, *where.of(experiment))
    _write(grid.show([claims_grid(experiment, findings)], format, f"Claims of {name}"), output)


def plot(name: str, /, *, where: Where = HERE, output: Path | None = None) -> None:
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
    from xcbench.report import experiments, plots

    if name == "tradeoff":
        _plot_tradeoff(where, output)
        return
    if not name.endswith((".yaml", ".yml")) and name not in (known := [*experiments.names(), "tradeoff"]):
        raise unknown_name("figure", name, known)
    experiment = experiments.load(name)
    shelves, seeds = where.of(experiment)
    for shelf in shelves:
        drawn = plots.draw(experiment, shelf, seeds, _picture(experiment.name, shelf, output, len(shelves)))
        for row, reason in drawn.missing.items():
            _say(f"{row}: not available: {reason}")
        print(f"{name} on {shelf.data.name}: {drawn.path or 'there is nothing to draw yet'}")


def _plot_tradeoff(where: Where, output: Path | None) -> None:
    from xcbench.report import experiments, tables
    from xcbench.report.tradeoff import draw_tradeoff
    from xcbench.runner.spec import DEFAULT_DATASET
    from xcbench.runner.store import Store

    seeds = experiments.parse_seeds(where.seeds) if where.seeds else None
    shelves = tables.shelves(where.dataset or (DEFAULT_DATASET,), Store(where.store))
    for shelf in shelves:
        path = draw_tradeoff(shelf, _picture("tradeoff", shelf, output, len(shelves)), seeds)
        print(f"tradeoff on {shelf.data.name}: {path or 'there is nothing to draw yet'}")


def _picture(name: str, shelf: "DatasetRuns", output: Path | None, count: int) -> Path:
    """The file to draw into; several datasets given one name get one file each."""
    if output is None:
        return Path(f"{name.replace('/', '-')}-{shelf.data.name}.png")
    return output.with_name(f"{output.stem}-{shelf.data.name}{output.suffix}") if count > 1 else output


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(text: str, output: Path | None) -> None:
    from xcbench.disk import readable_disk_errors
    from xcbench.files import atomic_file

    if output is None:
        sys.stdout.write(text)
        return
    with readable_disk_errors(output.parent), atomic_file(output) as part:
        part.write_text(text, "utf-8")
