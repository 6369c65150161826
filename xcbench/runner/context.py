"""The run as a plug-in sees it: seeds, device, log lines, progress, and stages that are computed once."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from xcbench.data import Dataset
from xcbench.errors import XCBenchError
from xcbench.plugins.contract import PlugIn, check_name
from xcbench.plugins.stages import (
    CORE_VERSION,
    ConfigView,
    Source,
    Stage,
    StageWork,
    Values,
    derive_seed,
    digest,
    seed_generators,
)
from xcbench.progress import Counter, activity
from xcbench.runner.source_code import code_of, source_of
from xcbench.runner.spec import OverwriteStrategy
from xcbench.runner.stage_cache import StageCache, StageNote
from xcbench.runner.store import StageReport

Item = TypeVar("Item")

_log = logging.getLogger(__name__)

PARALLEL = "parallel"
"""The state of a stage that a second process computed while this one computed something else."""


@dataclass(frozen=True)
class PlannedStage:
    """A stage of this run: the declaration, and the key that its settings, data and earlier stages give it."""

    stage: Stage
    owner: PlugIn[Any]
    member: int
    inputs: Mapping[str, Any]
    """Everything that the key is made of."""
    after: tuple[PlannedStage, ...]
    data: Dataset

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def place(self) -> str:
        """Which of its owner's stages it is: 2 of 5."""
        stages = type(self.owner).stages
        return f"{stages.index(self.stage) + 1} of {len(stages)}"

    @cached_property
    def key(self) -> str:
        return digest(self.inputs)

    @property
    def code(self) -> str:
        """The digest of the code that can change what it makes."""
        return code_of(source_of(type(self.owner)))


