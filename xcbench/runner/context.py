"""The run as a plug-in sees it: seeds, device, log lines, progress, and stages that are computed once."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from xcbench.data import Dataset
from xcbench.errors import XCBenchError
from xcbench.plugins.contract import PlugIn, check_name
from xcbench.plugins.stages import CORE_VERSION, Stage, StageWork, derive_seed, seed_generators
from xcbench.ranks import rank
from xcbench.runner.environment import code_digest
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.stage_cache import StageCache, StageNote
from xcbench.runner.store import StageReport

Item = TypeVar("Item")

_log = logging.getLogger(__name__)
_LINE_EVERY = 10.0

PARALLEL = "beside"
"""The state of a stage that another process computed while this one did something else."""


@dataclass
class Journal:
    """What happened in a run, shared by the contexts of all its plug-ins and ensemble members."""

    stages: dict[tuple[int, str], tuple[Stage, str]] = field(default_factory=dict)
    """By member and key: each declared stage and its owner."""
    notes: dict[str, StageNote] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    at_work: list[Stage] = field(default_factory=list)
    seconds: float = 0.0
    """Wall time that went into obtaining stages, waiting included."""
    reported: dict[str, Any] = field(default_factory=dict)
    parallel_since: float | None = None
    """When a process was started that computes the stages of `elsewhere` beside this one."""
    elsewhere: set[str] = field(default_factory=set)
    """Keys of stages on other data than the run's."""

    def made_in_parallel(self, note: StageNote | None) -> bool:
        """Whether that process computed a stage of which this is the note."""
        if note is None or self.parallel_since is None:
            return False
        return note.key in self.elsewhere and note.created >= self.parallel_since


