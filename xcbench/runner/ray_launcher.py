"""The runs of a table on a Ray cluster: the one that `RAY_ADDRESS` names, else one on this machine.

Ray moves the jobs and watches the workers; a run whose worker or machine is lost goes to another one, and after a few
losses it is reported as failed. All machines must see the same store and datasets, on a shared disk for instance.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xcbench import threads
from xcbench.errors import InputError
from xcbench.plugins.extras import extra
from xcbench.runner.launchers import Job, Outcome, run_here

LOSSES = 3
"""How many workers may be lost under a run before it counts as failed."""
_FORWARDED = ("XCBENCH_HOME", "PYTHONPATH")


@dataclass(frozen=True)
class RayLauncher:
    """At most `jobs` runs at a time, each with an equal share of the cores that Ray knows of."""

    jobs: int = 1

    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        ray = _ray()
        started_here = not ray.is_initialized()
        if started_here:
            _start(ray)
        try:
            yield from _Cluster(ray, self.jobs, timeout).run(jobs)
        finally:
            if started_here:
                ray.shutdown()


@dataclass
class _Cluster:
    ray: Any
    jobs: int
    timeout: float | None
    losses: dict[Job, int] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        waiting = list(reversed(jobs))
        running: dict[Any, tuple[Job, float]] = {}
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        share = max(1, cores // max(1, min(self.jobs, len(jobs))))
        task = self.ray.remote(num_cpus=share, max_retries=0)(run_here)
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    job = waiting.pop()
                    running[task.remote(job, share, self.timeout)] = (job, time.monotonic())
                ready, _ = self.ray.wait(list(running), timeout=1.0)
                for reference in ready:
                    job, since = running.pop(reference)
                    outcome = self.outcome(reference, job, time.monotonic() - since)
                    if outcome is None:
                        waiting.append(job)
                    else:
                        yield outcome
        finally:
            for reference in running:
                self.ray.cancel(reference)

    def outcome(self, reference: Any, job: Job, seconds: float) -> Outcome | None:
        """How the job ended, or None where its worker was lost and it may try again."""
        try:
            outcome: Outcome = self.ray.get(reference)
            return outcome
        except self.ray.exceptions.RayError as error:
            self.losses[job] = self.losses.get(job, 0) + 1
            if self.losses[job] < LOSSES:
                return None
            reason = " ".join(str(error).split())[:200]
            return Outcome(job, f"its worker was lost {LOSSES} times: {reason}", seconds)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(f"the Ray launcher needs Ray: {extra('ray')}") from None
    return ray


def _start(ray: Any) -> None:
    environment = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
    options: dict[str, Any] = {"runtime_env": {"env_vars": environment}, "log_to_driver": False}
    if "RAY_ADDRESS" not in os.environ:
        options |= {"num_cpus": threads.default_threads(), "include_dashboard": False}
    ray.init(logging_level="error", **options)
