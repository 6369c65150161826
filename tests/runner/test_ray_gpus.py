"""GPUs of a Ray cluster. Ray itself is a fake here, since it need not be installed and no machine of ours has a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from xcbench.errors import InputError
from xcbench.runner.launchers import Job, Outcome
from xcbench.runner.ray_launcher import RayLauncher


class Reference:
    """What stands for a task that was started."""

    def __init__(self, job):
        self.job = job


class FakeTask:
    """A remote function that is called at once; it notes what it was given."""

    def __init__(self, cluster, **resources):
        self.cluster = cluster
        self.resources = resources

    def options(self, **resources):
        return FakeTask(self.cluster, **{**self.resources, **resources})

    def remote(self, job, thread_count, timeout):
        self.cluster.started.append((job.title, self.resources.get("num_gpus", 0), thread_count))
        self.cluster.most_at_a_time = max(self.cluster.most_at_a_time, self.cluster.running + 1)
        self.cluster.running += 1
        return Reference(job)


class FakeCluster:
    """As much of Ray as the launcher uses."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, **resources):
        self.resources = resources
        self.started = []
        self.running = 0
        self.most_at_a_time = 0

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return self.resources

    def remote(self, **resources):
        return lambda function: FakeTask(self, **resources)

    def wait(self, references, timeout):
        return [references[0]], references[1:]

    def get(self, reference):
        self.running -= 1
        return Outcome(reference.job, None, 0.0)


@pytest.fixture
def cluster(monkeypatch):
    def make(**resources):
        fake = FakeCluster(**resources)
        monkeypatch.setitem(sys.modules, "ray", fake)
        return fake

    return make


def launch(device="auto", jobs=4, at_once=4):
    return list(RayLauncher(at_once).launch([Job(str(number), (), device) for number in range(jobs)]))


def test_each_task_asks_for_one_gpu(cluster):
    ray = cluster(CPU=8.0, GPU=2.0)
    assert len(launch()) == 4
    assert ray.started == [(str(number), 1, 4) for number in range(4)]
    assert ray.most_at_a_time == 2


@pytest.mark.parametrize(("gpus", "device"), [({}, "auto"), ({"GPU": 2.0}, "cpu")])
def test_none_is_asked_for_without_gpus_or_on_the_cpu(cluster, gpus, device):
    ray = cluster(CPU=8.0, **gpus)
    assert len(launch(device)) == 4
    assert ray.started == [(str(number), 0, 2) for number in range(4)]
    assert ray.most_at_a_time == 4


def test_a_gpu_that_is_not_there_or_not_for_us_to_choose_is_refused(cluster):
    cluster(CPU=8.0)
    with pytest.raises(InputError, match="device 'cuda': Ray knows of no GPU"):
        launch("cuda")
    cluster(CPU=8.0, GPU=2.0)
    with pytest.raises(InputError, match="device 'cuda:1': Ray chooses the GPU"):
        launch("cuda:1")
