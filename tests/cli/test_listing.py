"""The verbs `list` and `data rm`."""

import json

import pytest

from tests.cli.test_run import call, one_line, toy
from xcbench.data.binary import store_dataset
from xcbench.data.catalog import load_dataset
from xcbench.evaluation import parse_metric
from xcbench.files import home
from xcbench.plugins import ablations, registry
from xcbench.runner.toy import toy_dataset

__all__ = ["call", "toy"]


@pytest.fixture
def mine(call):
    store_dataset(toy_dataset(), home() / "datasets" / "mine")
    return home() / "datasets" / "mine"


def test_list_alone_names_its_kinds(call):
    code, out, _ = call("list")
    assert code == 0
    kinds = [line.split()[0] for line in out.splitlines()[1:]]
    assert kinds == ["methods", "ablations", "augmentations", "rerankers", "datasets", "metrics", "tables", "runs"]
    for kind in set(kinds) - {"ablations"}:
        assert call("list", kind)[0] == 0


def test_every_metric_is_listed_by_a_name_that_is_understood(call):
    rows = json.loads(call("list", "metrics", "--json")[1])
    assert [str(parse_metric(row["metric"])) for row in rows] == [row["metric"] for row in rows]
    assert all(row["title"] for row in rows)
    (precision,) = (row for row in rows if row["metric"] == "P@5")
    assert "precision" in precision["also known as"]


def test_datasets_have_their_sizes(call, mine):
    rows = {row["name"]: row for row in json.loads(call("list", "datasets", "--json")[1])}
    sizes = {name: (row["train"], row["test"], row["labels"]) for name, row in rows.items()}
    assert sizes["lf-debian-4k"] == (7689, 2979, 4390)
    assert sizes["mine"] == (200, 60, 50)
    (mine / "dataset.json").write_text("{")
    rows = {row["name"]: row for row in json.loads(call("list", "datasets", "--json")[1])}
    assert rows["mine"]["labels"] is None


def test_an_imported_dataset_is_deleted_and_nothing_else(call, mine):
    code, out, _ = call("data", "rm", "mine")
    assert (code, out) == (0, f"deleted {mine}\n")
    assert list(mine.parent.iterdir()) == []
    for name, message in (
        ("mine", "unknown imported dataset"),
        ("lf-debian-4k", "cannot be deleted"),
        ("..", "unknown"),
    ):
        code, _, err = call("data", "rm", name)
        assert code == 2
        assert message in one_line(err)
    assert load_dataset("lf-debian-4k").label_count == 4390


def test_the_list_of_ablations_is_read_once_for_all(call, monkeypatch):
    entry = next(entry for entry in registry.entries("method") if entry.name == "knn")
    missing = registry.Entry("method", "broken", "", "built-in", "none", missing=("no_such_package",))
    monkeypatch.setattr(registry, "entries", lambda kind: [missing, entry])
    first = call("list", "ablations", "--json")
    monkeypatch.setattr(ablations, "ablations_of", None)  # whoever asks again fails
    assert call("list", "ablations", "--json") == first
    assert [row["method"] for row in json.loads(first[1])] == ["knn"]
    assert "no_such_package" in one_line(first[2])

    monkeypatch.undo()
    monkeypatch.setenv("XCBENCH_HOME", str(home()))
    assert ablations._sources_digest() == ablations._sources_digest()


def test_a_changed_source_is_read_again(call, tmp_path, monkeypatch):
    before = ablations._sources_digest()
    (tmp_path / "new.py").write_text("")
    folders = registry.method_folders()
    monkeypatch.setattr(registry, "method_folders", lambda: [*folders, tmp_path])
    added = ablations._sources_digest()
    (tmp_path / "new.py").write_text("changed = True")
    assert len({before, added, ablations._sources_digest()}) == 3


def test_a_method_needs_no_option(call, toy):
    code, out, _ = call("run", "popularity", "--dataset", toy, "--json", "--name", "head")
    assert code == 0
    by_option = call("run", "--method", "popularity", "--dataset", toy, "--json")[1]
    assert json.loads(out) == json.loads(by_option)
    assert call("run", "popularity", "--dataset", toy)[1].startswith("head: popularity on toy-50")
    (row,) = json.loads(call("list", "runs", "--json")[1])
    assert row["name"] == "head"


def test_a_device_that_is_none_is_refused_although_the_run_is_stored(call, toy):
    call("run", "popularity", "--dataset", toy)
    for words in ((), ("--dry-run",)):
        code, _, err = call("run", "popularity", "--dataset", toy, "--device", "gpu", *words)
        assert code == 2
        assert "unknown device 'gpu'; expected auto, cpu, cuda or cuda:N" in one_line(err)


def test_compare_says_what_differs_and_takes_names(call, toy):
    call("run", "knn", "--dataset", toy)
    call("run", "knn", "--dataset", toy, "--set", "neighbours=2", "--name", "two")
    code, out, err = call("compare", "knn@toy-50", "two", "--metric", "precision@1")
    assert code == 2  # the newest of the runs of knn is the second one
    assert "is named twice" in err.splitlines()[-1]
    _, ids, _ = call("list", "runs", "--json")
    first = next(row["run"] for row in json.loads(ids) if not row["name"])
    code, out, err = call("compare", first, "two", "--metric", "precision@1")
    assert code == 0, err
    assert "neighbours=50" in out
    assert "'two', neighbours=2" in out
    assert "P@1" in out


def test_compare_over_seeds(call, toy):
    for seed in ("0", "1", "2"):
        call("run", "popularity", "--dataset", toy, "--seed", seed)
    call("run", "knn", "--dataset", toy)
    _, out, _ = call("compare", "knn@toy-50", "popularity@toy-50", "--metric", "P@1")
    assert "One seed" in out
    assert " 0.00 (3 seeds)" in out
    code, _, err = call("compare", "knn@toy-50", "popularity@toy-50", "--seeds", "0,1,2")
    assert code == 2
    assert "not in its store with seed 1, 2" in err.splitlines()[-1]
    for seed in ("1", "2"):
        call("run", "knn", "--dataset", toy, "--seed", seed)
    code, out, err = call("compare", "knn@toy-50", "popularity@toy-50", "--seeds", "0,1,2", "--metric", "P@1")
    assert code == 0, err
    assert "means over seeds 0,1,2; p: t test over test points and seeds" in out
    assert "worse" in out
