"""A search for settings: Optuna proposes them, a held-out slice of the training points judges them.

Every trial is a run with a record of its own. The test points are no part of the data that trials see.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcbench.data import Dataset
from xcbench.data.holdout import random_slice
from xcbench.disk import locked, readable_disk_errors
from xcbench.errors import InputError, XCBenchError
from xcbench.evaluation import parse_metric
from xcbench.files import home
from xcbench.plugins.config import leaves
from xcbench.plugins.extras import extra
from xcbench.plugins.ranges import AnyRange, Choice, IntRange
from xcbench.plugins.stages import digest
from xcbench.runner.environment import check_device
from xcbench.runner.execute import run
from xcbench.runner.resolve import ResolvedRun, resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.store import Store

if TYPE_CHECKING:
    import optuna

_log = logging.getLogger(__name__)

SHARE = 0.2
"""The share of the training points that judge."""
_FAILURE = "failure"
_SETTINGS = "settings"
_RUN = "run"
_DIGITS = 3
"""Proposed numbers are rounded to so many significant digits, so that people can copy them."""


@dataclass(frozen=True)
class Trial:
    """One proposal and what it reached."""

    number: int
    settings: Mapping[str, Any]
    value: float | None
    """The metric on the slice, in percent; None if the training failed."""
    run: str | None = None
    """The id of its record."""
    failure: str | None = None

    def flags(self) -> str:
        """Return the settings as a command line takes them."""
        return " ".join(f"--set {key}={json.dumps(value)}" for key, value in self.settings.items())


@dataclass(frozen=True)
class Search:
    """A finished search."""

    metric: str
    trials: tuple[Trial, ...]
    folder: Path
    """Where its record is, and those of its runs."""

    @property
    def best(self) -> Trial:
        """The trial that reached most; the first of equals."""
        done = [trial for trial in self.trials if trial.value is not None]
        if not done:
            raise XCBenchError(f"every trial failed; the last one: {self.trials[-1].failure}")
        return max(done, key=lambda trial: trial.value or 0.0)


def _no_progress(trial: Trial) -> None:
    """Say nothing."""


def tune(
    spec: RunSpec,
    trials: int = 20,
    *,
    metric: str = "P@1",
    share: float = SHARE,
    data: Dataset | None = None,
    device: str = "auto",
    progress: Callable[[Trial], None] = _no_progress,
) -> Search:
    """Search the ranges that a method declares. A search that was broken off goes on where it was.

    The first trial has the settings of the spec. Continued or not, the same number of trials gives the same result.

    Parameters
    ----------
    spec
        The run to better; settings that it overrides are not searched.
    trials
        How many trials there shall be, earlier ones of this search included.
    metric
        What to maximise.
    share
        The share of the training points that judge; trials train on the others.
    data
        Takes the place of the dataset that the spec names.
    device
        `auto`, `cpu`, `cuda` or `cuda:N`.
    progress
        Called after each trial.
    """
    optuna = _import_optuna()
    metric = str(parse_metric(metric))
    if trials < 1:
        raise InputError(f"a search has at least 1 trial, got {trials}")
    check_device(device)

    whole = resolve(spec, data)
    ranges = _ranges(whole)
    # The preset is chosen by the name of the whole dataset; the slice has another.
    spec = dataclasses.replace(spec, preset=whole.preset or "none")
    divided = resolve(spec, random_slice(whole.data, share, spec.seed))

    identity = {"run": divided.identity, "ranges": {key: repr(each) for key, each in ranges.items()}, "metric": metric}
    folder = home() / "tuning" / f"{whole.method.name}-{whole.data.name}-{digest(identity, 12)}"
    with readable_disk_errors(folder.parent), locked(folder, f"search {folder.name}"):
        folder.mkdir(parents=True, exist_ok=True)
        study = _open_study(optuna, folder, _start(divided, ranges))
        searcher = _Searcher(optuna, study, divided, ranges, metric, device, folder)
        while len(searcher.finished()) < trials:
            progress(searcher.next_trial())
        shutil.rmtree(folder / "stages", ignore_errors=True)
        return Search(metric, tuple(searcher.finished()[:trials]), folder)


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError(f"tuning needs Optuna: {extra('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _ranges(resolved: ResolvedRun) -> dict[str, AnyRange]:
    """Return what is searched: what the method declares, but for what the run fixes."""
    method = resolved.method
    if not method.search_space:
        raise InputError(f"method {method.name!r} declares no ranges to search; try settings with --set")
    ranges = {key: each for key, each in method.search_space.items() if key not in resolved.spec.overrides}
    if not ranges:
        raise InputError(f"--set fixes all settings of {method.name!r} that could be searched")
    return ranges


def _start(resolved: ResolvedRun, ranges: Mapping[str, AnyRange]) -> dict[str, Any]:
    """Return the settings as they are, as far as they lie in their ranges."""
    settings = leaves(resolved.config)
    return {key: settings[key] for key, each in ranges.items() if settings.get(key) in each}


def _open_study(optuna: Any, folder: Path, start: dict[str, Any]) -> Any:
    """Open the record of a search; its format is JSON lines, of which nothing is executed."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"))
    study = optuna.create_study(
        study_name="search",
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
    )
    for trial in study.get_trials(deepcopy=False):
        if trial.state == optuna.trial.TrialState.RUNNING:
            # Whoever computed it was killed: nobody else has the lock.
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if not any(trial.state.is_finished() and trial.user_attrs.get(_SETTINGS) for trial in study.get_trials()):
        study.enqueue_trial(start)
    return study


