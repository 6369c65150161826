"""The self-check of a method: questions by which a plug-in author tests the contract before trusting any figures."""

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
from typing import Any

import numpy as np
import scipy.sparse as sp

from xcbench.data import Dataset, Split, TopK
from xcbench.errors import XCBenchError
from xcbench.plugins.config import build, changes
from xcbench.plugins.contract import Predictor, TextPredictor
from xcbench.runner.context import RunContext
from xcbench.runner.model import Model
from xcbench.runner.resolve import resolve
from xcbench.runner.spec import RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset
from xcbench.runner.training import train

DEPTH = 10
"""How many labels per point are predicted."""

_PICKLE_OPCODE = 0x80
_PICKLE_PROTOCOLS = range(2, 6)


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    question: str
    problem: str | None
    """None if all is well."""
    advice: bool = False
    """A problem that breaks no promise; the author may want to know."""

    @property
    def broken(self) -> bool:
        """Whether a promise of the contract is broken."""
        return self.problem is not None and not self.advice


class BrokenPromiseError(Exception):
    """A promise of the contract that does not hold. The message says what is wrong."""


def check_method(method: str) -> Iterator[Finding]:
    """Try a method on toy data; yields each finding as it is made.

    Parameters
    ----------
    method
        A registered name, or the path of a Python file that registers a method.
    """
    # Raises if there is no such method: that is the user's mistake and no finding.
    repeatable = resolve(RunSpec(method), toy_dataset(labels=2, train=2, test=1)).method.repeatable

    with tempfile.TemporaryDirectory() as scratch:
        trial = _Trial(method, Path(scratch))
        for question, ask in _QUESTIONS.items():
            problem = _answer(ask, trial)
            yield Finding(question, problem, advice=_is_advice(ask, repeatable))

            # Without a trained model every other question would give the same answer.
            if problem and ask is _trains:
                return


def _is_advice(ask: Question, repeatable: bool) -> bool:
    """Return whether a "no" to this question breaks no promise."""
    if ask is _learns:
        return True
    compares_two_trainings = ask in (_repeats, _ignores_test)
    return compares_two_trainings and not repeatable


def _answer(ask: Question, trial: _Trial) -> str | None:
    """Return what is wrong, or None."""
    try:
        ask(trial)
    except (BrokenPromiseError, XCBenchError) as error:
        return _one_line(error)
    except Exception as error:
        return f"{type(error).__name__} {_place(error)}: {_one_line(error)}"
    return None


@dataclass
class _Trial:
    """A method, trained on toy data when a question first needs it."""

    method: str
    scratch: Path

    @cached_property
    def data(self) -> Dataset:
        data = toy_dataset()
        data.fingerprint  # noqa: B018  # taken before the method can change the data
        return data

    @cached_property
    def model(self) -> Model:
        model, _ = self.fit(self.data, "first")
        return model

    @cached_property
    def predictions(self) -> TopK:
        return self.predict(self.model, self.data)

    def fit(self, data: Dataset, cache: str, *ablations: str) -> tuple[Model, RunContext]:
        """Train the method with a stage cache of this name."""
        spec = RunSpec(self.method, ablations=ablations, preset="none")
        resolved = resolve(spec, data)
        context = RunContext(
            seed=0,
            device="cpu",
            unaugmented=data,
            cache=StageCache(self.scratch / cache),
            owner=resolved.method,
        )
        model = train(resolved, context)
        return model, context

    def predict(self, model: Model, data: Dataset, k: int = DEPTH) -> TopK:
        return model.predict(data.test.X, k, data.test.titles)


def _trains(trial: _Trial) -> None:
    trial.model  # noqa: B018


def _predicts(trial: _Trial) -> None:
    member = trial.model.members[0]
    test = trial.data.test
    if isinstance(member, TextPredictor):
        predictions = member.predict_titles(test.titles or [], DEPTH)
    else:
        predictions = member.predict(test.X, DEPTH)

    indices = predictions.indices
    expected_shape = (len(test), DEPTH)
    _expect(indices.shape == expected_shape, f"expected {len(test)} x {DEPTH}, got {indices.shape}")

    in_range = (indices >= -1) & (indices < trial.data.label_count)
    _expect(bool(in_range.all()), "a label id is out of range")
    _expect(not np.isnan(predictions.scores).any(), "a score is not a number")

    sorted_again = TopK.of(indices, predictions.scores)
    in_order = np.array_equal(sorted_again.indices, indices)
    _expect(in_order, "best first, ties by smaller label id: the order is another")


def _learns(trial: _Trial) -> None:
    Y = trial.data.test.Y
    hits = []
    for row, label in enumerate(trial.predictions.indices[:, 0]):
        true_labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        hits.append(label in true_labels)

    enough = sum(hits) > 0.1 * len(hits)
    _expect(enough, f"P@1 is {100 * np.mean(hits):.0f}%, where each point's words name its labels")


def _leaves_data_alone(trial: _Trial) -> None:
    trial.predictions  # noqa: B018
    # The dataset remembers its fingerprint; a copy computes it again.
    fingerprint = dataclasses.replace(trial.data).fingerprint
    _expect(fingerprint == trial.data.fingerprint, "fit or predict changed the dataset in place")


