"""The verb `add`: predictions of another program enter the store."""

from pathlib import Path

from xcbench.cli.console import print_json, show_log
from xcbench.cli.options import Flag, JsonFlag
from xcbench.cli.run import metrics_json, metrics_table


def add(
    *,
    predictions: Path,
    name: str,
    dataset: str,
    seed: int = 0,
    force: Flag = False,
    store: Path | None = None,
    json_: JsonFlag = False,
) -> None:
    """Keep predictions of another program as a run, for `compare`, tables and reports.

    Parameters
    ----------
    predictions
        An npz: a csr of scores (scipy.sparse.save_npz), or arrays `indices` and `scores` of [points, k].
    name
        What the model is called. Tables name it by `method: NAME` with `added: true`.
    dataset
        The dataset whose test points they are for: a name that `xcbench list datasets` shows, or a path.
    seed
        Which of several trainings of the model it is.
    force
        Replace predictions that were added before under this name.
    store
        The folder of run records; by default in XCBENCH_HOME.
    json_
        Print the metrics, in percent and unrounded, and the run's id as one JSON object.
    """
    show_log()
    from xcbench.runner.external import add_predictions

    record = add_predictions(predictions, name, dataset, seed=seed, replace=force, store=store)
    if json_:
        print_json(metrics_json(record))
        return
    print(f"{name} on {record.dataset} ({record.test_points} test points): run {record.id}\n")
    print(metrics_table(record))
