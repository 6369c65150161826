"""One run in several processes (`torchrun`): all ranks train, and only rank 0 decides what to compute and writes files.

The other ranks must not look into the stage cache on their own, since they may look a moment earlier or later than
rank 0: a rank that trains while rank 0 does not would wait for ever. So rank 0 broadcasts what it found, and the others
read the files that it wrote.
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


def broadcast(flag: bool = False) -> bool:
    """Return the flag of rank 0 on all ranks. What other ranks pass is ignored."""
    if process_count() == 1:
        return flag

    from xcbench.train.processes import Processes

    return Processes.join().broadcast(flag)


def shared_cache(cache: StageCache) -> StageCache:
    """Return the cache as a run must use it: all ranks agree with rank 0 on what is cached."""
    if process_count() == 1:
        return cache
    return SharedStageCache(cache.folder)


def not_visible(folder: Path) -> XCBenchError:
    """Return the error for a rank that does not see a folder that rank 0 has written."""
    return XCBenchError(f"rank {rank()} does not see {folder}: all ranks must see the files that rank 0 writes")


class SharedStageCache(StageCache):
    """A stage cache for several ranks: all find what rank 0 finds, and compute what rank 0 computes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._files = StageCache(folder)

    def read(
        self,
        owner: str,
        name: str,
        key: str,
        code: str | None = None,
    ) -> tuple[StageNote, dict[str, Any]] | None:
        if rank() == 0:
            finished = self._files.read(owner, name, key, code)
            broadcast(finished is not None)
            return finished

        is_finished = broadcast()
        if not is_finished:
            return None
        return self._read_finished(owner, name, key)

    def compute(
        self,
        owner: str,
        name: str,
        key: str,
        inputs: Mapping[str, Any],
        work: Callable[[Path], Mapping[str, Any]],
        code: str,
        redo: bool = False,
    ) -> tuple[StageNote, dict[str, Any], bool]:
        if rank() > 0:
            return self._compute_on_other_rank(owner, name, key, work)

        def work_with_other_ranks(checkpoints: Path) -> Mapping[str, Any]:
            broadcast(True)
            # The others copy the checkpoints before rank 0 writes new ones.
            _barrier()
            return work(checkpoints)

        result = self._files.compute(owner, name, key, inputs, work_with_other_ranks, code, redo)
        broadcast(False)
        return result

    def _compute_on_other_rank(
        self,
        owner: str,
        name: str,
        key: str,
        work: Callable[[Path], Mapping[str, Any]],
    ) -> tuple[StageNote, dict[str, Any], bool]:
        """Compute together with rank 0 if that one computes, and return what it wrote.

        Checkpoints are read from a copy: only rank 0 may write them.
        """
        computes = broadcast()
        if computes:
            with tempfile.TemporaryDirectory(prefix="xcbench-") as scratch:
                copy = shutil.copytree(self.checkpoints(owner, name, key), Path(scratch) / "checkpoints")
                _barrier()
                work(copy)
            # Rank 0 broadcasts a second time when it has written the stage.
            broadcast()

        note, values = self._read_finished(owner, name, key)
        return note, values, computes

    def _read_finished(self, owner: str, name: str, key: str) -> tuple[StageNote, dict[str, Any]]:
        """Read a stage that rank 0 has finished."""
        finished = self._files.read(owner, name, key)
        if finished is None:
            raise not_visible(self.path(owner, name, key))
        return finished


def _barrier() -> None:
    from xcbench.train.processes import Processes

    Processes.join().barrier()
