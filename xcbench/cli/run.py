"""The verb `run`: one method, one dataset, one record."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from xcbench.cli.console import columns, duration, goes_on, print_json, show_log, size
from xcbench.cli.options import Flag, JsonFlag, Names
from xcbench.defaults import DEFAULT_DATASET
from xcbench.ranks import rank

if TYPE_CHECKING:
    from xcbench.runner.plan import Plan
    from xcbench.runner.store import Record


SetOption = Annotated[tuple[str, ...], Parameter(name="--set", negative=())]
"""--set key.path=value changes one setting; may be given several times."""

ONE_RUN = "95%: over test points; what training with another seed would change is not in it (compare --seeds counts it)"


def run(
    method: str,
    *,
    ablation: Names = (),
    augment: Names = (),
    rerank: str | None = None,
    preset: str = "auto",
    dataset: str = DEFAULT_DATASET,
    seed: int = 0,
    set_: SetOption = (),
    ensemble: int = 1,
    curve: Literal["none", "test", "slice"] = "none",
    device: str = "auto",
    force: Flag = False,
    stale: Flag = False,
    name: str | None = None,
    dry_run: Flag = False,
    store: Path | None = None,
    retrain_into: Annotated[Path | None, Parameter(show=False)] = None,
    json_: JsonFlag = False,
) -> None:
    """Train, predict, evaluate and keep the record; a run that is in the store already returns at once.

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    ablation
        A named variation of the method (`xcbench list ablations`); may be given several times.
    augment
        An augmentation of the training data; may be given several times.
    rerank
        A reranker of the predictions.
    preset
        Settings by dataset, such as a paper's; auto takes those of this dataset if there are any, none takes none.
    dataset
        A name that `xcbench list datasets` shows, or a path.
    seed
        Decides everything random.
    set_
        key.path=value changes one setting; may be given several times.
    ensemble
        How many members to train and average.
    curve
        Also keep a learning curve, P@k and PSP@k against the steps of the last stage: on the test points, or on a slice
        of the training points, which are then left out of another training. It takes about a second training.
    device
        auto, cpu, cuda or cuda:N.
    force
        Run again, stages included, although the record is there.
    stale
        Run again if other code than this made the record.
    name
        What other commands will know the run by; a stored run is renamed.
    dry_run
        Show the resolved config, the stages that are cached and the expected memory, disk and time, and do nothing.
    store
        The folder of run records; by default in XCBENCH_HOME.
    retrain_into
        For the second process that a run may start: only retrain what the reranker asks for, into this stage cache.
    json_
        Print the metrics, in percent and unrounded, and the run's id as one JSON object.
    """
    show_log()
    from xcbench.runner.execute import run as execute
    from xcbench.runner.plan import plan
    from xcbench.runner.spec import OverwriteStrategy, RunSpec
    from xcbench.runner.training import retrain

    spec = RunSpec(
        method=method,
        dataset=dataset,
        ablations=ablation,
        augment=augment,
        rerank=rerank,
        preset=preset,
        overrides=overrides_of(set_),
        seed=seed,
        ensemble=ensemble,
        curve=curve,
    )
    overwrite = OverwriteStrategy.KEEP
    if force:
        overwrite = OverwriteStrategy.REDO
    elif stale:
        overwrite = OverwriteStrategy.STALE

    if dry_run:
        planned = plan(spec, store=store, device=device)
        _show_plan(planned, as_json=json_)
        return
    with goes_on():
        if retrain_into is not None:
            retrain(spec, retrain_into, device, overwrite)
            return
        record = execute(spec, store=store, device=device, overwrite=overwrite, name=name)
    _show_record(record, as_json=json_)


def overrides_of(assignments: Sequence[str]) -> dict[str, str]:
    """Return the settings that `--set key=value` changes."""
    from xcbench.errors import InputError
    from xcbench.plugins.config import parse_assignment

    overrides: dict[str, str] = {}
    for assignment in assignments:
        key, value = parse_assignment(assignment)
        if key in overrides and overrides[key] != value:
            raise InputError(f"--set gives {key} two values, {overrides[key]!r} and {value!r}")
        overrides[key] = value
    return overrides


def _show_plan(plan: "Plan", *, as_json: bool) -> None:
    if rank() > 0:
        return

    if as_json:
        print_json(_plan_json(plan))
    else:
        print(_plan_text(plan))


def _show_record(record: "Record", *, as_json: bool) -> None:
    if rank() > 0:
        return

    if as_json:
        print_json(metrics_json(record))
    else:
        print(record_text(record))


def metrics_json(record: "Record") -> dict[str, Any]:
    """Return one flat object: the run's id and every metric."""
    values = {name: measure.value for name, measure in record.metrics.items()}
    return {"run": record.id, **values}


def record_text(record: "Record") -> str:
    """Return what a user wants to see of a finished run: metrics, stages, costs."""
    blocks = [_record_title(record), f"{metrics_table(record)}\n{ONE_RUN}"]
    if record.stages:
        blocks.append(_stages_table(record))

    times = [
        f"train {duration(record.train_seconds)}",
        f"predict {duration(record.predict_seconds)}",
        f"this run {duration(record.seconds)}",
    ]
    sizes = [f"peak memory {size(record.peak_memory)}"]
    if record.peak_device_memory:
        sizes.append(f"on the GPU {size(record.peak_device_memory)}")
    sizes.append(f"model {size(record.model_bytes)}")

    costs = [
        ", ".join(times),
        ", ".join(sizes),
        f"record: {record.folder}",
    ]
    blocks.append("\n".join(costs))
    return "\n\n".join(blocks)


