"""One run in several processes (`torchrun`): all train, and the first alone decides what to compute and keeps it.

The others have no say in what is cached, since they may look a moment earlier or later: one of them that trains while
the first does not would wait for ever. So the first tells them, and what it kept is what they read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xcbench.errors import XCBenchError
from xcbench.ranks import process_count, rank
from xcbench.runner.stage_cache import StageCache, StageNote


def broadcast(word: bool = False) -> bool:
    """The word of the first process, heard by all of them. Where there is one process it is its own."""
    if process_count() == 1:
        return word
    from xcbench.train.processes import Processes

    return Processes.join().broadcast(word)


def shared_cache(cache: StageCache) -> StageCache:
    """The cache as a run must use it: itself where there is one process."""
    return cache if process_count() == 1 else SharedStageCache(cache.folder)


def not_visible(folder: Path) -> XCBenchError:
    """The error of a process that does not see what the first has written."""
    return XCBenchError(f"{folder} is not there for process {rank()}: all must see the files of the first")


class SharedStageCache(StageCache):
    """A stage cache in which every process finds what the first one finds, and computes what that one computes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._own = StageCache(folder)

    def read(self, owner: str, name: str, key: str) -> tuple[StageNote, dict[str, Any]] | None:
        if rank() == 0:
            found = self._own.read(owner, name, key)
            broadcast(found is not None)
            return found
        return self._kept(owner, name, key) if broadcast() else None

    def compute(
        self,
        owner: str,
        name: str,
        key: str,
        inputs: Mapping[str, Any],
        work: Callable[[Path], Mapping[str, Any]],
        redo: bool = False,
    ) -> tuple[StageNote, dict[str, Any], bool]:
        if rank() > 0:
            return self._follow(owner, name, key, work)

        def announced(checkpoints: Path) -> Mapping[str, Any]:
            broadcast(True)
            _barrier()
            return work(checkpoints)

        done = self._own.compute(owner, name, key, inputs, announced, redo)
        broadcast(False)
        return done

    def _follow(
        self, owner: str, name: str, key: str, work: Callable[[Path], Mapping[str, Any]]
    ) -> tuple[StageNote, dict[str, Any], bool]:
        """Compute along if the first process does. Checkpoints are read from a copy, so that none are written."""
        computes = broadcast()
        if computes:
            with tempfile.TemporaryDirectory(prefix="xcbench-") as scratch:
                copy = shutil.copytree(self.checkpoints(owner, name, key), Path(scratch) / "checkpoints")
                _barrier()
                work(copy)
            broadcast()
        return *self._kept(owner, name, key), computes

    def _kept(self, owner: str, name: str, key: str) -> tuple[StageNote, dict[str, Any]]:
        kept = self._own.read(owner, name, key)
        if kept is None:
            raise not_visible(self.path(owner, name, key))
        return kept


def _barrier() -> None:
    from xcbench.train.processes import Processes

    Processes.join().barrier()
