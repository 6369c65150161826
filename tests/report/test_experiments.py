"""Experiments by name, by file and by entry point; what one refuses to be."""

from __future__ import annotations

import sys
import textwrap

import pytest

from xcbench.errors import DataError, InputError
from xcbench.report import experiments
from xcbench.report.experiments import Experiment, Row, parse_seeds
from xcbench.runner.spec import RunSpec

FILE = "title: Theirs\nmetrics: [P@1]\nrows:\n  - {label: a, method: knn}\n"


def test_a_row_is_a_run():
    row = Row("a", "eclare", ("nograph",), ("gandalf",), "game", {"lr": 0.1}, ensemble=3)
    expected = RunSpec("eclare", "toy", ("nograph",), ("gandalf",), "game", overrides={"lr": 0.1}, seed=2, ensemble=3)
    assert row.spec("toy", 2) == expected


def test_by_name_and_by_file(tmp_path):
    assert experiments.load("eclare/table5").row("ECLARE-k=2").ablation == ("k2",)
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    assert experiments.load(str(path)) == Experiment("mine", "Theirs", (Row("a", "knn"),), ("P@1",))
    with pytest.raises(InputError, match="did you mean eclare/table5"):
        experiments.load("eclare/table55")
    with pytest.raises(DataError, match="no such file"):
        experiments.load(str(tmp_path / "none.yaml"))


def test_a_shared_note_is_named_in_one_place(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace("method: knn", "method: parabel, shared_note: no-seed"))
    (row,) = experiments.load(str(path)).rows
    assert row == Row("a", "parabel", note="omikuji takes no seed: trained again, it gives other figures")
    assert experiments.load("decaf/table1").row("Bonsai").note == row.note
    path.write_text(FILE.replace("method: knn", "method: parabel, shared_note: no-sed"))
    with pytest.raises(InputError, match="did you mean no-seed"):
        experiments.load(str(path))


def test_by_entry_point(tmp_path, monkeypatch, caplog):
    """A package of somebody else brings tables by naming the module whose folder holds them."""
    package = tmp_path / "their_tables"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "table1.yaml").write_text(FILE)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xcbench.tables]\ntheirs = their_tables\nlost = not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "theirs/table1" in experiments.names()
    assert experiments.load("theirs/table1").title == "Theirs"
    assert "entry point lost" in caplog.text
    sys.modules.pop("their_tables")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": ()}, "at least one row"),
        ({"rows": (Row("a", "knn"), Row("a", "knn"))}, "two rows are called 'a'"),
        ({"reference": "b"}, "unknown row 'b'"),
        ({"datasets": ()}, "at least one dataset"),
        ({"seeds": ()}, "at least one dataset and one seed"),
    ],
)
def test_what_an_experiment_refuses(change, message):
    good = {"name": "x", "title": "x", "rows": (Row("a", "knn"),), "metrics": ("P@1",)}
    with pytest.raises(ValueError, match=message):
        Experiment(**(good | change))


def test_what_a_row_refuses():
    with pytest.raises(ValueError, match="at least 1 member"):
        Row("a", "knn", ensemble=0)


def test_seeds():
    assert parse_seeds("3") == (3,)
    assert parse_seeds("0,1,2") == (0, 1, 2)
    for wrong in ("", "a", "1,", "1,1", "-1"):
        with pytest.raises(InputError):
            parse_seeds(wrong)


def test_names_come_in_the_order_of_the_papers():
    text = textwrap.shorten(" ".join(experiments.names()), 60, placeholder="")
    assert text == "decaf/table1 decaf/table4 decaf/table5 decaf/table6"
