"""The contract as questions: what a plug-in author can ask of a method before trusting its figures."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.errors import XCBenchError
from xcbench.plugins.config import build, changes
from xcbench.plugins.contract import Predictor, TextPredictor
from xcbench.runner.context import RunContext
from xcbench.runner.execute import train
from xcbench.runner.model import Model
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

DEPTH = 10


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    question: str
    problem: str | None
    """None: all is well."""
    advice: bool = False
    """A problem that breaks no promise; the author may want to know."""

    @property
    def broken(self) -> bool:
        return self.problem is not None and not self.advice


class BrokenPromiseError(Exception):
    """A promise that does not hold, in words."""


def check_method(method: str) -> Iterator[Finding]:
    """Try a method, by name or file, on toys; yields each finding as it is made."""
    # A method that cannot be found is no finding.
    repeatable = resolve(RunSpec(method), toy_dataset(labels=2, train=2, test=1)).method.repeatable
    with tempfile.TemporaryDirectory() as scratch:
        trial = _Trial(method, Path(scratch))
        for question, ask in _QUESTIONS.items():
            problem = _answer(ask, trial)
            retrained = ask in (_repeats, _ignores_test)
            yield Finding(question, problem, advice=ask is _learns or (retrained and not repeatable))
            if problem and ask is _trains:
                return  # every other question would say the same


def _answer(ask: Callable[[_Trial], None], trial: _Trial) -> str | None:
    try:
        ask(trial)
    except (BrokenPromiseError, XCBenchError) as error:
        return " ".join(str(error).split())
    except Exception as error:
        return f"{type(error).__name__} {_place(error)}: {' '.join(str(error).split())}"
    return None


@dataclass
class _Trial:
    method: str
    scratch: Path

    @cached_property
    def data(self) -> Dataset:
        data = toy_dataset()
        data.fingerprint  # noqa: B018  # taken before anybody can change the data
        return data

    @cached_property
    def model(self) -> Model:
        return self.fit(self.data, "first")[0]

    @cached_property
    def predictions(self) -> TopK:
        return self.predict(self.model, self.data)

    def fit(self, data: Dataset, cache: str, *ablations: str) -> tuple[Model, RunContext]:
        resolved = resolve(RunSpec(self.method, ablations=ablations, preset="none"), data)
        context = RunContext(0, "cpu", data, StageCache(self.scratch / cache), resolved.method)
        return train(resolved, context), context

    def predict(self, model: Model, data: Dataset, k: int = DEPTH) -> TopK:
        return model.predict(data.test.X, k, data.test.titles)


def _trains(trial: _Trial) -> None:
    trial.model  # noqa: B018


def _predicts(trial: _Trial) -> None:
    member, test = trial.model.members[0], trial.data.test
    if isinstance(member, TextPredictor):
        found = member.predict_titles(test.titles or [], DEPTH)
    else:
        found = member.predict(test.X, DEPTH)
    points, labels = len(test), trial.data.label_count
    _expect(found.indices.shape == (points, DEPTH), f"expected {points} x {DEPTH}, got {found.indices.shape}")
    _expect(bool((found.indices >= -1).all() and (found.indices < labels).all()), "a label id is out of range")
    _expect(not np.isnan(found.scores).any(), "a score is not a number")
    again = TopK.of(found.indices, found.scores)
    _expect(np.array_equal(again.indices, found.indices), "best first, ties by smaller label id: the order is another")


def _learns(trial: _Trial) -> None:
    Y = trial.data.test.Y
    best = trial.predictions.indices[:, 0]
    hits = [b in Y.indices[Y.indptr[i] : Y.indptr[i + 1]] for i, b in enumerate(best)]
    _expect(sum(hits) > 0.1 * len(hits), f"P@1 is {100 * np.mean(hits):.0f}%, where each point's words name its labels")


def _leaves_data_alone(trial: _Trial) -> None:
    trial.predictions  # noqa: B018
    now = dataclasses.replace(trial.data).fingerprint  # the property remembers; a copy looks again
    _expect(now == trial.data.fingerprint, "fit or predict changed the dataset in place")


def _ignores_test(trial: _Trial) -> None:
    data = trial.data
    blind = dataclasses.replace(data, test=_rows(data.test, slice(0, 0)))
    found = trial.predict(trial.fit(blind, "blind")[0], data)
    _same(found, trial.predictions, "the model depends on data.test, which fit must not look at")


def _repeats(trial: _Trial) -> None:
    found = trial.predict(trial.fit(trial.data, "second")[0], trial.data)
    _same(found, trial.predictions, "two trainings with one seed predict differently")


def _reuses_stages(trial: _Trial) -> None:
    trial.model  # noqa: B018
    model, context = trial.fit(trial.data, "first")
    _expect(not context.journal.ran, f"stages ran again: {', '.join(r.name for r in context.stage_reports())}")
    _same(trial.predict(model, trial.data), trial.predictions, "a model from cached stages predicts differently")


def _saves(trial: _Trial) -> None:
    folder = trial.scratch / "saved"
    folder.mkdir()
    member = trial.model.members[0]
    member.save(folder)
    for path in folder.rglob("*"):
        _expect(not _may_run_code(path), f"{path.name} is a pickle, which could run code when it is loaded")
    loaded: Predictor = type(member).load(folder)
    model = dataclasses.replace(trial.model, members=(loaded,))
    _same(trial.predict(model, trial.data), trial.predictions, "after save and load it predicts differently")


def _row_by_row(trial: _Trial) -> None:
    for chosen in (slice(0, 1), slice(0, 7)):
        part = dataclasses.replace(trial.data, test=_rows(trial.data.test, chosen))
        _same(
            trial.predict(trial.model, part),
            trial.predictions.rows(chosen),
            "a point's prediction depends on which other points are asked about",
            tolerance=1e-4,
        )


def _odd_inputs(trial: _Trial) -> None:
    data, labels = trial.data, trial.data.label_count
    X: sp.csr_array = data.test.X
    for rows, what in ((X[:3] * 0, "points without features"), (X[:0], "no points")):
        rows.eliminate_zeros()
        with _about(what):
            trial.model.predict(rows, DEPTH, [""] * rows.shape[0])
    with _about("k beyond the number of labels"):
        found = trial.predict(trial.model, data, labels + 5)
        _expect(found.k == labels + 5, f"{found.k} columns instead of {labels + 5}")


def _tiny_data(trial: _Trial) -> None:
    for labels, points in ((1, 2), (2, 2), (3, 7)):
        data = toy_dataset(labels, points, test=2)
        with _about(f"{labels} labels and {points} points"):
            trial.predict(trial.fit(data, f"tiny-{labels}")[0], data)


def _ablations(trial: _Trial) -> None:
    method = type(resolve(RunSpec(trial.method), trial.data).method)
    for name, ablation in method.ablations.items():
        with _about(f"ablation {name!r}"):
            _expect(bool(changes(method.config_type, ablation.patch)), "it changes nothing")
    for name, patch in method.presets.items():
        with _about(f"preset {name!r}"):
            build(method.config_type, patch, owner=method.name)


def _ablations_train(trial: _Trial) -> None:
    for name in resolve(RunSpec(trial.method), trial.data).method.ablations:
        with _about(f"ablation {name!r}"):
            trial.predict(trial.fit(trial.data, "first", name)[0], trial.data)


_QUESTIONS: dict[str, Callable[[_Trial], None]] = {
    "ablations and presets fit the config": _ablations,
    "trains on 50 labels": _trains,
    "predictions are well-formed": _predicts,
    "learns what the words say": _learns,
    "leaves the data unchanged": _leaves_data_alone,
    "does not look at the test points": _ignores_test,
    "the same seed gives the same model": _repeats,
    "finished stages are reused": _reuses_stages,
    "save and load change nothing": _saves,
    "points are predicted one by one": _row_by_row,
    "odd inputs are fine": _odd_inputs,
    "tiny data is fine": _tiny_data,
    "every ablation trains": _ablations_train,
}


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenPromiseError(otherwise)


def _same(found: TopK, expected: TopK, otherwise: str, tolerance: float = 0.0) -> None:
    if not tolerance:
        _expect(np.array_equal(found.indices, expected.indices), otherwise)
    _expect(bool(np.allclose(found.scores, expected.scores, rtol=tolerance, atol=tolerance)), otherwise)


@contextlib.contextmanager
def _about(what: str) -> Iterator[None]:
    try:
        yield
    except (BrokenPromiseError, XCBenchError) as error:
        raise BrokenPromiseError(f"{what}: {error}") from error
    except Exception as error:
        raise BrokenPromiseError(f"{what}: {type(error).__name__} {_place(error)}: {error}") from error


def _rows(split: Split, chosen: slice) -> Split:
    titles = None if split.titles is None else split.titles.take(np.arange(len(split))[chosen])
    return Split(split.X[chosen], split.Y[chosen], titles)


def _may_run_code(path: Path) -> bool:
    if not path.is_file():
        return False
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())
    with path.open("rb") as stream:
        start = stream.read(2)
    return len(start) == 2 and start[0] == 0x80 and start[1] in range(2, 6)


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {Path(frame.filename).name}:{frame.lineno}"
