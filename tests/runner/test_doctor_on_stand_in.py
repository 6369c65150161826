"""The doctor examines a device that is not the CPU: every method that the loop trains agrees on the stand-in device."""

import pytest

from xcbench.runner.doctor import METHODS, examine
from xcbench.runner.toy import toy_dataset

stand_in = pytest.importorskip("tests.stand_in_device")


@pytest.mark.parametrize("method", METHODS)
def test_the_stand_in_device_agrees_with_the_cpu(method, monkeypatch):
    stand_in.train_on_stand_in(monkeypatch)
    with stand_in.StandInDevice() as device:
        diagnosis = examine(method, "cpu", "standin", toy_dataset(), minutes=0)
    assert diagnosis.problem is None
    assert diagnosis.on_real_data[1].device == "standin"
    assert device.events  # something was copied, so it was trained there
