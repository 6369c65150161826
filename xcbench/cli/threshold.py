"""The verb `threshold`: from which score a label is predicted."""

from pathlib import Path

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import Flag, JsonFlag


def threshold(
    *,
    run: str,
    goal: str = "f1",
    per_label: Flag = False,
    share: float = 0.2,
    device: str = "auto",
    store: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Choose thresholds for a stored run on a held-out slice of its training points, and keep them with it.

    The run's method is trained again without the slice, which takes about as long as the run did.

    Parameters
    ----------
    run
        A run, by id or name (latest, METHOD@DATASET, what --name gave), or the folder of its record.
    goal
        f1: the highest F1. precision=0.9: the most labels at that precision.
    per_label
        Choose a threshold for each label that is frequent enough in the slice; the others share one.
    share
        The share of the training points to hold out.
    device
        auto, cpu, cuda or cuda:N.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print one JSON object.
    """
    show_log()
    from xcbench.runner.store import load_record
    from xcbench.runner.thresholds import set_thresholds

    record = load_record(run, store)
    stored = set_thresholds(record, goal, per_label, share=share, device=device)
    values = stored.thresholds.values
    if json_:
        print_json({"run": record.id, "goal": stored.goal, "thresholds": values.tolist(), **stored.slice_metrics})
        return

    if stored.thresholds.per_label:
        print(f"run {record.id}: {len(values)} thresholds, chosen for {stored.goal} on {stored.points} held-out points")
    else:
        print(
            f"run {record.id}: threshold {values[0]:.6g}, chosen for {stored.goal} on {stored.points} held-out points"
        )
    rows = [(name, f"{value:.2f}") for name, value in stored.slice_metrics.items()]
    print(f"\n{columns(('on the slice', '%'), rows, ' r')}")
