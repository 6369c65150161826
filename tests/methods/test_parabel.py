"""Parabel and Bonsai against omikuji called by hand."""

import numpy as np
import pytest

from tests.methods.problems import needs, separable, train
from xcbench.errors import InputError
from xcbench.plugins.config import build
from xcbench.plugins.registry import get_method
from xcbench.runner.toy import toy_dataset

pytestmark = needs("parabel")


def by_hand(data, folder, **settings):
    """omikuji's own way: a text file in, one list of (label, score) per point out."""
    import omikuji

    lines = [f"{len(data.train)} {data.feature_count} {data.label_count}"]
    for x, y in zip(data.train.X.toarray(), data.train.Y.toarray(), strict=True):
        pairs = " ".join(f"{j}:{x[j]:.9g}" for j in np.flatnonzero(x))
        lines.append(",".join(map(str, np.flatnonzero(y))) + " " + pairs)
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    wanted = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(wanted, name, value)
    model = omikuji.Model.train_on_data(str(folder / "train.txt"), wanted, 2)
    return [model.predict([(j, x[j]) for j in np.flatnonzero(x)], 10, 5) for x in data.test.X.toarray()]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("parabel", {}), ("bonsai", {"max_depth": 3, "cluster_k": 100, "cluster_balanced": False})],
)
def test_agrees_with_the_library_called_directly(name, settings, tmp_path):
    # Below 100 labels a tree is one node, so only the solver's random order is left to differ, within its tolerance.
    data = toy_dataset()
    found = train(name, data, linear_eps=0.001, linear_max_iter=200).predict(data.test.X, 5)
    expected = by_hand(data, tmp_path, linear_eps=0.001, linear_max_iter=200, **settings)
    assert found.scores == pytest.approx(np.array([[s for _, s in row] for row in expected]), abs=0.01)
    assert found.indices[:, 0].tolist() == [row[0][0] for row in expected]


def test_nothing_of_the_library_s_chatter_reaches_the_user(capfd):
    data = separable()
    train("parabel", data).predict(data.test.X, 3)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("key", "value"), [("n_trees", 0), ("cluster_k", 1), ("linear_c", 0), ("linear_loss_type", "l1")]
)
def test_settings_out_of_range_are_refused(key, value):
    with pytest.raises(InputError, match=key if key != "n_trees" else "trees"):
        build(get_method("bonsai").config_type, {key: value})
