"""A reranker's second training beside the first, in a process of its own.

Steps on small data leave a second thread little to do: two trainings with half of the cores each end much sooner than
one after the other with all of them. The process only fills the stage cache, where the run then finds what it would
have computed itself; should it fail, the run computes it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from xcbench.plugins.contract import Method
from xcbench.ranks import process_count
from xcbench.runner.context import RunContext
from xcbench.runner.launchers import Child, Job, end_all
from xcbench.runner.resolve import ResolvedRun
from xcbench.runner.spec import OverwriteStrategy
from xcbench.threads import set_threads

_log = logging.getLogger(__name__)


def can_retrain_in_parallel(resolved: ResolvedRun, context: RunContext, threads: int) -> bool:
    """Whether there is a second training, cores for it, and a process could load and keep what it is about."""
    reranker, method = resolved.reranker, type(resolved.method)
    if reranker is None or threads < 2 or context.device != "cpu" or process_count() > 1:
        return False
    if resolved.handed_over or method.stages is Method.stages:
        return False
    return bool(reranker.retraining_data(context.owned_by(reranker)))


class ParallelRetraining:
    """The second training under way, if it is."""

    def __init__(self, child: Child | None, threads: int) -> None:
        self._child, self._threads = child, threads

    def wait(self) -> None:
        """Until it has ended, well or not; the cores are then this process's alone."""
        if self._child is None:
            return
        _log.info("waiting for the training beside this one")
        if failure := self._child.wait().failure:
            _log.warning("the training beside this one failed, so it is done here: %s", failure)
        self._child = None
        set_threads(self._threads)

    def end(self) -> None:
        """Stop it where it is: its checkpoints let the next attempt go on from there."""
        if self._child is not None:
            end_all([self._child])
            self._child = None
            set_threads(self._threads)


@contextlib.contextmanager
def parallel_retraining(
    resolved: ResolvedRun, context: RunContext, threads: int, wanted: bool
) -> Iterator[ParallelRetraining]:
    """Let what the reranker will ask for be trained beside what happens under `with`, if that is wanted."""
    beside = ParallelRetraining(_started(resolved, context, threads) if wanted else None, threads)
    try:
        yield beside
    finally:
        beside.end()


def _started(resolved: ResolvedRun, context: RunContext, threads: int) -> Child:
    arguments = [*resolved.spec.arguments(), "--device", context.device, "--retrain-into", str(context.cache.folder)]
    arguments += ["--force"] if context.overwrite is OverwriteStrategy.REDO else []
    own = set_threads(threads - threads // 2)
    _log.info("a second training runs beside the first, with %d of %d threads", threads - own, threads)
    context.journal.parallel_since = time.time()
    return Child(Job("second training", tuple(arguments)), threads - own, None)
