"""The verb `compare`: which of several stored runs is better, and whether that is more than chance."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from xcbench.cli.console import columns, show_log


def compare(
    *runs: str,
    metric: Annotated[tuple[str, ...], Parameter(negative=())] = ("P@1", "P@5", "PSP@1", "PSP@5"),
    store: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Compare stored runs on one dataset: every run against the first, paired over the test points.

    Parameters
    ----------
    runs
        Two or more ids of runs, starts of ids, or folders of records.
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

    found = Store(store)
    rows = compare_runs([found.find(run) for run in runs], metric)
    if json_:
        print(json.dumps([vars(row) for row in rows], indent=2))
        return
    text: list[tuple[str, ...]] = []
    for row in rows:
        gap: tuple[str, ...] = ("", "", "")
        if row.difference is not None:
            verdict = "tied" if row.tied else "better" if row.difference > 0 else "worse"
            gap = (f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]", f"{row.p_value:.2g}", verdict)
        text.append((row.metric, row.run, f"{row.value:.2f}", *gap))
    print(columns(("metric", "run", "%", "to the first (95%)", "p", ""), text, "  rrr"))
    asked = sum(row.difference is not None for row in rows)
    print(f"\np: paired bootstrap over test points, corrected (Holm) for {asked} comparisons")
