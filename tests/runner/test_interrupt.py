"""Ctrl-C and SIGTERM in the middle of a training, and what a terminal shows meanwhile."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from xcbench.data import TopK
from xcbench.data.binary import store_dataset
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset
from xcbench.signals import HeldInterrupt, Terminated, terminate_as_interrupt

SETTINGS = {
    "surrogate.training.steps": "800",
    "surrogate.training.checkpoint_seconds": "0",
    "shortlister.training.steps": "2",
    "extreme.training.steps": "2",
}
METHOD = str(Path(__file__).with_name("staged_method.py"))
GOES_ON = "interrupted; the same command goes on where it stopped"


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XCBENCH_THREADS", "1")
    store_dataset(toy_dataset(), tmp_path / "toy")
    words = [sys.executable, "-m", "xcbench", "run", "--method", "decaf", "--dataset", str(tmp_path / "toy"), "--json"]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    return words


def interrupt_in_training(command, home):
    """Press Ctrl-C when the training has written a checkpoint; returns exit code and stderr."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(home.glob("stages/*.checkpoints/surrogate.safetensors")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def on_terminal(command):
    """Run a command whose stderr is a terminal; returns its output, and what the terminal showed without colours."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while select.select([ours], [], [], 120)[0]:
            shown += os.read(ours, 65536)
    os.close(ours)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    return output, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8"))


def test_an_interrupted_run_goes_on_where_it_stopped_to_the_same_predictions(command, tmp_path):
    code, said = interrupt_in_training(command, tmp_path / "home")
    assert code == 130
    *_, stopped, last = said.splitlines()
    assert last == f"xcbench: {GOES_ON}"
    step = re.fullmatch(r"surrogate: stopped after step (\d+) of 800, with a checkpoint", stopped)[1]
    assert "Traceback" not in said
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", said), "there is no terminal, so no control characters"

    output, shown = on_terminal(command)
    assert f"surrogate: goes on from step {step}" in shown
    assert re.search(r"decaf, stage 1 of 3: surrogate .*\d+% +\d+ s left +loss [\d.e-]+, \d+ points/s", shown)
    assert "predicting 60 test points" in shown
    assert "P@1" not in shown, "the figures are printed once"

    broken = Store().find(json.loads(output)["run"])
    spec = RunSpec("decaf", overrides=SETTINGS)
    whole = run(spec, data=toy_dataset(), store=tmp_path / "whole", cache=tmp_path / "whole")
    a = TopK.load(broken.folder / "predictions.npz")
    b = TopK.load(whole.folder / "predictions.npz")
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.scores, b.scores)


def test_a_stage_that_does_not_train_has_a_row_with_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    store_dataset(toy_dataset(), tmp_path / "toy")
    words = ["run", "--method", METHOD, "--dataset", str(tmp_path / "toy"), "--json"]
    _, shown = on_terminal([sys.executable, "-m", "xcbench", *words, "--set", "pause=2.5"])
    assert re.search(r"staged, stage 1 of 3: graph .* 2 s", shown)


def test_an_interrupt_is_held_until_the_end_of_the_block():
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt() as held:
        assert not held.came
        signal.raise_signal(signal.SIGINT)
        assert held.came
        reached.append("end")
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_not_held():
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached.append("end")
    assert reached == []


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with HeldInterrupt() as held:
            signal.raise_signal(signal.SIGINT)
            assert not held.came
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_has_the_effect_of_an_interrupt():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminate_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