class _Searcher:
    """Asks for settings, runs them, and keeps what they reached."""

    def __init__(
        self,
        optuna: Any,
        study: Any,
        divided: ResolvedRun,
        ranges: Mapping[str, AnyRange],
        metric: str,
        device: str,
        folder: Path,
    ) -> None:
        self.optuna = optuna
        self.study = study
        self.divided = divided
        self.ranges = ranges
        self.metric = metric
        self.device = device
        self.store = Store(folder / "runs")
        self.cache = StageCache(folder / "stages")

    def finished(self) -> list[Trial]:
        """Return the trials that came to an end, in their order. One that was killed is none."""
        found: list[Trial] = []
        for trial in self.study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            if not trial.state.is_finished() or not (_RUN in attributes or _FAILURE in attributes):
                continue
            value = None
            if trial.state == self.optuna.trial.TrialState.COMPLETE:
                value = trial.value
            found.append(
                Trial(len(found) + 1, attributes[_SETTINGS], value, attributes.get(_RUN), attributes.get(_FAILURE))
            )
        return found

    def next_trial(self) -> Trial:
        """Try one more proposal."""
        # Seeded by the number of trials: a search that was broken off proposes what an unbroken one would have.
        number = len(self.finished())
        self.study.sampler = self.optuna.samplers.TPESampler(seed=1000 * self.divided.spec.seed + number)
        proposal = self.study.ask()
        settings = {key: _suggest(proposal, key, each) for key, each in self.ranges.items()}
        proposal.set_user_attr(_SETTINGS, settings)
        try:
            run_id, value = self._run(settings)
        except XCBenchError as error:
            proposal.set_user_attr(_FAILURE, str(error))
            self.study.tell(proposal, state=self.optuna.trial.TrialState.FAIL)
        else:
            proposal.set_user_attr(_RUN, run_id)
            self.study.tell(proposal, value)
        return self.finished()[number]

    def _run(self, settings: Mapping[str, Any]) -> tuple[str, float]:
        """Train with some settings on the rest of the training points; return what the slice says."""
        spec = self.divided.spec
        spec = dataclasses.replace(spec, overrides={**spec.overrides, **settings})
        record = run(spec, data=self.divided.data, store=self.store, cache=self.cache, device=self.device)
        value = record.evaluate(self.divided.data, [self.metric]).values()[self.metric]
        # Nobody predicts with a model that lacks a fifth of the points.
        shutil.rmtree(record.folder / "model", ignore_errors=True)
        return record.id, value


def _suggest(proposal: optuna.Trial, key: str, each: AnyRange) -> Any:
    if isinstance(each, Choice):
        return proposal.suggest_categorical(key, each.options)
    if isinstance(each, IntRange):
        return proposal.suggest_int(key, each.low, each.high, log=each.is_log)
    return _rounded(proposal.suggest_float(key, each.low, each.high, log=each.is_log))


def _rounded(value: float) -> float:
    if not math.isfinite(value):
        return value
    return float(f"{value:.{_DIGITS}g}")
