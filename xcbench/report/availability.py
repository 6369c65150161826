"""Which rows of a table can run: every name is registered, or planned and so "not available", or a misspelling."""

from __future__ import annotations

from collections.abc import Iterator

from xcbench.errors import InputError, unknown_name
from xcbench.plugins import registry
from xcbench.report.columns import column
from xcbench.report.experiments import Experiment, Planned, Row, planned


def check(experiment: Experiment) -> None:
    """Refuse an experiment that names what nobody has and nobody plans; the message names row and nearest name."""
    try:
        for name in experiment.metrics:
            column(name)
        for name in (metric for claim in experiment.claims for metric in claim.metrics):
            if column(name).read is not None:
                raise InputError(f"a claim is tested over test points, which {name} has none of; name a metric")
        for row in experiment.rows:
            unavailable(row)
    except InputError as error:
        raise InputError(f"{experiment.name}: {error}") from error


def unavailable(row: Row) -> str | None:
    """Why a row cannot run, or None if it can."""
    try:
        # All names are looked at before the first reason is given: a misspelling must not hide behind a plan.
        reasons = list(_reasons(row, planned()))
    except InputError as error:
        raise InputError(f"row {row.label!r}: {error}") from error
    return reasons[0] if reasons else None


def _reasons(row: Row, plans: Planned) -> Iterator[str]:
    yield from _missing("method", row.method, plans.methods)
    yield from _missing_ablations(row, plans)
    for name in row.augment:
        yield from (f"{name}: {why}" for why in _missing("augmentation", name, plans.augmentations))
    if row.rerank:
        yield from (f"{row.rerank}: {why}" for why in _missing("reranker", row.rerank, plans.rerankers))


def _missing(kind: registry.Kind, name: str, plans: dict[str, str]) -> Iterator[str]:
    if ".py" in name:  # a user's file; running it will tell
        return
    known = {entry.name: entry for entry in registry.entries(kind)}
    if name in known:
        if problem := registry.unavailable_reason(known[name]):
            yield problem.removeprefix("not available: ")
    elif name in plans:
        yield plans[name]
    else:
        raise unknown_name(kind, name, {*known, *plans})


def _missing_ablations(row: Row, plans: Planned) -> Iterator[str]:
    if not row.ablation:
        return
    built = {entry.name: entry for entry in registry.entries("method")}
    if row.method in built and registry.unavailable_reason(built[row.method]):
        return  # it cannot be asked for its ablations; the row says why already
    known = registry.get_method(row.method).ablations if row.method in built or ".py" in row.method else {}
    to_come = plans.ablations.get(row.method, [])
    for name in row.ablation:
        if name not in known and name not in to_come:
            raise unknown_name(f"ablation of {row.method}:", name, {*known, *to_come})
        if name not in known:
            yield f"ablation {name}: not built yet"
