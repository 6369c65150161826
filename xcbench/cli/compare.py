"""The verb `compare`: which of several stored runs is better, and whether that is more than chance."""

from pathlib import Path
from typing import TYPE_CHECKING

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import JsonFlag, Names

if TYPE_CHECKING:
    from xcbench.report.comparison import ComparedRun


def compare(
    *runs: str,
    metric: Names = ("P@1", "P@5", "PSP@1", "PSP@5"),
    store: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Compare stored runs on one dataset: every run against the first, paired over the test points.

    Parameters
    ----------
    runs
        Two or more runs, by id or name (latest, METHOD@DATASET, what --name gave), or folders of records.
    metric
        What to compare by; may be given several times.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print a JSON list with an object for each run and metric.
    """
    show_log()
    from xcbench.report.comparison import compare_runs
    from xcbench.runner.store import Store

    run_store = Store(store)
    records = [run_store.find(run) for run in runs]
    compared = compare_runs(records, metric)
    if json_:
        print_json([vars(run) for run in compared])
        return

    header = ("metric", "run", "what differs", "%", "to the first (95%)", "p", "")
    print(columns(header, [_row(run) for run in compared], "   rrr"))

    comparisons = sum(run.difference is not None for run in compared)
    print(f"\np: paired bootstrap over test points, corrected (Holm) for {comparisons} comparisons")


def _row(run: "ComparedRun") -> tuple[str, ...]:
    value = f"{run.value:.2f}"
    if run.difference is None:
        return (run.metric, run.run, run.differs, value, "", "", "")

    difference = f"{run.difference:+.2f} [{run.low:+.2f}, {run.high:+.2f}]"
    return (run.metric, run.run, run.differs, value, difference, f"{run.p_value:.2g}", _verdict(run))


def _verdict(run: "ComparedRun") -> str:
    if run.tied or run.difference is None:
        return "tied"
    if run.difference > 0:
        return "better"
    return "worse"
