"""DiSMEC against scikit-learn's LinearSVC called by hand, one label after the other."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.methods.problems import needs, separable, train
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.context import RunContext
from xcbench.runner.stage_cache import StageCache
from xcbench.runner.toy import toy_dataset

pytestmark = needs("dismec")


def by_hand(data, C=1.0, prune=0.01, bias=1.0):
    from sklearn.svm import LinearSVC

    X, W = sp.csr_matrix(data.train.X.astype(np.float64)), []
    for targets in data.train.Y.toarray().T:
        svm = LinearSVC(C=C, tol=0.1, dual=True, random_state=0, fit_intercept=bias > 0).fit(X, targets)
        w = np.append(svm.coef_[0], svm.intercept_ if bias else 0)
        W.append(np.where(np.abs(w) >= prune, w, 0))
    W = np.array(W)
    return 1 / (1 + np.exp(-4 * (data.test.X.toarray() @ W[:, :-1].T + W[:, -1])))


@pytest.mark.parametrize("settings", [{}, {"C": 0.3, "prune": 0.05}, {"bias": 0.0}])
def test_agrees_with_the_library_called_directly(settings):
    data = toy_dataset()
    expected = by_hand(data, **settings)
    found = train("dismec", data, **settings).predict(data.test.X, 5)
    assert found.scores[:, 0] == pytest.approx(expected.max(axis=1), abs=1e-5)
    assert found.scores == pytest.approx(np.take_along_axis(expected, found.indices, axis=1), abs=1e-5)


def test_processes_find_what_one_finds(monkeypatch):
    from xcbench.methods.baselines import dismec

    data = toy_dataset()
    alone = train("dismec", data).predict(data.test.X, 5)
    monkeypatch.setattr(dismec, "ONE_PROCESS_BELOW", 0)
    together = train("dismec", data).predict(data.test.X, 5)
    assert np.array_equal(alone.indices, together.indices)
    assert np.array_equal(alone.scores, together.scores)


def test_a_stopped_training_goes_on_where_it_was(tmp_path, monkeypatch):
    from xcbench.methods.baselines import dismec

    data, fitted = toy_dataset(), []
    whole = train("dismec", data).Wt
    monkeypatch.setattr(dismec, "ONE_PROCESS_BELOW", 0)
    monkeypatch.setattr(dismec, "BLOCKS", 5)
    monkeypatch.setattr(dismec, "default_threads", lambda: 1)
    fit_labels = dismec.fit_labels

    def fit_some(X, points_of, **settings):
        if len(fitted) == 3:
            raise KeyboardInterrupt
        fitted.append(points_of.shape[0])
        return fit_labels(X, points_of, **settings)

    method = dismec.Dismec(dismec.DismecConfig())
    run = RunContext(0, "cpu", data, StageCache(tmp_path), method)
    monkeypatch.setattr(dismec, "fit_labels", fit_some)
    with pytest.raises(KeyboardInterrupt):
        method.fit(data, run)
    monkeypatch.setattr(dismec, "fit_labels", lambda *job, **settings: fitted.append(0) or fit_labels(*job, **settings))
    assert (method.fit(data, run).Wt != whole).nnz == 0
    assert len(fitted) == 5


def test_pruning_drops_small_weights_and_nothing_else():
    data = separable()
    whole, pruned = train("dismec", data, prune=0.0).Wt, train("dismec", data, prune=0.3).Wt
    assert np.abs(pruned.data).min() >= 0.3
    difference = np.abs((whole - pruned).toarray())
    assert difference.max() < 0.3
    assert pruned.nnz < whole.nnz


@pytest.mark.parametrize(("key", "value"), [("C", 0), ("tolerance", 0), ("prune", -1), ("bias", -1)])
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        build(get_method("dismec").config_type, {key: value})