def _record_title(record: "Record") -> str:
    parts = [record.method, *record.ablations]
    parts += [f"+ {name}" for name in record.augment]
    if record.rerank:
        parts.append(f"+ {record.rerank}")

    details = [f"seed {record.seed}"]
    if record.ensemble > 1:
        details.append(f"{record.ensemble} members")
    details.append(f"{record.test_points} test points")
    if record.points_without_truth:
        details.append(f"{record.points_without_truth} of them without a true label, which count as 0")

    title = f"{' '.join(parts)} on {record.dataset} ({', '.join(details)})"
    if record.name:
        return f"{record.name}: {title}"
    return title


def metrics_table(record: "Record") -> str:
    """Return the recorded metrics with their intervals."""
    rows = []
    for name, measure in record.metrics.items():
        numbers = (measure.value, measure.low, measure.high)
        rows.append((name, *(f"{number:.2f}" for number in numbers)))
    return columns(("metric", "%", "from", "to (95%)"), rows, " rrr")


def _stages_table(record: "Record") -> str:
    header = ["stage", "", "time", "peak memory"]
    on_gpu = any(stage.peak_device_memory for stage in record.stages)
    if on_gpu:
        header.append("on the GPU")

    rows = []
    for stage in record.stages:
        row = [
            _stage_title(stage.name, stage.member, record.ensemble),
            stage.state,
            duration(stage.seconds),
            size(stage.peak_memory),
        ]
        if on_gpu:
            row.append(size(stage.peak_device_memory))
        rows.append(row)
    return columns(header, rows, "  rrr")


def _stage_title(name: str, member: int, ensemble: int) -> str:
    """Return a stage's name, with the number of its member if it belongs to an ensemble."""
    if ensemble == 1:
        return name
    return f"{member + 1}: {name}"


def _plan_text(plan: "Plan") -> str:
    blocks = [
        _plan_title(plan),
        _settings_table(plan),
        _planned_stages_table(plan),
        _expectations(plan),
    ]
    blocks += [f"this run would be refused: {problem}" for problem in plan.problems]
    return "\n\n".join(blocks)


def _expectations(plan: "Plan") -> str:
    lines = [
        f"expected peak memory: {size(plan.memory.bytes)} ({plan.memory.source})",
        *_disk_lines(plan),
    ]
    expected_time = plan.time.source
    if plan.time.seconds is not None:
        expected_time = f"{duration(plan.time.seconds)} ({plan.time.source})"
    lines.append(f"expected time: {expected_time}")
    return "\n".join(lines)


def _disk_lines(plan: "Plan") -> list[str]:
    disk = plan.disk
    stages = "stages: not known"
    if disk.stages is not None:
        stages = f"stages {size(disk.stages)}, a checkpoint up to {size(disk.checkpoints or 0)}"
    model = "model: not known"
    if disk.model is not None:
        model = f"model at most {size(disk.model)}"
    return [
        f"expected disk: {stages} in {disk.cache} ({size(disk.free_in_cache)} free),",
        f"  predictions {size(disk.predictions)}, {model} in {disk.store} ({size(disk.free_in_store)} free)",
    ]


def _plan_title(plan: "Plan") -> str:
    resolved = plan.resolved

    stored = "not in the store yet"
    if plan.record:
        stored = f"in the store, finished {plan.record.finished}"

    preset = "no preset"
    if resolved.preset:
        preset = f"preset {resolved.preset}"

    return f"run {resolved.id} on {resolved.data.name}\n{stored}\n{preset}"


def _settings_table(plan: "Plan") -> str:
    from xcbench.plugins.config import leaves

    settings = leaves(plan.resolved.config)
    if not settings:
        return "nothing to set"

    rows = [(key, json.dumps(value)) for key, value in settings.items()]
    return columns(("setting", "value"), rows)


def _planned_stages_table(plan: "Plan") -> str:
    if not plan.stages:
        return "the method declares no stages"

    rows = []
    for (stage, note), seconds in zip(plan.stages, plan.time.stages, strict=True):
        title = _stage_title(stage.name, stage.member, plan.resolved.spec.ensemble)
        if note is not None:
            rows.append((title, "cached", duration(note.seconds), "", stage.key))
            continue
        expected = ""
        if seconds is not None:
            expected = duration(seconds)
        rows.append((title, "to compute", "", expected, stage.key))
    return columns(("stage", "", "took", "expected", "key"), rows)


def _plan_json(plan: "Plan") -> dict[str, Any]:
    stages = []
    for (stage, note), seconds in zip(plan.stages, plan.time.stages, strict=True):
        entry = {
            "member": stage.member,
            "name": stage.name,
            "key": stage.key,
            "cached": note is not None,
            "seconds": seconds,
        }
        stages.append(entry)

    return {
        "run": plan.resolved.id,
        "stored": plan.record is not None,
        "preset": plan.resolved.preset,
        "config": plan.resolved.config,
        "stages": stages,
        "memory": plan.memory.bytes,
        "time": {"seconds": plan.time.seconds, "source": plan.time.source},
        "disk": {
            "stages": plan.disk.stages,
            "checkpoints": plan.disk.checkpoints,
            "model": plan.disk.model,
            "predictions": plan.disk.predictions,
        },
        "problems": plan.problems,
    }