def _ignores_test(trial: _Trial) -> None:
    no_points = _rows(trial.data.test, slice(0, 0))
    without_test = dataclasses.replace(trial.data, test=no_points)
    model, _ = trial.fit(without_test, "without test points")
    predictions = trial.predict(model, trial.data)
    _expect_same(predictions, trial.predictions, "the model depends on data.test, which fit must not look at")


def _repeats(trial: _Trial) -> None:
    model, _ = trial.fit(trial.data, "second")
    predictions = trial.predict(model, trial.data)
    _expect_same(predictions, trial.predictions, "two trainings with one seed predict differently")


def _reuses_stages(trial: _Trial) -> None:
    trial.model  # noqa: B018
    model, context = trial.fit(trial.data, "first")
    names = ", ".join(report.name for report in context.stage_reports())
    _expect(not context.journal.computed, f"stages ran again: {names}")

    predictions = trial.predict(model, trial.data)
    _expect_same(predictions, trial.predictions, "a model from cached stages predicts differently")


def _saves(trial: _Trial) -> None:
    folder = trial.scratch / "saved"
    folder.mkdir()
    member = trial.model.members[0]
    member.save(folder)
    for path in folder.rglob("*"):
        _expect(not _may_run_code(path), f"{path.name} is a pickle, which could run code when it is loaded")

    kind: Any = type(member)  # trained on the CPU, so it is the method's own predictor
    loaded: Predictor = kind.load(folder)
    model = dataclasses.replace(trial.model, members=(loaded,))
    predictions = trial.predict(model, trial.data)
    _expect_same(predictions, trial.predictions, "after save and load it predicts differently")


def _row_by_row(trial: _Trial) -> None:
    for rows in (slice(0, 1), slice(0, 7)):
        part = dataclasses.replace(trial.data, test=_rows(trial.data.test, rows))
        _expect_same(
            trial.predict(trial.model, part),
            trial.predictions.rows(rows),
            "a point's prediction depends on which other points are asked about",
            tolerance=1e-4,
        )


def _odd_inputs(trial: _Trial) -> None:
    X: sp.csr_array = trial.data.test.X
    without_features = X[:3] * 0
    without_features.eliminate_zeros()

    with _about("points without features"):
        trial.model.predict(without_features, DEPTH, [""] * 3)

    with _about("no points"):
        trial.model.predict(X[:0], DEPTH, [])

    with _about("k beyond the number of labels"):
        k = trial.data.label_count + 5
        predictions = trial.predict(trial.model, trial.data, k)
        _expect(predictions.k == k, f"{predictions.k} columns instead of {k}")


def _tiny_data(trial: _Trial) -> None:
    for labels, points in ((1, 2), (2, 2), (3, 7)):
        data = toy_dataset(labels, points, test=2)
        with _about(f"{labels} labels and {points} points"):
            model, _ = trial.fit(data, f"tiny-{labels}")
            trial.predict(model, data)


def _ablations(trial: _Trial) -> None:
    method = resolve(RunSpec(trial.method), trial.data).method
    for name, ablation in method.ablations.items():
        with _about(f"ablation {name!r}"):
            _expect(bool(changes(method.config_type, ablation.patch)), "it changes nothing")

    for name, patch in method.presets.items():
        with _about(f"preset {name!r}"):
            build(method.config_type, patch, owner=method.name)


def _ablations_train(trial: _Trial) -> None:
    method = resolve(RunSpec(trial.method), trial.data).method
    for name in method.ablations:
        with _about(f"ablation {name!r}"):
            model, _ = trial.fit(trial.data, "first", name)
            trial.predict(model, trial.data)


Question = Callable[[_Trial], None]
"""Raises if the answer is no."""

_QUESTIONS: dict[str, Question] = {
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


def _expect_same(predictions: TopK, expected: TopK, otherwise: str, tolerance: float = 0.0) -> None:
    """Raise if predictions differ. With a tolerance only scores are compared: near ties may change places."""
    if not tolerance:
        _expect(np.array_equal(predictions.indices, expected.indices), otherwise)
    same_scores = np.allclose(predictions.scores, expected.scores, rtol=tolerance, atol=tolerance)
    _expect(bool(same_scores), otherwise)


@contextlib.contextmanager
def _about(title: str) -> Iterator[None]:
    """Put a title before the message of whatever is raised under `with`."""
    try:
        yield
    except (BrokenPromiseError, XCBenchError) as error:
        raise BrokenPromiseError(f"{title}: {error}") from error
    except Exception as error:
        raise BrokenPromiseError(f"{title}: {type(error).__name__} {_place(error)}: {error}") from error


def _rows(split: Split, rows: slice) -> Split:
    titles = split.titles
    if titles is not None:
        titles = titles.take(np.arange(len(split))[rows])
    return Split(split.X[rows], split.Y[rows], titles)


def _may_run_code(path: Path) -> bool:
    """Return whether a file is a pickle or an archive that contains one."""
    if not path.is_file():
        return False

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())

    with path.open("rb") as stream:
        start = stream.read(2)
    return len(start) == 2 and start[0] == _PICKLE_OPCODE and start[1] in _PICKLE_PROTOCOLS


def _place(error: Exception) -> str:
    """Return where an error was raised, as in "at mine.py:12"."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {Path(frame.filename).name}:{frame.lineno}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
