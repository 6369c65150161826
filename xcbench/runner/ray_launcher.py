"""Runs the jobs of a table on a Ray cluster: the one that `RAY_ADDRESS` names, else one on this machine.

Ray moves the jobs and watches the workers. A job whose worker or machine is lost goes to another one, and after a few
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
from xcbench.runner.launchers import Job, Outcome, jobs_with_gpus, run_here, threads_per_job

LOSSES = 3
"""How many workers may be lost under a run before it counts as failed."""

_FORWARDED = ("XCBENCH_HOME", "PYTHONPATH")
"""Environment variables that the workers get."""


@dataclass(frozen=True)
class RayLauncher:
    """Runs at most `jobs` jobs at a time, each with an equal share of the cores that Ray knows of.

    If the cluster has GPUs, each job has one to itself, and at most as many run at a time as there are GPUs. Jobs that
    ask for the CPU get none.
    """

    jobs: int = 1

    def launch(self, jobs: Sequence[Job], timeout: float | None = None) -> Iterator[Outcome]:
        ray = _import_ray()
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
    """A Ray cluster at work on jobs."""

    ray: Any
    jobs_at_a_time: int
    timeout: float | None
    losses: dict[Job, int] = field(default_factory=dict)
    """How many workers were lost, by job."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run all jobs; outcomes come as soon as they are known."""
        resources = self.ray.cluster_resources()
        gpu_count = _gpus_for(jobs, int(resources.get("GPU", 0)))
        jobs_at_a_time = jobs_with_gpus(self.jobs_at_a_time, gpu_count)
        thread_count = threads_per_job(int(resources.get("CPU", 1)), jobs_at_a_time, len(jobs))

        task = self.ray.remote(num_cpus=thread_count, max_retries=0)(run_here)
        task_with_gpu = task
        if gpu_count:
            # Ray lets each of these see one GPU, which no other task has.
            task_with_gpu = task.options(num_gpus=1)

        waiting = list(reversed(jobs))
        running: dict[Any, tuple[Job, float]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs_at_a_time:
                    job = waiting.pop()
                    chosen = task_with_gpu if job.wants_any_gpu else task
                    reference = chosen.remote(job, thread_count, self.timeout)
                    running[reference] = (job, time.monotonic())

                ready, _ = self.ray.wait(list(running), timeout=1.0)

                for reference in ready:
                    job, started = running.pop(reference)
                    outcome = self.outcome(reference, job, time.monotonic() - started)
                    if outcome is None:
                        waiting.append(job)
                    else:
                        yield outcome
        finally:
            for reference in running:
                self.ray.cancel(reference)

    def outcome(self, reference: Any, job: Job, seconds: float) -> Outcome | None:
        """Return how the job ended, or None if its worker was lost and the job may be tried again."""
        try:
            outcome: Outcome = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return self._lost(job, seconds, error)
        return outcome

    def _lost(self, job: Job, seconds: float, error: Exception) -> Outcome | None:
        self.losses[job] = self.losses.get(job, 0) + 1
        if self.losses[job] < LOSSES:
            return None

        reason = " ".join(str(error).split())[:200]
        return Outcome(job, f"its worker was lost {LOSSES} times: {reason}", seconds)


def _gpus_for(jobs: Sequence[Job], cluster_gpus: int) -> int:
    """Return how many GPUs the jobs are to be divided over, after checking that they ask for what there is."""
    for job in jobs:
        if job.device.startswith("cuda:"):
            raise InputError(f"device {job.device!r}: Ray chooses the GPU of each job; write cuda")
        if job.device == "cuda" and cluster_gpus == 0:
            raise InputError("device 'cuda': Ray knows of no GPU in its cluster")

    if any(job.wants_any_gpu for job in jobs):
        return cluster_gpus
    return 0


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(f"the Ray launcher needs Ray: {extra('ray')}") from None
    return ray


def _start(ray: Any) -> None:
    """Connect to the cluster that `RAY_ADDRESS` names, or start one on this machine."""
    variables = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
    options: dict[str, Any] = {
        "runtime_env": {"env_vars": variables},
        "log_to_driver": False,
        "logging_level": "error",
    }
    if "RAY_ADDRESS" not in os.environ:
        options["num_cpus"] = threads.default_threads()
        options["include_dashboard"] = False
    ray.init(**options)
