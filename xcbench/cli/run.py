"""The verb `run`: one method, one dataset, one record."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from xcbench.cli.console import columns, duration, show_log, size
from xcbench.ranks import rank

if TYPE_CHECKING:
    from xcbench.runner.execute import Plan
    from xcbench.runner.store import Record

Flag = Annotated[bool, Parameter(negative=())]


def run(
    *,
    method: str,
    ablation: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    augment: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    rerank: str | None = None,
    preset: str = "auto",
    dataset: str = "lf-debian-4k",
    seed: int = 0,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    ensemble: int = 1,
    device: str = "auto",
    force: Flag = False,
    dry_run: Flag = False,
    store: Path | None = None,
    retrain_into: Annotated[Path | None, Parameter(show=False)] = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
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
    device
        auto, cpu, cuda or cuda:N.
    force
        Run again, stages included, although the record is there.
    dry_run
        Show the resolved config, the stages that are cached and the expected memory, and do nothing.
    store
        The folder of run records; by default in XCBENCH_HOME.
    retrain_into
        What a run starts beside itself: train only what its reranker asks for, into this stage cache.
    json_
        Print the metrics, in percent and unrounded, and the run's id as one JSON object.
    """
    show_log()
    from xcbench.plugins.config import parse_assignment
    from xcbench.runner import execute as bench
    from xcbench.runner.spec import OverwriteStrategy, RunSpec

    spec = RunSpec(
        method, dataset, ablation, augment, rerank, preset, _assignments(map(parse_assignment, set_)), seed, ensemble
    )
    overwrite = OverwriteStrategy.REDO if force else OverwriteStrategy.KEEP
    if retrain_into is not None:
        bench.retrain(spec, retrain_into, device, overwrite)
        return
    if dry_run:
        plan = bench.plan(spec, store=store, device=device)
        text = json.dumps(_plan_json(plan), indent=2) if json_ else _plan_text(plan)
    else:
        record = bench.run(spec, store=store, device=device, overwrite=overwrite)
        text = json.dumps(metrics_json(record), indent=2) if json_ else record_text(record)
    if rank() == 0:
        print(text)


def _assignments(pairs: Any) -> dict[str, str]:
    from xcbench.errors import InputError

    found: dict[str, str] = {}
    for key, value in pairs:
        if found.get(key, value) != value:
            raise InputError(f"--set gives {key} two values, {found[key]!r} and {value!r}")
        found[key] = value
    return found


def metrics_json(record: "Record") -> dict[str, Any]:
    """One flat object: the run's id and every metric."""
    return {"run": record.id} | {name: measure.value for name, measure in record.metrics.items()}


def record_text(record: "Record") -> str:
    """What a user wants to see of a finished run."""
    parts = [record.method, *record.ablations, *(f"+ {name}" for name in record.augment)]
    parts += [f"+ {record.rerank}"] if record.rerank else []
    members = f", {record.ensemble} members" if record.ensemble > 1 else ""
    title = f"{' '.join(parts)} on {record.dataset} (seed {record.seed}{members}, {record.test_points} test points)"
    rows = [(name, f"{m.value:.2f}", f"{m.low:.2f}", f"{m.high:.2f}") for name, m in record.metrics.items()]
    blocks = [title, columns(("metric", "%", "from", "to (95%)"), rows, " rrr")]
    if record.stages:
        stages = [
            (_member(record.ensemble, s.member) + s.name, s.state, duration(s.seconds), size(s.peak_memory))
            for s in record.stages
        ]
        blocks.append(columns(("stage", "", "time", "peak memory"), stages, "  rr"))
    blocks.append(
        f"train {duration(record.train_seconds)}, predict {duration(record.predict_seconds)}, "
        f"this run {duration(record.seconds)}\n"
        f"peak memory {size(record.peak_memory)}, model {size(record.model_bytes)}\n"
        f"record: {record.folder}"
    )
    return "\n\n".join(blocks)


def _plan_text(plan: "Plan") -> str:
    from xcbench.plugins.config import leaves

    resolved = plan.resolved
    lines = [f"run {resolved.id} on {resolved.data.name}"]
    lines.append(f"in the store, finished {plan.record.finished}" if plan.record else "not in the store yet")
    lines.append(f"preset {resolved.preset}" if resolved.preset else "no preset")
    settings = [(key, json.dumps(value)) for key, value in leaves(resolved.config).items()]
    stages = [
        (
            _member(resolved.spec.ensemble, number) + stage.name,
            "cached" if note else "to compute",
            duration(note.seconds) if note else "",
            stage.key,
        )
        for number, stage, note in plan.stages
    ]
    return "\n\n".join(
        [
            "\n".join(lines),
            columns(("setting", "value"), settings) if settings else "nothing to set",
            columns(("stage", "", "took", "key"), stages) if stages else "the method declares no stages",
            f"expected peak memory: {size(plan.memory)} ({plan.memory_source})",
        ]
    )


def _plan_json(plan: "Plan") -> dict[str, Any]:
    return {
        "run": plan.resolved.id,
        "stored": plan.record is not None,
        "preset": plan.resolved.preset,
        "config": plan.resolved.config,
        "stages": [
            {"member": number, "name": stage.name, "key": stage.key, "cached": note is not None}
            for number, stage, note in plan.stages
        ],
        "memory": plan.memory,
    }


def _member(ensemble: int, number: int) -> str:
    return f"{number + 1}: " if ensemble > 1 else ""
