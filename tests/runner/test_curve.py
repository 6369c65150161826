"""Learning curves: a training that stops early is the whole one up to there, and the record keeps what it was worth."""

import numpy as np
import pytest
import torch

from tests.train.toys import parameters, same, toy
from xcbench.errors import InputError
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset
from xcbench.train import Training, Work, stopping_early, train

QUICK = {"hidden": 8, "repetitions": 2, "batch_size": 16}


def test_schedules_are_those_of_the_whole_training(tmp_path):
    """Half of 40 steps, then the rest from the checkpoint, is 40 steps."""
    settings = Training(batch_size=8, steps=40, checkpoint_seconds=0)

    def trained(folder, *shares):
        for share in shares:
            torch.manual_seed(0)
            module, points = toy()
            with stopping_early(share) as stop:
                report = train(module, points, settings, Work(checkpoints=folder))
            assert [report.steps] == stop.steps
            assert stop.whole == [40]
        return parameters(module)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = trained(tmp_path / "a", 1.0)
    assert same(trained(tmp_path / "b", 0.5, 1.0), whole)


@pytest.fixture
def runs(tmp_path):
    data = toy_dataset()

    def make(method="mach", **fields):
        overrides = QUICK if method == "mach" else {}
        spec = RunSpec(method, overrides=overrides, **fields)
        return run(spec, data=data, store=tmp_path / "store", cache=tmp_path / "cache", device="cpu")

    return make


def test_a_curve_ends_at_the_run_s_own_figures(runs):
    record = runs(curve="test")
    curve = record.reported["PSP@3 by steps"]
    assert curve["x"] == [9, 17, 33, 65, 130]
    assert curve["y"][-1] == pytest.approx(record.metrics["PSP@3"].value)
    assert curve["y"][0] < curve["y"][-1]
    assert np.isfinite(curve["y"]).all()


def test_a_curve_is_no_part_of_a_run_s_identity_and_is_made_when_it_is_asked_for(runs):
    plain = runs()
    assert "curve" not in plain.reported
    with_curve = runs(curve="slice")
    assert with_curve.id == plain.id
    assert with_curve.reported["curve"] == "slice"
    assert with_curve.metrics == plain.metrics
    assert runs().reported["curve"] == "slice"
    assert runs(curve="test").reported["curve"] == "test"


@pytest.mark.parametrize("method", ["knn", "slice"])
def test_methods_that_do_not_train_in_steps_say_so(method, runs):
    with pytest.raises(InputError, match="needs a method that trains in steps"):
        runs(method, curve="test")
