"""The verbs that turn a paper's table or figure into figures of ours: table, claims, plot."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Datasets = Annotated[list[str] | None, Parameter(negative=())]


def table(
    name: str,
    /,
    *,
    dataset: Datasets = None,
    seeds: str | None = None,
    format: Literal["text", "md", "latex", "html", "csv"] = "text",  # noqa: A002
    run: Literal["missing", "none", "all"] = "missing",
    launcher: str = "local",
    jobs: int = 1,
    timeout: str | None = None,
    store: Path | None = None,
    output: Path | None = None,
) -> None:
    """Run what a table still lacks, each run in a process of its own, and print it.

    Parameters
    ----------
    name
        A table or figure that `xcbench list tables` shows, such as eclare/table5, or the path of a YAML file.
    dataset
        Another dataset than the file's; give it several times for several.
    seeds
        Other seeds than the file's, as in 0,1,2.
    format
        How to print it.
    run
        missing: what the store lacks. none: show what is there. all: everything anew.
    launcher
        local: processes of this machine. ray: a Ray cluster (extra xcbench[ray]).
    jobs
        How many runs at a time; the cores are divided among them.
    timeout
        The longest a run may take, such as 90s, 30m or 2h.
    store
        The folder of run records, if not the one in XCBENCH_HOME.
    output
        Write to this file instead.
    """
    from xcbench.bench import experiments, launchers, tables
    from xcbench.bench.render import render
    from xcbench.bench.spec import OverwriteStrategy
    from xcbench.bench.store import Store

    experiment = experiments.load(name)
    if not experiment.rows:
        _say(f"{name} shows a dataset and no runs: `xcbench plot {name}` draws it")
        return
    wanted = experiments.parse_seeds(seeds) if seeds else experiment.seeds
    limit = launchers.parse_duration(timeout) if timeout else None
    engine = launchers.by_name(launcher, jobs)
    shelves = tables.shelves(dataset or experiment.datasets, Store(store))
    failures: tables.Failures = {}
    if run != "none":
        overwrite = OverwriteStrategy.REDO if run == "all" else OverwriteStrategy.KEEP
        try:
            failures = tables.run_missing(experiment, shelves, wanted, engine, limit, overwrite, say=_say)
        except KeyboardInterrupt:
            _say("interrupted: running children were ended, finished runs are kept; the same command goes on from here")
            raise
    filled = [tables.fill(experiment, shelf, wanted, failures) for shelf in shelves]
    _write(render(filled, format), output)
    if failures:
        sys.exit(1)


def claims(
    name: str,
    /,
    *,
    dataset: Datasets = None,
    seeds: str | None = None,
    format: Literal["text", "md", "latex", "html"] = "text",  # noqa: A002
    store: Path | None = None,
    output: Path | None = None,
) -> None:
    """Test what the paper concludes from a table on the runs that the store holds.

    Parameters
    ----------
    name
        A table or figure that `xcbench list tables` shows, or the path of a YAML file.
    dataset
        Another dataset than the file's; give it several times for several.
    seeds
        Other seeds than the file's, as in 0,1,2.
    format
        How to print it.
    store
        The folder of run records, if not the one in XCBENCH_HOME.
    output
        Write to this file instead.
    """
    from xcbench.bench import experiments, grid, tables
    from xcbench.bench.claims import claims_grid, test_claims
    from xcbench.bench.store import Store

    experiment = experiments.load(name)
    wanted = experiments.parse_seeds(seeds) if seeds else experiment.seeds
    if not experiment.claims:
        _say(f"{name}: the file lists no claims")
        return
    findings = test_claims(experiment, tables.shelves(dataset or experiment.datasets, Store(store)), wanted)
    _write(grid.show([claims_grid(experiment, findings)], format, f"Claims of {name}"), output)


def plot(
    name: str,
    /,
    *,
    dataset: Datasets = None,
    seeds: str | None = None,
    store: Path | None = None,
    output: Path | None = None,
) -> None:
    """Draw a figure from the runs that the store holds (`xcbench table` makes them).

    Parameters
    ----------
    name
        A figure that `xcbench list tables` shows, such as decaf/figure6, or the path of a YAML file.
    dataset
        Another dataset than the file's; give it several times for several pictures.
    seeds
        Other seeds than the file's, as in 0,1,2.
    store
        The folder of run records, if not the one in XCBENCH_HOME.
    output
        The file to write (.png, .pdf or .svg); default: named after figure and dataset, here.
    """
    from xcbench.bench import experiments, plots, tables
    from xcbench.bench.store import Store

    experiment = experiments.load(name)
    wanted = experiments.parse_seeds(seeds) if seeds else experiment.seeds
    shelves = tables.shelves(dataset or experiment.datasets, Store(store))
    for shelf in shelves:
        path = output or Path(f"{experiment.name.replace('/', '-')}-{shelf.data.name}.png")
        if output and len(shelves) > 1:
            path = output.with_name(f"{output.stem}-{shelf.data.name}{output.suffix}")
        drawn = plots.draw(experiment, shelf, wanted, path)
        for row, reason in drawn.missing.items():
            _say(f"{row}: not available: {reason}")
        print(f"{name} on {shelf.data.name}: {drawn.path or 'there is nothing to draw yet'}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(text: str, output: Path | None) -> None:
    from xcbench.files import atomic_file

    if output is None:
        sys.stdout.write(text)
        return
    with atomic_file(output) as part:
        part.write_text(text, "utf-8")