@dataclass
class Journal:
    """What happened in a run, shared by the contexts of all its plug-ins and ensemble members."""

    planned: dict[tuple[int, str], PlannedStage] = field(default_factory=dict)
    """By ensemble member and key."""
    outputs: dict[tuple[int, str], Values] = field(default_factory=dict)
    """What was computed or loaded, by the same."""
    notes: dict[str, StageNote] = field(default_factory=dict)
    """By key, of the stages whose output was read."""
    computed: set[str] = field(default_factory=set)
    """Keys of the stages that this process computed."""
    seconds: float = 0.0
    """Wall time that went into obtaining stages, waiting included."""
    reported: dict[str, Any] = field(default_factory=dict)
    retraining_since: float | None = None
    """When a second process was started that computes stages of the method on other data."""
    on_other_data: set[str] = field(default_factory=set)
    """Keys of stages on other data than the run's own."""

    def made_in_parallel(self, note: StageNote | None) -> bool:
        """Whether the second process computed the stage that this note is about."""
        if note is None or self.retraining_since is None:
            return False
        return note.key in self.on_other_data and note.created >= self.retraining_since


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
    """Which member of an ensemble this is."""
    journal: Journal = field(default_factory=Journal)
    is_other_data: bool = False
    """Whether the data is other data than the run's own."""

    def member(self, number: int) -> RunContext:
        """The context of one member of an ensemble. The first is the run without an ensemble, and shares its stages."""
        seed = self.seed
        if number > 0:
            seed = derive_seed("member", self.seed, number)
        return dataclasses.replace(self, seed=seed, shared_seed=self.seed, number=number)

    def owned_by(self, plugin: PlugIn[Any]) -> RunContext:
        return dataclasses.replace(self, owner=plugin)

    @contextlib.contextmanager
    def on_other_data(self, data: Dataset) -> Iterator[RunContext]:
        """The same run on other data. Its stages count as the run's; what is reported there is dropped."""
        reported = dict(self.journal.reported)
        yield dataclasses.replace(self, unaugmented=data, is_other_data=True)
        self.journal.reported = reported

    def log(self, message: str) -> None:
        _log.info("%s", message)

    def report(self, name: str, value: Any) -> None:
        self.journal.reported[name] = value

    def progress(self, items: Iterable[Item], title: str, total: int | None = None) -> Iterator[Item]:
        if total is None and isinstance(items, Sized):
            total = len(items)
        with Counter(title, total, self.log) as counter:
            for item in items:
                yield item
                counter.advance()

    def stage(self, stage: Stage, data: Dataset) -> Values:
        """The output of a stage: from the cache, or computed now, after the stages that it reads."""
        return self._output(self.plan(stage, data))

    def plan(self, stage: Stage, data: Dataset) -> PlannedStage:
        """Work out the key of a stage and of those before it, computing nothing."""
        check_name(stage.name, "stage")
        if stage not in type(self.owner).stages:
            raise XCBenchError(f"{self.owner.name}: stage {stage.name!r} is not listed in its `stages`")

        after = tuple(self.plan(earlier, data) for earlier in stage.after)
        planned = PlannedStage(stage, self.owner, self.number, self._inputs(stage, data, after), after, data)
        if self.is_other_data:
            self.journal.on_other_data.add(planned.key)
        return self.journal.planned.setdefault((self.number, planned.key), planned)

    def _inputs(self, stage: Stage, data: Dataset, after: Sequence[PlannedStage]) -> dict[str, Any]:
        base_seed = self.seed
        if stage.shared and self.shared_seed is not None:
            base_seed = self.shared_seed

        datasets = self._datasets(data)
        return {
            "core": CORE_VERSION,
            "owner": self.owner.name,
            "stage": stage.name,
            "version": self.owner.code_version if stage.version is None else stage.version,
            "settings": stage.identity(self.owner.config),
            "data": {source: datasets[source].fingerprint for source in stage.sources},
            "seed": derive_seed(base_seed, stage.name) if stage.seeded else None,
            "device": self.device.partition(":")[0],
            "after": [f"{earlier.name}-{earlier.key}" for earlier in after],
        }

    def _datasets(self, data: Dataset) -> dict[Source, Dataset]:
        return {"data": data, "unaugmented": self.unaugmented}

    def _output(self, planned: PlannedStage) -> Values:
        """The output of a planned stage; whatever is needed for it is computed first."""
        place = planned.member, planned.key
        if place in self.journal.outputs:
            return self.journal.outputs[place]

        redo = self._is_to_be_redone(planned)
        cached = None
        if not redo:
            cached = self.cache.read(planned.owner.name, planned.name, planned.key, planned.code)
        if cached is None:
            for earlier in planned.after:
                self._output(earlier)

        start = time.perf_counter()
        if cached is None:
            note, values, computed = self._compute(planned, redo)
        else:
            note, values = cached
            computed = False
        self.journal.seconds += time.perf_counter() - start

        self.journal.notes[planned.key] = note
        if computed:
            self.journal.computed.add(planned.key)
        self.journal.outputs[place] = values
        self._log_stage(planned, note, computed)
        return values

    def _is_to_be_redone(self, planned: PlannedStage) -> bool:
        if self.overwrite is not OverwriteStrategy.REDO or planned.key in self.journal.computed:
            return False
        note = self.cache.note(planned.owner.name, planned.name, planned.key)
        return not self.journal.made_in_parallel(note)

    def _compute(self, planned: PlannedStage, redo: bool) -> tuple[StageNote, dict[str, Any], bool]:
        """Note and output of a stage, and whether this process computed it (another one may have been faster)."""

        def compute(checkpoints: Path) -> Values:
            _log.info("stage %s (%s): started", planned.name, planned.place)
            seed = planned.inputs["seed"] or 0
            seed_generators(seed)
            with activity(f"{planned.owner.name}, stage {planned.place}: {planned.name}"):
                return planned.stage.function(self._work(planned, seed, checkpoints))

        return self.cache.compute(
            planned.owner.name,
            planned.name,
            planned.key,
            planned.inputs,
            compute,
            planned.code,
            redo,
        )

    def compute_apart(self, stage: Stage, data: Dataset, checkpoints: Path) -> tuple[str, Values]:
        """The key and the output of a stage, computed now whether or not it is in the cache, and kept nowhere."""
        planned = self.plan(stage, data)
        seed = planned.inputs["seed"] or 0
        for earlier in planned.after:
            self._output(earlier)
        seed_generators(seed)
        return planned.key, planned.stage.function(self._work(planned, seed, checkpoints))

    def _work(self, planned: PlannedStage, seed: int, checkpoints: Path) -> StageWork[Any]:
        stage = planned.stage
        return StageWork(
            stage=stage,
            config=cast("Any", ConfigView(planned.owner.config, stage)),
            datasets=self._datasets(planned.data),
            outputs=lambda earlier: self._output(self.plan(earlier, planned.data)),
            seed=seed,
            device=self.device,
            checkpoints=checkpoints,
            log=self.log,
            progress=self.progress,
        )

    def _log_stage(self, planned: PlannedStage, note: StageNote, computed: bool) -> None:
        cost = f"{note.seconds:.1f} s, peak {note.peak_memory / 2**20:.0f} MiB"
        if computed:
            _log.info("stage %s: ran (%s)", planned.name, cost)
        elif self.journal.made_in_parallel(note):
            _log.info("stage %s: ran in parallel (%s)", planned.name, cost)
        else:
            _log.info("stage %s: reused (it took %s)", planned.name, cost)

    def stage_reports(self) -> tuple[StageReport, ...]:
        """What every planned stage cost; those that nothing had to read are looked up in the cache."""
        return tuple(self._stage_report(planned) for planned in self.journal.planned.values())

    def _stage_report(self, planned: PlannedStage) -> StageReport:
        note = self.journal.notes.get(planned.key)
        state = "reused" if note else "unused"
        if note is None:
            note = self.cache.note(planned.owner.name, planned.name, planned.key)
        if planned.key in self.journal.computed:
            state = "ran"
        elif self.journal.made_in_parallel(note):
            state = PARALLEL

        return StageReport(
            name=planned.name,
            key=planned.key,
            member=planned.member,
            state=state,
            seconds=note.seconds if note else 0.0,
            peak_memory=note.peak_memory if note else 0,
            peak_device_memory=note.peak_device_memory if note else 0,
            threads=note.threads if note else None,
            other_load=note.other_load if note else None,
        )
