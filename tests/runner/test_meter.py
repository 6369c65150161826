import time

import numpy as np

from xcbench.runner.meter import Meter


def test_a_peak_inside_the_block_is_seen_although_it_is_gone_at_the_end():
    with Meter() as quiet:
        time.sleep(0.05)
    size = quiet.peak_memory + (1 << 28)  # beyond whatever this process reached before
    with Meter() as meter:
        block = np.ones(size, np.uint8)
        del block
    assert meter.peak_memory > size
    assert meter.seconds > 0
    assert quiet.seconds >= 0.05
    assert quiet.peak_memory < size


def test_a_block_never_needs_less_than_a_block_within_it(monkeypatch):
    with Meter() as outer:
        with Meter() as middle, Meter() as inner:
            monkeypatch.setattr(inner, "peak_memory", 1 << 50)  # a moment that only the inner sampler saw
        with Meter() as later:
            pass
    assert outer.peak_memory == middle.peak_memory == inner.peak_memory == 1 << 50
    assert later.peak_memory < 1 << 50
