"""Which rows of a table can run: every name is registered, or planned and so "not available", or a misspelling."""

from __future__ import annotations

from collections.abc import Mapping

from xcbench.errors import InputError, unknown_name
from xcbench.plugins import registry
from xcbench.report.columns import column
from xcbench.report.experiments import Experiment, Planned, Row, planned


def check(experiment: Experiment) -> None:
    """Raise an `InputError` for a name that is neither registered nor planned; it has the row and the nearest name."""
    try:
        for name in experiment.metrics:
            column(name)
        for claim in experiment.claims:
            for name in claim.metrics:
                _check_claimed_metric(name)
        for row in experiment.rows:
            unavailable(row)
    except InputError as error:
        raise InputError(f"{experiment.name}: {error}") from error


def _check_claimed_metric(name: str) -> None:
    if not column(name).is_metric:
        raise InputError(f"a claim is tested over test points, which {name} has none of; name a metric")


def unavailable(row: Row) -> str | None:
    """Return why a row cannot run, None if it can. A misspelt name is an `InputError`."""
    try:
        # All names are checked before the first reason is returned: a planned name must not hide a misspelt one.
        reasons = _reasons(row, planned())
    except InputError as error:
        raise InputError(f"row {row.label!r}: {error}") from error
    if not reasons:
        return None
    return reasons[0]


def _reasons(row: Row, plans: Planned) -> list[str]:
    """Return everything that keeps a row from running, the method's reason first."""
    if row.added:
        return []
    reasons = []
    reason = _reason("method", row.method, plans.methods)
    if reason is not None:
        reasons.append(reason)
    reasons += _missing_ablations(row, plans)

    for name in row.augment:
        reason = _reason("augmentation", name, plans.augmentations)
        if reason is not None:
            reasons.append(f"{name}: {reason}")
    if row.rerank:
        reason = _reason("reranker", row.rerank, plans.rerankers)
        if reason is not None:
            reasons.append(f"{row.rerank}: {reason}")
    return reasons


def _reason(kind: registry.Kind, name: str, plans: Mapping[str, str]) -> str | None:
    """Return why a plug-in cannot be used, None if it can."""
    if ".py" in name:
        # A user's file: whether it works shows when it runs.
        return None
    known = {entry.name: entry for entry in registry.entries(kind)}
    if name in known:
        problem = registry.unavailable_reason(known[name])
        if not problem:
            return None
        return problem.removeprefix("not available: ")
    if name in plans:
        return plans[name]
    raise unknown_name(kind, name, {*known, *plans})


def _missing_ablations(row: Row, plans: Planned) -> list[str]:
    """Return a reason for each ablation that is planned but not built."""
    if not row.ablation:
        return []
    methods = {entry.name: entry for entry in registry.entries("method")}
    if row.method in methods and registry.unavailable_reason(methods[row.method]):
        # It cannot be imported, so its ablations are not known; the row has the reason already.
        return []

    known: Mapping[str, object] = {}
    if row.method in methods or ".py" in row.method:
        known = registry.get_method(row.method).ablations
    planned_names = plans.ablations.get(row.method, [])

    reasons = []
    for name in row.ablation:
        if name in known:
            continue
        if name not in planned_names:
            raise unknown_name(f"ablation of {row.method}:", name, {*known, *planned_names})
        reasons.append(f"ablation {name}: not built yet")
    return reasons
