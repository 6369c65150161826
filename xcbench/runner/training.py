"""What a run trains: the data augmented, every member of the ensemble fitted, the reranker behind them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import scipy.sparse as sp

from xcbench.data import Dataset, TopK
from xcbench.plugins.stages import seed_generators
from xcbench.progress import activity
from xcbench.runner.context import RunContext
from xcbench.runner.environment import check_device, choose_device
from xcbench.runner.model import Model
from xcbench.runner.resolve import ResolvedRun, check_titles, resolve
from xcbench.runner.retraining import ParallelRetraining
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.stage_cache import StageCache
from xcbench.threads import set_threads

_log = logging.getLogger(__name__)


def train(resolved: ResolvedRun, context: RunContext, retraining: ParallelRetraining | None = None) -> Model:
    """Augment the data, fit every member and the reranker, and return what predicts.

    Parameters
    ----------
    resolved
        The run.
    context
        Its seed, device and stage cache.
    retraining
        The second process that trains what the reranker will ask for, if there is one.
    """
    data = augmented(resolved, context)
    model = _fit_members(resolved, data, context)
    reranker = resolved.reranker
    if reranker is None:
        return model

    method = _TrainedMethod(model.to(context.device), resolved, context, retraining)
    with activity(f"reranker {reranker.name}"):
        rescorer = reranker.fit(data, context.owned_by(reranker), method)
    return dataclasses.replace(model, rescorer=rescorer)


def augmented(resolved: ResolvedRun, context: RunContext) -> Dataset:
    """The data that the method will see."""
    data = resolved.data
    for augmentation in resolved.augmentations:
        with activity(f"augmentation {augmentation.name}"):
            data = augmentation.apply(data, context.owned_by(augmentation))
        _log.info("augmentation %s: %d training points", augmentation.name, len(data.train))
    return data


def retrain(
    spec: RunSpec,
    cache: Path,
    device: str = "auto",
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP,
) -> None:
    """Train only what the reranker of a run will ask for, so that its stages are in the cache. See `retraining`."""
    check_device(device)
    set_threads()
    resolved = resolve(spec)
    context = context_of(resolved, StageCache(cache), choose_device(device), overwrite)
    if resolved.reranker is None:
        return
    for data in resolved.reranker.retraining_data(context.owned_by(resolved.reranker)):
        train_on(data, resolved, context)


def context_of(resolved: ResolvedRun, cache: StageCache, device: str, overwrite: OverwriteStrategy) -> RunContext:
    """The context in which a run's method is trained."""
    return RunContext(resolved.spec.seed, device, resolved.data, cache, resolved.method, overwrite)


@dataclass(frozen=True)
class _TrainedMethod:
    """What a reranker is given; see `xcbench.plugins.contract.Trained`."""

    model: Model
    resolved: ResolvedRun
    context: RunContext
    retraining: ParallelRetraining | None

    def predict(self, X: sp.csr_array, k: int, titles: Sequence[str] | None = None) -> TopK:
        return self.model.predict(X, k, titles)

    def with_vectors(self, X: sp.csr_array, titles: Sequence[str] | None = None) -> sp.csr_array:
        return self.model.with_vectors(X, titles)

    def retrain(self, data: Dataset) -> tuple[Dataset, Model]:
        if self.retraining is not None:
            self.retraining.wait()
        return train_on(data, self.resolved, self.context)


def train_on(data: Dataset, resolved: ResolvedRun, context: RunContext) -> tuple[Dataset, Model]:
    """The method of a run, trained on other data; and that data as it was augmented."""
    resolved = dataclasses.replace(resolved, data=data)
    with context.on_other_data(data) as other:
        seen = augmented(resolved, other)
        model = _fit_members(resolved, seen, other)
        return seen, model.to(context.device)


def _fit_members(resolved: ResolvedRun, data: Dataset, context: RunContext) -> Model:
    check_titles(resolved.method, data)  # an augmentation may have added points without titles
    resolved.method.check_data(data)
    count = resolved.spec.ensemble
    members = []
    for number in range(count):
        if count > 1:
            _log.info("member %d of %d", number + 1, count)
        member = context.member(number)
        seed_generators(member.seed)
        # A new object each: what a method keeps on itself must not leak from one member into the next.
        method = type(resolved.method)(resolved.method.config)
        with activity(f"training {method.name}"):
            members.append(method.fit(data, member))

    original = resolved.data
    return Model(
        members=tuple(members),
        label_count=original.label_count,
        encoder=original.encoder,
        label_titles=original.label_titles,
    )
