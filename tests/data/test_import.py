"""Importing: one readable block, a stored dataset, and nothing at all where something was wrong."""

import sys

import numpy as np
import pytest

from tests.data.test_readers import COMBINED, CSV, JSON, SPLIT, write, zipped
from xcbench.cli import main
from xcbench.data import load_dataset
from xcbench.data.dataset import Propensity
from xcbench.data.embedded import embedded_folder
from xcbench.data.importing import import_dataset
from xcbench.data.published import published_propensity
from xcbench.errors import DataError, InputError, XCBenchError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_an_imported_dataset_loads_by_name(tmp_path):
    report = import_dataset(write(tmp_path / "raw", SPLIT | {"filter_labels_test.txt": "0 1\n"}), "mine")
    loaded = load_dataset("mine")
    assert loaded.fingerprint == report.dataset.fingerprint
    assert loaded.test.filter.tolist() == [[0, 1]]
    assert loaded.manifest.sizes.train == 3
    assert set(loaded.manifest.files) == {*SPLIT, "filter_labels_test.txt"}


def test_folder_and_zip_give_the_same_dataset(tmp_path):
    from_folder = import_dataset(write(tmp_path / "raw", JSON), "folder").dataset
    from_zip = import_dataset(zipped(tmp_path / "raw.zip", {f"inner/{k}": v for k, v in JSON.items()}), "zip").dataset
    assert from_folder.fingerprint == from_zip.fingerprint


def test_the_block_says_everything_once(tmp_path, home):
    files = SPLIT | {"trn_X_Xf.txt": "3 4\n3:0.8 1:0.6\n0:1\n\n", "filter_labels_test.txt": "0 1\n"}
    report = import_dataset(write(tmp_path / "raw", files), "mine")
    assert str(report).split("\n") == [
        f"mine: imported from {tmp_path / 'raw'}",
        "  read       filter_labels_test.txt, lbl_X_Xf.txt, trn_X_Xf.txt, trn_X_Y.txt, tst_X_Xf.txt, tst_X_Y.txt",
        "  train      3 points, 1.00 labels per point",
        "  test       2 points, 1.00 labels per point, 1 filtered pairs",
        "  labels     3",
        "  features   4, as given",
        "  repaired   trn_X_Xf.txt: 1 rows had unsorted ids: sorted",
        "  note       training points without labels: 1",
        "  note       training points without features: 1",
        "  note       labels without text: 1",
        "  propensity A = 0.55, B = 1.5, the default; PSP and PSnDCG depend on them",
        f"  stored     {home / 'datasets' / 'mine'}",
    ]


def test_propensity_is_never_guessed_from_a_name(tmp_path):
    raw = write(tmp_path / "raw", SPLIT)
    report = import_dataset(raw, "LF-AmazonTitles-131K")
    assert report.dataset.propensity == Propensity(0.55, 1.5)
    assert "--propensity-a 0.6 --propensity-b 2.6" in str(report)
    assert "also that of LF-WikiSeeAlsoTitles-320K" in str(import_dataset(raw, "lf-wikiseealsotitles-320k"))
    asked = import_dataset(raw, "LF-AmazonTitles-131K", propensity=Propensity(0.6, 2.6), replace=True)
    assert load_dataset("LF-AmazonTitles-131K").propensity == Propensity(0.6, 2.6)
    assert "as asked for" in str(asked)
    write(raw, {"manifest.json": '{"name": "x"}'})
    assert "A = 0.55, B = 1.5, the default" in str(import_dataset(raw, "silent-manifest"))
    write(raw, {"manifest.json": '{"name": "x", "propensity": {"A": 0.5, "B": 0.4}}'})
    report = import_dataset(raw, "from-manifest")
    assert report.dataset.propensity == Propensity(0.5, 0.4)
    assert "from the manifest" in str(report)


def test_text_options_that_change_nothing_are_noted(tmp_path):
    given = write(tmp_path / "raw", SPLIT)
    assert "--from-text" in str(import_dataset(given, "given", text_options={"min_count": 2}))
    assert "--from-text" not in str(import_dataset(given, "plain"))
    made = write(tmp_path / "text", JSON)
    assert "--from-text" not in str(import_dataset(made, "made", text_options={"min_count": 1}))


