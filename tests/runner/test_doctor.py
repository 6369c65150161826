"""The doctor: agreement where there is, differences where there are, and every failure a finding."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from xcbench.cli import main
from xcbench.cli.doctor import diagnosis_text
from xcbench.data import TopK
from xcbench.errors import InputError
from xcbench.runner import doctor
from xcbench.runner.doctor import (
    ON_REAL_DATA,
    ON_TOY_DATA,
    Copies,
    Diagnosis,
    Trial,
    copies_among,
    differences,
    doctor_dataset,
    examine,
)
from xcbench.runner.toy import toy_dataset
from xcbench.train import loop

OTHER = "cpu:0"


@pytest.fixture(scope="module")
def toy():
    return toy_dataset()


@pytest.fixture
def other_device(monkeypatch):
    """A device by the name of `cpu:0`: the CPU, after a change to what is trained there."""

    def make(change=lambda module: None):
        resolve = loop.resolve_device
        trainer = loop._Trainer.__init__
        devices = []

        def resolve_device(requested="auto"):
            devices.append(requested)
            return resolve("cpu" if requested == OTHER else requested)

        def start(self, module, *rest):
            if devices[-1] == OTHER:
                change(module)
            trainer(self, module, *rest)

        monkeypatch.setattr(loop, "resolve_device", resolve_device)
        monkeypatch.setattr(loop._Trainer, "__init__", start)

    return make


@torch.no_grad()
def last_bits(module):
    """What another order of summation does."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def wrong_start(module):
    """What a wrong kernel does."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.mul_(1 + 0.3 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("method", doctor.METHODS)
def test_a_device_that_rounds_otherwise_agrees(other_device, toy, method):
    other_device(last_bits)
    diagnosis = examine(method, "cpu", OTHER, toy, minutes=0)
    assert diagnosis.problem is None
    for trials in (diagnosis.on_toy_data, diagnosis.on_real_data):
        assert [trial.device for trial in trials] == ["cpu", OTHER]
        assert all(trial.seconds > 0 for trial in trials)
    assert diagnosis_text(diagnosis).startswith(f"ok       {method}: P@1 ")


@pytest.mark.parametrize("method", doctor.METHODS)
def test_a_device_that_computes_something_else_does_not(other_device, toy, method):
    other_device(wrong_start)
    diagnosis = examine(method, "cpu", OTHER, toy, minutes=0)
    assert diagnosis.problem is not None
    assert diagnosis.on_real_data is None
    assert diagnosis_text(diagnosis).startswith(f"DIFFERS  {method}: {diagnosis.problem}; P@1 ")


def test_a_device_that_fails_is_a_finding(other_device, toy):
    def fail(module):
        raise RuntimeError("expected all tensors on\nthe same device")

    other_device(fail)
    diagnosis = examine("mach", "cpu", OTHER, toy)
    assert diagnosis.problem == "RuntimeError: expected all tensors on the same device"
    assert diagnosis_text(diagnosis) == f"DIFFERS  mach: {diagnosis.problem}"


def test_an_unknown_method_is_no_finding(toy):
    with pytest.raises(InputError, match="unknown method 'mahc'"):
        examine("mahc", "cpu", "cpu", toy)


def trial(scores, labels=None, **figures):
    scores = np.array(scores, np.float32)
    if labels is None:
        labels = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    predictions = TopK(np.array(labels, np.int32), scores)
    return Trial("cpu", 1, 1.0, 1.0, 0, predictions, figures or {"P@1": 50.0})


def test_what_is_compared():
    first = trial([[0.9, 0.5, 0.1]] * 4)
    assert differences(first, first, ON_TOY_DATA) is None

    other_labels = trial([[0.9, 0.5, 0.1]] * 4, [[0, 1, 3]] * 4)
    assert differences(first, other_labels, ON_TOY_DATA) == "only 66.7% of the first 5 labels are the same"
    assert differences(first, other_labels, ON_REAL_DATA) is None

    other_scores = trial([[0.8, 0.4, 0.0]] * 4)
    assert differences(first, other_scores, ON_TOY_DATA) == "scores differ by 30.6% of their spread"
    assert differences(first, other_scores, ON_REAL_DATA) is None

    no_number = trial([[0.9, np.nan, 0.1]] * 4)
    for tolerance in (ON_TOY_DATA, ON_REAL_DATA):
        assert differences(first, no_number, tolerance) == "a score on cpu is not a number"

    worse = dataclasses.replace(first, device="other", figures={"P@1": 46.9})
    assert differences(first, worse, ON_REAL_DATA) == "P@1 is 50.00 on cpu and 46.90 on other"
    assert differences(first, dataclasses.replace(first, figures={"P@1": 47.1}), ON_REAL_DATA) is None


def test_copies_are_what_the_profiler_calls_so():
    events = [
        SimpleNamespace(key="Memcpy HtoD (Pinned -> Device)", count=7),
        SimpleNamespace(key="Memcpy HtoD (Pageable -> Device)", count=2),
        SimpleNamespace(key="Memcpy DtoH (Device -> Pageable)", count=3),
        SimpleNamespace(key="ampere_sgemm_128x64_nn", count=100),
    ]
    assert copies_among(events) == Copies(9, 3)
    assert copies_among([]) is None


def test_memory_and_copies_of_a_gpu_are_shown():
    cpu = trial([[0.9, 0.5]])
    gpu = dataclasses.replace(cpu, device="cuda:0", seconds=0.25, peak_device_memory=3 << 20, copies=Copies(9, 3))
    assert diagnosis_text(Diagnosis("decaf", None, (cpu, gpu), (cpu, gpu))) == (
        "ok       decaf: P@1 50.00 and 50.00; training 1.0 s and 0.2 s (4.0 times as fast); "
        "prediction 1.0 s and 1.0 s; peak 3 MiB on cuda:0; 9 copies to it and 3 back on toy data"
    )


@pytest.fixture
def call(monkeypatch, capsys, toy):
    """Call the command with small data: exit code, standard output, standard error."""
    monkeypatch.setattr(doctor, "doctor_dataset", lambda: toy)

    def call(*words):
        try:
            main(["doctor", *words])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_agreement_is_exit_code_0(call):
    words = ("--device", "cpu", "--method", "mach", "--method", "siamese", "--minutes", "0")
    code, out, _ = call(*words)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[:2]] == [["ok", "mach:"], ["ok", "siamese:"]]
    assert out.splitlines()[2] == "2 of 2 methods agree on cpu and cpu"
    code, out, _ = call(*words, "--json")
    assert code == 0
    assert [(entry["method"], entry["problem"]) for entry in json.loads(out)] == [("mach", None), ("siamese", None)]


def test_a_difference_is_exit_code_1(call, monkeypatch):
    starts = []
    trainer = loop._Trainer.__init__

    def start(self, module, *rest):
        starts.append(module)
        if len(starts) == 2:
            wrong_start(module)
        trainer(self, module, *rest)

    monkeypatch.setattr(loop._Trainer, "__init__", start)
    code, out, _ = call("--device", "cpu", "--method", "mach", "--minutes", "0")
    assert code == 1
    assert out.startswith("DIFFERS  mach: ")
    assert out.endswith("0 of 1 methods agree on cpu and cpu\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "gpu"], "unknown device 'gpu'; expected auto, cpu, cuda or cuda:N"),
        (["--device", "cpu", "--method", "mahc"], "unknown method 'mahc'; did you mean mach?"),
        (["--device", "cpu", "--minutes", "-1"], "--minutes is at least 0, got -1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(call, words, message):
    code, out, err = call(*words)
    assert (code, out, err) == (2, "", f"xcbench: {message}\n")


def test_without_a_gpu_it_says_so(call, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert call() == (2, "", "xcbench: device 'cuda': torch finds no GPU on this machine\n")


def test_its_data_is_a_slice_of_what_is_embedded():
    data = doctor_dataset(train=30, test=20)
    assert len(data.train) == len(data.train.titles) == 30
    assert len(data.test) == len(data.test.titles) == 20
    assert data.label_count == data.train.Y.shape[1] > 4000
