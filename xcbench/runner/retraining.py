"""Retraining in a second process.

A reranker may ask for its method to be trained a second time, on other data. Steps on small data leave a second thread
little to do: two trainings at the same time, with half of the cores each, end much sooner than one after the other with
all of them. So a second process retrains in parallel to the first training. It only fills the stage cache, where the
run then finds the stages that it would have computed itself. If the second process fails, the run computes them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from xcbench.ranks import process_count
from xcbench.runner.context import RunContext
from xcbench.runner.launchers import Child, Job, end_all
from xcbench.runner.resolve import ResolvedRun
from xcbench.runner.spec import OverwriteStrategy
from xcbench.threads import set_threads

_log = logging.getLogger(__name__)


def can_retrain_in_parallel(resolved: ResolvedRun, context: RunContext, threads: int) -> bool:
    """Return whether the reranker will ask for a retraining, and a second process can do it.

    That takes at least two threads on a CPU, data that the second process can load itself, and a method with stages,
    since the stage cache is the only way in which the second process returns its result.
    """
    reranker = resolved.reranker
    if reranker is None:
        return False
    if threads < 2 or context.device != "cpu" or process_count() > 1:
        return False
    if resolved.handed_over or not resolved.method.stages:
        return False
    return bool(reranker.retraining_data(context.owned_by(reranker)))


class ParallelRetraining:
    """The retraining that a second process does, or none."""

    def __init__(self, process: Child | None, threads: int) -> None:
        self._process = process
        self._threads = threads

    def wait(self) -> None:
        """Wait until the second process has ended, then give all threads to this process."""
        if self._process is None:
            return

        _log.info("waiting for the retraining in the second process")
        outcome = self._process.wait()
        if outcome.failure:
            _log.warning("the retraining in the second process failed, so it is done here: %s", outcome.failure)
        self._release()

    def end(self) -> None:
        """End the second process now. Its checkpoints let the next attempt continue from there."""
        if self._process is None:
            return

        end_all([self._process])
        self._release()

    def _release(self) -> None:
        self._process = None
        set_threads(self._threads)


@contextlib.contextmanager
def parallel_retraining(
    resolved: ResolvedRun,
    context: RunContext,
    threads: int,
    wanted: bool,
) -> Iterator[ParallelRetraining]:
    """Retrain in a second process during the block under `with`; the process is ended with the block at the latest.

    Parameters
    ----------
    resolved
        The run.
    context
        Its device and stage cache.
    threads
        How many threads this process and the second one divide.
    wanted
        False starts no second process.
    """
    process = None
    if wanted:
        process = _start(resolved, context, threads)

    retraining = ParallelRetraining(process, threads)
    try:
        yield retraining
    finally:
        retraining.end()


def _start(resolved: ResolvedRun, context: RunContext, threads: int) -> Child:
    """Start the second process with half of the threads, rounded down; this process goes on with the others."""
    arguments = resolved.spec.arguments()
    arguments += ["--retrain-into", str(context.cache.folder)]
    if context.overwrite is OverwriteStrategy.REDO:
        arguments.append("--force")

    threads_there = threads // 2
    set_threads(threads - threads_there)
    _log.info("retraining in a second process, with %d of %d threads", threads_there, threads)
    context.journal.retraining_since = time.time()

    job = Job("retraining", tuple(arguments), context.device)
    return Child(job, threads_there, timeout=None)