def test_published_constants_are_those_of_the_papers():
    published = published_propensity()
    assert published["LF-AmazonTitles-1.3M"] == Propensity(0.6, 2.6)
    assert published["LF-WikiTitles-500K"] == Propensity(0.5, 0.4)
    assert published["LF-WikiSeeAlsoTitles-320K"] == Propensity(0.55, 1.5)


def test_a_name_is_taken_only_once_unless_asked(tmp_path):
    raw = write(tmp_path / "raw", SPLIT)
    first = import_dataset(raw, "mine").dataset.fingerprint
    write(raw, {"tst_X_Y.txt": "2 3\n2:1\n1:1\n"})
    with pytest.raises(InputError, match="--replace"):
        import_dataset(raw, "mine")
    assert load_dataset("mine").fingerprint == first
    import_dataset(raw, "mine", replace=True)
    assert load_dataset("mine").fingerprint != first


@pytest.mark.parametrize("name", ["", "../mine", "a/b", ".hidden", "lf-debian-4k", "white space"])
def test_names_that_cannot_be(tmp_path, name):
    with pytest.raises(InputError):
        import_dataset(write(tmp_path / "raw", SPLIT), name)


def test_a_failed_import_leaves_nothing(tmp_path, home, monkeypatch):
    with pytest.raises(DataError):
        import_dataset(write(tmp_path / "raw", SPLIT | {"tst_X_Y.txt": "2 3\n2:1\nx\n"}), "mine")
    assert not home.exists()

    def no_space(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", no_space)
    with pytest.raises(XCBenchError, match="No space left"):
        import_dataset(write(tmp_path / "raw", SPLIT), "mine")
    assert not any((home / "datasets").iterdir())


def test_a_failed_replacement_leaves_the_old_one(tmp_path):
    raw = write(tmp_path / "raw", SPLIT)
    first = import_dataset(raw, "mine").dataset.fingerprint
    with pytest.raises(DataError):
        import_dataset(write(raw, {"tst_X_Y.txt": "nonsense"}), "mine", replace=True)
    assert load_dataset("mine").fingerprint == first


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return stopped.value.code


def test_command_line(tmp_path, capsys, home):
    assert run("data", "import", str(write(tmp_path / "raw", CSV)), "--name", "mine", "--min-count", "1") == 0
    assert "3 points" in capsys.readouterr().out
    assert run("data", "export", "mine", str(tmp_path / "out"), "--form", "combined") == 0
    assert (tmp_path / "out" / "train.txt").read_text().startswith("3 ")


def test_an_embedded_dataset_is_exported_with_its_terms(tmp_path):
    assert run("data", "export", "lf-debian-4k", str(tmp_path / "out"), "--form", "json") == 0
    shipped = embedded_folder("lf-debian-4k")
    assert (tmp_path / "out" / "NOTICE.txt").read_bytes() == (shipped / "NOTICE.txt").read_bytes()
    assert load_dataset(tmp_path / "out").fingerprint == load_dataset("lf-debian-4k").fingerprint
    assert run("data", "export", str(tmp_path / "out"), str(tmp_path / "again")) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_file_names_and_facts_that_are_not_text(tmp_path, capsys):
    files = {f"caf\udce9_{side}.txt": COMBINED[f"{side}.txt"] for side in ("train", "test")}
    folder = write(tmp_path / "raw", files | {"manifest.json": r'{"name": "x", "title": "\ud800"}'})
    assert run("data", "import", str(folder), "--name", "mine") == 0
    assert r"caf\udce9_train.txt" in capsys.readouterr().out
    assert load_dataset("mine").manifest.title == "\ud800"


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        (
            COMBINED | {"train.txt": "9999999999 4 3\n0 0:1\n"},
            [],
            "train.txt, line 1: the header declares 9,999,999,999",
        ),
        (COMBINED, ["--propensity-a", "1"], "give both A and B"),
        (COMBINED, ["--propensity-a", "nan", "--propensity-b", "1"], "finite"),
        (COMBINED, ["--from-text"], "text features need titles"),
        (JSON, ["--min-count", "0"], "min_count"),
        (CSV, ["--label-separator", ""], "separator"),
        ({}, [], "no dataset in any known form"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(tmp_path, capsys, home, files, arguments, message):
    assert run("data", "import", str(write(tmp_path / "raw", files)), "--name", "mine", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not home.exists()
