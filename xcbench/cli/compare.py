"""The verb `compare`: which of several stored runs is better, and whether that is more than chance."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import JsonFlag, Names

if TYPE_CHECKING:
    from xcbench.report.comparison import ComparedRun
    from xcbench.runner.store import Record


def compare(
    *runs: str,
    metric: Names = ("P@1", "P@5", "PSP@1", "PSP@5"),
    seeds: str | None = None,
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
    seeds
        Compare means over these seeds, as in 0,1,2, of runs that are in the store with each of them.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print a JSON list with an object for each run and metric.
    """
    show_log()
    from xcbench.report.comparison import compare_runs
    from xcbench.report.experiments import parse_seeds
    from xcbench.runner.store import Store

    wanted = parse_seeds(seeds) if seeds else ()
    run_store = Store(store)
    records = [run_store.find(run) for run in runs]
    compared = compare_runs(records, metric, seeds=wanted)
    if json_:
        print_json([vars(run) for run in compared])
        return

    header = ("metric", "run", "what differs", "%", "to the first (95%)", "p", "")
    print(columns(header, [_row(run) for run in compared], "   rrr"))

    comparisons = sum(run.difference is not None for run in compared)
    corrected = f"corrected (Holm) for {comparisons} comparisons"
    if len(wanted) > 1:
        print(f"\n%: means over seeds {seeds}; p: t test over test points and seeds, {corrected}")
        return
    print(f"\np: paired bootstrap over test points, {corrected}")
    print(_noise(records, compared[0].metric))


def _noise(records: Sequence["Record"], metric: str) -> str:
    """What the intervals of single runs leave out, and how large it is where the store has other seeds."""
    from xcbench.report.comparison import dataset_of, training_noise
    from xcbench.report.render import ONE_SEED

    data = dataset_of(records[0])
    measured = []
    for record in records:
        noise = training_noise(record, metric, data)
        if noise is not None:
            measured.append(f"{record.id} {noise.deviation:.2f} ({noise.count} seeds)")
    if not measured:
        return (
            f"{ONE_SEED} It has not been measured for these; with runs of three seeds or more, --seeds 0,1,2 counts it."
        )
    return f"{ONE_SEED} Its standard deviation in {metric}: {', '.join(measured)}; --seeds counts it."


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
