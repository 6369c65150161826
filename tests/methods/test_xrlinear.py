"""XR-Linear: what is said where PECOS cannot be had, and (slow: it installs PECOS) what it learns."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from xcbench.methods.baselines import xrlinear

from tests.methods.problems import gappy, separable, train
from xcbench.errors import InputError, XCBenchError
from xcbench.plugins.config import build
from xcbench.plugins.stages import derive_seed
from xcbench.report.availability import unavailable
from xcbench.report.experiments import Row
from xcbench.runner.check import check_method
from xcbench.runner.toy import toy_dataset


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    return tmp_path


def test_a_python_without_pecos_is_told_so(home, monkeypatch):
    monkeypatch.setattr(xrlinear, "PYTHONS", ((3, 7), (3, 9)))
    with pytest.raises(XCBenchError, match=r"libpecos==1.2.8, which is there for Linux and Python 3.7 to 3.9 only"):
        train("xrlinear", separable())
    assert unavailable(Row("a", "xrlinear")).startswith("needs libpecos")  # the table is complete but for this row
    with pytest.raises(XCBenchError, match="xrlinear needs libpecos"):
        xrlinear.environment()
    assert not list(home.glob("environments/libpecos*"))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="PECOS has no wheel for this Python")
def test_a_failed_installation_is_one_line_and_leaves_nothing_that_looks_finished(home, monkeypatch):
    def fails(command, **_):
        if "install" in command:
            raise subprocess.CalledProcessError(1, command, stderr="Collecting\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(XCBenchError, match=r"could not make an environment for PECOS .*: ERROR: no network$"):
        train("xrlinear", separable())
    assert not list(home.glob("environments/*/finished"))


def test_making_the_environment_beforehand_fails_in_one_line(tmp_path, monkeypatch):
    """`make table2` goes on without it, and its user should not meet a traceback first."""
    (tmp_path / "home").write_text("a file where a folder should be")
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    done = subprocess.run([sys.executable, "-m", "xcbench.methods.baselines.xrlinear"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("xcbench: ")
    assert done.stderr.count("\n") == 1


def test_a_failed_training_is_one_line(home, monkeypatch):
    monkeypatch.setattr(xrlinear, "PYTHONS", (sys.version_info[:2],) * 2)
    monkeypatch.setattr(xrlinear, "environment", lambda: sys.executable)  # a Python without PECOS
    with pytest.raises(XCBenchError, match="PECOS could not train: ModuleNotFoundError: No module named 'pecos'"):
        train("xrlinear", separable())


@pytest.mark.parametrize(("key", "value"), [("nr_splits", 1), ("beam_size", 0), ("Cp", 0), ("threshold", -1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(xrlinear.XrLinearConfig, {key: value})


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One for all slow tests; it takes a minute to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XCBENCH_HOME", str(tmp_path_factory.mktemp("pecos")))
        yield xrlinear.environment()


@pytest.mark.slow
def test_learns_a_separable_problem_perfectly(environment):
    data = separable()
    assert train("xrlinear", data).predict(data.test.X, 3).indices[:, 0].tolist() == list(range(12))


@pytest.mark.slow
def test_survives_gaps(environment):
    data = gappy()
    assert train("xrlinear", data).predict(data.test.X, 3).indices[2:, 0].tolist() == [1, 2]


@pytest.mark.slow
def test_keeps_the_contract(environment):
    assert [finding for finding in check_method("xrlinear") if finding.broken] == []


@pytest.mark.slow
def test_agrees_with_the_library_called_directly(environment, tmp_path):
    data = toy_dataset()
    for name, matrix in (("X", data.train.X), ("Y", data.train.Y), ("T", data.test.X)):
        sp.save_npz(tmp_path / f"{name}.npz", sp.csr_matrix(matrix))
    program = f"""
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
X, Y, T = (sp.load_npz({str(tmp_path)!r} + f"/{{name}}.npz") for name in "XYT")
tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), nr_splits=4, max_leaf_size=5, seed=SEED)
found = XLinearModel.train(X, Y, C=tree).predict(T, beam_size=10, only_topk=5)
sp.save_npz({str(tmp_path / "found.npz")!r}, found)
""".replace("SEED", json.dumps(derive_seed(0, "tree")))
    subprocess.run([str(environment), "-c", program], check=True)
    expected = sp.load_npz(tmp_path / "found.npz").toarray()
    found = train("xrlinear", data, nr_splits=4, max_leaf_size=5).predict(data.test.X, 5)
    assert np.take_along_axis(expected, found.indices, axis=1) == pytest.approx(found.scores, abs=1e-5)
