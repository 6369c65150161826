"""The verb `report`: everything that a store holds, as pages to look at."""

from pathlib import Path

from xcbench.cli.console import show_log
from xcbench.cli.options import Names


def report(
    *,
    dataset: Names = (),
    output: Path = Path("xcbench-report"),
    store: Path | None = None,
) -> None:
    """Write a static site of the stored runs: leaderboards, tables with claims, costs, predictions. Nothing is run.

    Parameters
    ----------
    dataset
        The name or path of a dataset; may be given several times. By default every dataset that has runs.
    output
        The folder to write; an older report there is replaced.
    store
        The folder of run records; by default in XCBENCH_HOME.
    """
    show_log()
    from xcbench.report.site import build_report, datasets_with_runs
    from xcbench.report.tables import load_dataset_runs
    from xcbench.runner.store import Store

    run_store = Store(store)
    if dataset:
        datasets = load_dataset_runs(dataset, run_store)
    else:
        datasets = datasets_with_runs(run_store)
    print(f"open {build_report(datasets, output)}")
