"""The verb `tune`: search the settings of a method on a held-out slice of the training points."""

import shlex
from typing import TYPE_CHECKING

from xcbench.cli.console import columns, print_json, show_log
from xcbench.cli.options import JsonFlag, Names
from xcbench.cli.run import SetOption, overrides_of
from xcbench.defaults import DEFAULT_DATASET

if TYPE_CHECKING:
    from xcbench.runner.tuning import Search, Trial


def tune(
    method: str,
    *,
    dataset: str = DEFAULT_DATASET,
    trials: int = 20,
    metric: str = "P@1",
    share: float = 0.2,
    ablation: Names = (),
    augment: Names = (),
    rerank: str | None = None,
    set_: SetOption = (),
    seed: int = 0,
    device: str = "auto",
    json_: JsonFlag = False,
) -> None:
    """Search the ranges that a method declares; the test points are never looked at.

    The same command again goes on with a search that was broken off, and adds trials with a larger --trials.

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    dataset
        A name that `xcbench list datasets` shows, or a path.
    trials
        How many trials there shall be, earlier ones included. The first has the settings as they are.
    metric
        What to maximise, such as P@1 or PSP@5.
    share
        The share of the training points that judge; trials train on the others.
    ablation
        A named variation of the method; may be given several times.
    augment
        An augmentation of the training data; may be given several times.
    rerank
        A reranker of the predictions.
    set_
        key.path=value fixes one setting, which is then not searched; may be given several times.
    seed
        Decides everything random, the slice included.
    device
        auto, cpu, cuda or cuda:N.
    json_
        Print one JSON object with every trial.
    """
    show_log()
    import logging

    from xcbench.runner.spec import RunSpec
    from xcbench.runner.tuning import tune as search_settings

    # The log of twenty trainings would hide what the trials reached.
    logging.getLogger("xcbench.runner.execute").setLevel(logging.WARNING)
    logging.getLogger("xcbench.runner.context").setLevel(logging.WARNING)
    spec = RunSpec(method, dataset, ablation, augment, rerank, overrides=overrides_of(set_), seed=seed)
    search = search_settings(
        spec, trials, metric=metric, share=share, device=device, progress=lambda trial: _say(trial, trials)
    )
    if json_:
        print_json(_as_json(search))
    else:
        print(_table(search))
        print(f"\nrecords: {search.folder}")
        words = shlex.join(spec.arguments())
        print(f"best: trial {search.best.number}\nxcbench {words} {search.best.flags()}")


def _say(trial: "Trial", trials: int) -> None:
    import logging

    reached = f"failed: {trial.failure}"
    if trial.value is not None:
        reached = f"{trial.value:.2f}"
    logging.getLogger("xcbench").info("trial %d of %d: %s  %s", trial.number, trials, reached, trial.flags())


def _table(search: "Search") -> str:
    keys = list(search.trials[0].settings)
    rows = []
    for trial in search.trials:
        value = "failed"
        if trial.value is not None:
            value = f"{trial.value:.2f}"
        rows.append((str(trial.number), value, *(str(trial.settings[key]) for key in keys)))
    return columns(("trial", search.metric, *keys), rows, "r" * (2 + len(keys)))


def _as_json(search: "Search") -> dict[str, object]:
    return {
        "metric": search.metric,
        "best": search.best.number,
        "settings": dict(search.best.settings),
        "trials": [vars(trial) for trial in search.trials],
        "folder": str(search.folder),
    }