@dataclass(frozen=True)
class RunContext:
    """What `fit` and `apply` receive as `run`; see `xcbench.plugins.contract.Run`."""

    seed: int
    device: str
    unaugmented: Dataset
    cache: StageCache
    owner: PlugIn[Any]
    overwrite: OverwriteStrategy = OverwriteStrategy.KEEP
    shared_seed: int | None = None
    """The seed of stages that all members of an ensemble share, where it is not `seed`."""
    number: int = 0
    journal: Journal = field(default_factory=Journal)
    is_elsewhere: bool = False
    """Whether the data is another than the run's own."""

    def member(self, number: int) -> RunContext:
        """The context of one member of an ensemble. The first is the run without an ensemble, and shares its stages."""
        seed = self.seed if number == 0 else derive_seed("member", self.seed, number)
        return dataclasses.replace(self, seed=seed, shared_seed=self.seed, number=number)

    def owned_by(self, plugin: PlugIn[Any]) -> RunContext:
        return dataclasses.replace(self, owner=plugin)

    @contextlib.contextmanager
    def elsewhere(self, data: Dataset) -> Iterator[RunContext]:
        """The same run on other data. Its stages count as the run's; what is reported there says nothing of the run."""
        reported = dict(self.journal.reported)
        yield dataclasses.replace(self, unaugmented=data, is_elsewhere=True)
        self.journal.reported = reported

    def log(self, message: str) -> None:
        _log.info("%s", message)

    def report(self, name: str, value: Any) -> None:
        self.journal.reported[name] = value

    def progress(self, items: Iterable[Item], title: str, total: int | None = None) -> Iterator[Item]:
        if sys.stderr.isatty() and rank() == 0:
            yield from tqdm(items, desc=title, total=total, leave=False, dynamic_ncols=True)
            return
        total = len(items) if total is None and isinstance(items, Sequence) else total
        spoke = time.monotonic()
        for done, item in enumerate(items):
            if time.monotonic() - spoke > _LINE_EVERY:
                _log.info("%s: %d%s", title, done, f" of {total}" if total else "")
                spoke = time.monotonic()
            yield item

    def stage(
        self,
        name: str,
        compute: Callable[[StageWork], Mapping[str, Any]],
        *,
        data: Dataset | Sequence[Dataset] = (),
        config: Any = None,
        after: Sequence[Stage] = (),
        seeded: bool = True,
        shared: bool = False,
        version: str | None = None,
    ) -> Stage:
        check_name(name, "stage")
        base = self.shared_seed if shared and self.shared_seed is not None else self.seed
        datasets = [data] if isinstance(data, Dataset) else data
        inputs = {
            "core": CORE_VERSION,
            "owner": self.owner.name,
            "stage": name,
            "version": self.owner.code_version if version is None else version,
            "config": config,
            "data": [dataset.fingerprint for dataset in datasets],
            "seed": derive_seed(base, name) if seeded else None,
            "after": [f"{stage.name}-{stage.key}" for stage in after],
        }
        stage = Stage(name, inputs, tuple(after), lambda asked: self._obtain(asked, compute))
        if self.is_elsewhere:
            self.journal.elsewhere.add(stage.key)
        known = self.journal.stages.setdefault((self.number, stage.key), (stage, self.owner.name))
        return known[0]

    def _obtain(self, stage: Stage, compute: Callable[[StageWork], Mapping[str, Any]]) -> dict[str, Any]:
        journal = self.journal
        if journal.at_work and not journal.at_work[-1].depends_on(stage):
            raise XCBenchError(
                f"stage {journal.at_work[-1].name!r} reads stage {stage.name!r} without declaring it in `after`"
            )
        redo = self.overwrite is OverwriteStrategy.REDO and stage.key not in journal.ran
        redo = redo and not journal.made_in_parallel(self.cache.note(self.owner.name, stage.name, stage.key))
        cached = None if redo else self.cache.read(self.owner.name, stage.name, stage.key)
        if cached is None:
            for earlier in stage.after:
                earlier.read()
        start = time.perf_counter()
        note, values, ran = (*cached, False) if cached else self._compute(stage, compute, redo)
        journal.seconds += time.perf_counter() - start
        journal.notes[stage.key] = note
        if ran:
            journal.ran.add(stage.key)
        self._say(stage, note, ran)
        return values

    def _compute(
        self, stage: Stage, compute: Callable[[StageWork], Mapping[str, Any]], redo: bool
    ) -> tuple[StageNote, dict[str, Any], bool]:
        def work(checkpoints: Path) -> Mapping[str, Any]:
            _log.info("stage %s: started", stage.name)
            self.journal.at_work.append(stage)
            try:
                seed = stage.inputs["seed"] or 0
                seed_generators(seed)
                return compute(StageWork(seed, self.device, checkpoints, self.log, self.progress))
            finally:
                self.journal.at_work.pop()

        return self.cache.compute(self.owner.name, stage.name, stage.key, stage.inputs, work, redo)

    def _say(self, stage: Stage, note: StageNote, ran: bool) -> None:
        beside = self.journal.made_in_parallel(note) and not ran
        what = "ran" if ran else "ran beside" if beside else "reused"
        cost = f"{note.seconds:.1f} s, peak {note.peak_memory / 2**20:.0f} MiB"
        other = "" if note.code == code_digest() else "; made by other code than this, --force computes it again"
        _log.info("stage %s: %s (%s%s%s)", stage.name, what, "" if ran or beside else "it took ", cost, other)

    def stage_reports(self) -> tuple[StageReport, ...]:
        """What every declared stage cost; those that nothing had to read are looked up in the cache."""
        reports = []
        for (member, key), (stage, owner) in self.journal.stages.items():
            note = self.journal.notes.get(key)
            state = "ran" if key in self.journal.ran else "reused" if note else "unused"
            note = note or self.cache.note(owner, stage.name, key)
            state = PARALLEL if state != "ran" and self.journal.made_in_parallel(note) else state
            reports.append(
                StageReport(
                    stage.name, key, member, state, note.seconds if note else 0.0, note.peak_memory if note else 0
                )
            )
        return tuple(reports)
