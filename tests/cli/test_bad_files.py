"""Wrong files and options of `data import` and `predict`: one line that names the place, exit code 2, no file."""

import io
import json
import zipfile

import pytest

from tests.data.test_readers import CSV, JSON, SPLIT, write
from xcbench.cli import main
from xcbench.runner.execute import run as execute
from xcbench.runner.spec import RunSpec
from xcbench.runner.toy import toy_dataset

GOOD = "name,tags\nred shoe,shoes|red\noak table,tables\ntent,tents\n"
NAMED = ("--title-column", "name", "--label-column", "tags")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    execute(RunSpec("popularity", "toy"), data=toy_dataset(), store=folder, cache=folder / "cache", device="cpu")
    return folder


def refused(capsys, *words):
    """The one line that a refused command prints."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    (line,) = err.splitlines()
    return line


def cases(table):
    return [pytest.param(*case, id=title) for title, *case in table]


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


IMPORTS = [
    # What is wrong with the file, its name, its content, further options, and what the line says.
    ("no such file", "x.csv", None, (), "x.csv: no such file"),
    ("empty", "x.csv", "", (), "x.csv, line 1: expected a header"),
    ("blank header", "x.csv", "\n\na,b\n", (), "x.csv, line 1: expected a header"),
    ("header alone", "x.csv", "name,tags\n", (), "x.csv: holds no rows with a title or labels"),
    ("blank rows alone", "x.csv", "name,tags\n\n,\n", (), "x.csv: holds no rows with a title or labels"),
    ("other title column", "x.csv", "Titel,tags\na,b\n", (), "has no column 'name'; found Titel, tags"),
    ("other label column", "x.csv", "name,labels,n\na,b,1\n", (), "has no column 'tags'; found name, labels, n"),
    ("column twice", "x.csv", "name,tags,name\na,b,c\n", (), "x.csv, line 1: has several columns 'name'"),
    (
        "field too many",
        "x.csv",
        "name,tags\na,b\nc,d,e\n",
        (),
        "x.csv, line 3: expected 2 fields as in the header, got 3",
    ),
    ("field too few", "x.csv", "name,tags\na,b\nc\n", (), "x.csv, line 3: expected 2 fields as in the header, got 1"),
    ("behind a line break", "x.csv", 'name,tags\n"a\n\nb",c\nd\n', (), "x.csv, line 5: expected 2 fields"),
    (
        "quote never closed",
        "x.csv",
        'name,tags\na,b\n"c,d\ne,f\n',
        (),
        "x.csv, line 3: expected CSV, with every quoted",
    ),
    ("text behind a quote", "x.csv", 'name,tags\na,b\n"c"d,e\n', (), "x.csv, line 3: expected CSV"),
    (
        "latin-1",
        "x.csv",
        b"name,tags\na,b\ncaf\xe9,d\n",
        (),
        "x.csv, line 3: expected UTF-8 text; convert it first, e.g. with 'iconv -f LATIN1 -t UTF-8 x.csv >",
    ),
    (
        "UTF-16",
        "x.csv",
        GOOD.encode("utf-16"),
        (),
        "x.csv, line 1: expected UTF-8 text; convert it first, e.g. with 'iconv -f UTF-16",
    ),
    ("huge field", "x.csv", f"name,tags\n{'a' * 200_000},b\n", (), "x.csv, line 2: expected CSV"),
    ("no label at all", "x.csv", "name,tags\na,\nb,\n", (), "x.csv: column 'tags': no row has a label"),
    ("no word at all", "x.csv", "name,tags\n!,?\n-,?\n", (), "no title holds a single word"),
    ("one row", "x.csv", "name,tags\na b,c\n", (), "x.csv: all rows are in one group"),
    ("near-duplicates alone", "x.csv", "name,tags\nshoe 40,a\nshoe 41,b\n", (), "x.csv: all rows are in one group"),
    (
        "list never closed",
        "x.csv",
        'name,tags\na,"[""b""]"\nc,"[""d"", x]"\n',
        (),
        "x.csv, line 3: column 'tags': expected a list such as",
    ),
    (
        "list of objects",
        "x.csv",
        'name,tags\na,"[{}]"\nb,[]\n',
        (),
        "x.csv, line 2: column 'tags': expected a text, got an object",
    ),
    (
        "wrong side",
        "x.csv",
        "name,tags,part\na,b,train\nc,d,valid\n",
        ("--split-column", "part"),
        "x.csv, line 3: column 'part': expected train or test, got 'valid'",
    ),
    (
        "one side alone",
        "x.csv",
        "name,tags,part\na,b,train\n",
        ("--split-column", "part"),
        "x.csv: column 'part': no row is in test",
    ),
    ("no split column", "x.csv", GOOD, ("--split-column", "part"), "has no column 'part'; found name, tags"),
    ("no group column", "x.csv", GOOD, ("--group-column", "brand"), "has no column 'brand'; found name, tags"),
    ("no id column", "x.csv", GOOD, ("--id-column", "sku"), "has no column 'sku'; found name, tags"),
    (
        "share of nothing",
        "x.csv",
        GOOD,
        ("--split", "0"),
        "the share of test points lies between 0 and 1, such as 0.2; got 0",
    ),
    ("share in percent", "x.csv", GOOD, ("--split", "20"), "lies between 0 and 1, such as 0.2; got 20"),
    (
        "share and column",
        "x.csv",
        GOOD,
        ("--split", "0.5", "--split-column", "tags"),
        "a split column leaves nothing to split",
    ),
    ("empty separator", "x.csv", GOOD, ("--label-separator", ""), "a label separator is at least one character"),
    ("negative seed", "x.csv", GOOD, ("--seed", "-1"), "a seed is a whole number from 0 up"),
    ("option of folders", "x.csv", GOOD, ("--content",), "x.csv: --content goes with a folder"),
    (
        "cut word pieces",
        "x.csv",
        GOOD,
        ("--cut-unknown", "--tokenizer", "wordpieces"),
        "cut_unknown goes with the tokenizer words",
    ),
    ("spreadsheet", "x.xlsx", b"PK\3\4", (), "x.xlsx"),
    (
        "no JSON",
        "x.jsonl",
        '{"name": "a", "tags": ["b"]}\n{"name": \n',
        (),
        "x.jsonl, line 2: expected one JSON object a line",
    ),
    ("JSON list", "x.jsonl", "[1, 2]\n", (), "x.jsonl, line 1: expected one JSON object a line, got list"),
    ("empty JSON lines", "x.jsonl", "\n\n", (), "x.jsonl: the file is empty"),
    (
        "title of numbers",
        "x.jsonl",
        '{"name": "a", "tags": "b"}\n{"name": 1.5, "tags": "b"}\n',
        (),
        "x.jsonl, line 2: column 'name': expected a text, got a number with decimals",
    ),
    (
        "labels of yes and no",
        "x.jsonl",
        '{"name": "a", "tags": "b"}\n{"name": "c", "tags": [true]}\n',
        (),
        "x.jsonl, line 2: column 'tags': expected a text, got true or false",
    ),
    ("other keys", "x.jsonl", '{"title": "a", "labels": ["b"]}\n', (), "has no column 'name'; found title, labels"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), cases(IMPORTS))
def test_a_bad_table_is_one_line(capsys, tmp_path, monkeypatch, name, content, options, message):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    if content is not None:
        write(tmp_path, {name: content})
    columns = NAMED if name.endswith((".csv", ".jsonl")) else ()
    assert message in refused(capsys, "data", "import", tmp_path / name, *columns, *options)
    assert not (tmp_path / "home").exists()


def test_parquet_that_is_none(capsys, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    path = write(tmp_path, {"x.parquet": b"PAR1 and no more"}) / "x.parquet"
    assert "x.parquet: not a readable parquet file" in refused(capsys, "data", "import", path, *NAMED)
    write_table(pyarrow.table({"name": ["a", "b"], "tags": ["x", "y"], "n": [1.5, 2.5]}), path)
    message = refused(capsys, "data", "import", path, "--title-column", "n", "--label-column", "tags")
    assert "x.parquet, row 1: column 'n': expected a text, got a number with decimals" in message
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (CSV | {"train.csv": "title,tags\na,b\n"}, (), "train.csv: has no column 'labels'; found title, tags"),
        (JSON | {"trn.json": '{"title": "a", "target_ind": [9]}\n'}, (), "trn.json, line 1: expected label ids"),
        (JSON | {"tst.json": b'{"title": "\xe9", "target_ind": []}\n'}, (), "tst.json, line 1: expected UTF-8"),
        (SPLIT | {"filter_labels_test.txt": "0 7\n"}, (), "filter_labels_test.txt, line 1"),
        (SPLIT | {"trn_X_Y.txt": "3 3\n0:1 2:1\n\n1:x\n"}, (), "trn_X_Y.txt, line 4"),
        (SPLIT, ("--title-column", "name"), "--title-column goes with one table"),
        (SPLIT, ("--split", "0.2"), "--split goes with one table"),
        ({"evil.zip": zipped(**{"../trn.json": "{}"})}, (), "holds no dataset"),
    ],
)
def test_a_bad_folder_is_one_line(capsys, tmp_path, monkeypatch, files, options, message):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    folder = write(tmp_path / "raw", files)
    assert message in refused(capsys, "data", "import", folder, "--name", "x", *options)
    assert not (tmp_path / "home").exists()


QUESTIONS = "sku,name\n1,topic1\n2,topic2\n"
PREDICTIONS = [
    ("no such file", "x.csv", None, (), "x.csv: no such file"),
    ("empty", "x.csv", "", ("--column", "name"), "x.csv, line 1: expected a header"),
    ("header alone", "x.csv", "name\n", (), "nothing to predict"),
    ("no lines", "x.txt", "", (), "nothing to predict"),
    ("other column", "x.csv", QUESTIONS, ("--column", "title"), "x.csv: has no column 'title'; found sku, name"),
    ("column not said", "x.csv", QUESTIONS, (), "x.csv: has no column 'title'; found sku, name"),
    (
        "other id column",
        "x.csv",
        QUESTIONS,
        ("--column", "name", "--id-column", "id"),
        "no column 'id'; found sku, name",
    ),
    ("field too few", "x.csv", QUESTIONS + "3\n", ("--column", "name"), "x.csv, line 4: expected 2 fields"),
    (
        "latin-1",
        "x.csv",
        b"name\ntopic1\ncaf\xe9\n",
        (),
        "x.csv, line 3: expected UTF-8 text; convert it first, e.g. with 'iconv",
    ),
    (
        "latin-1 lines",
        "x.txt",
        b"topic1\ncaf\xe9\n",
        (),
        "x.txt, line 2: expected UTF-8 text; convert it first, e.g. with 'iconv",
    ),
    (
        "title of numbers",
        "x.jsonl",
        '{"title": "a"}\n{"title": 0.5}\n',
        (),
        "x.jsonl, line 2: column 'title': expected a text",
    ),
    (
        "spreadsheet",
        "x.xlsx",
        b"PK",
        (),
        "x.xlsx: expected a file that ends in .csv, .tsv, .jsonl, .ndjson, .parquet; save a",
    ),
    ("column of lines", "x.txt", "topic1\n", ("--column", "name"), "x.txt: has no column 'name'; found title"),
    ("other output", "x.txt", "topic1\n", ("--output", "y.xlsx"), "y.xlsx: answers are written to a file that ends in"),
    ("output of a folder", "x.txt", "topic1\n", ("--output", "folder.csv"), "folder.csv: expected the name of a file"),
    ("output over input", "x.csv", "title\na\n", ("--output", "x.csv"), "x.csv: --output is the file of --input"),
    ("output and text", "x.txt", "topic1\n", ("--text", "a"), "--output goes with --input FILE alone"),
    ("no labels asked for", "x.txt", "topic1\n", ("--k", "0"), "k is at least 1, got 0"),
    ("threshold is no number", "x.txt", "topic1\n", ("--threshold", "nan"), "a threshold is a number, got nan"),
    (
        "run and dataset",
        "x.txt",
        "topic1\n",
        ("--dataset", "x"),
        "--run names a finished run and --dataset data to train on",
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), cases(PREDICTIONS))
def test_bad_questions_are_one_line(capsys, tmp_path, monkeypatch, store, name, content, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    if content is not None:
        write(tmp_path, {name: content})
    before = sorted(tmp_path.iterdir())
    if "--output" not in options:
        options = ("--output", "y.csv", *options)
    words = ("predict", "--store", store, "--run", "popularity", "--input", name)
    assert message in refused(capsys, *words, *options)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text", "a"), "say which model predicts: --run RUN, or --method METHOD --dataset DATASET"),
        (("--text", "a", "--dataset", "x"), "--dataset needs --method"),
        (("--run", "popularity"), "nothing to predict: give --text"),
        (("--run", "popularity", "--text", "a", "--output", "y.csv"), "go with --input FILE"),
    ],
)
def test_options_that_do_not_go_together(capsys, tmp_path, monkeypatch, store, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, "predict", "--store", store, *words)
    assert not list(tmp_path.iterdir())


def test_a_run_without_its_model_says_how_to_train_it_again(capsys, tmp_path, store):
    (record,) = store.glob("popularity-*")
    there = write(tmp_path / record.name, {"record.json": (record / "record.json").read_text("utf-8")})
    message = refused(capsys, "predict", "--run", there, "--text", "a")
    assert "was kept without its model" in message
    assert "`xcbench run --method popularity --dataset toy-50 --preset none --seed 0 --ensemble 1`" in message


def test_two_commands_from_a_table_to_answers(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    kinds = ["shoe", "tent", "lamp", "table"]
    rows = [f"{kind} of type {chr(97 + i)},{kind}s|things" for i in range(12) for kind in kinds]
    write(tmp_path, {"shop.csv": "name,tags\n" + "\n".join(rows), "new.csv": "id,name\n7,a tent\n8,\n9,a lamp\n"})
    train = ("predict", "--method", "knn", "--dataset", "shop", "--input", "new.csv", "--column", "name")
    for words in (
        ("data", "import", "shop.csv", *NAMED),
        (*train, "--id-column", "id", "--k", "2", "--output", "y.jsonl"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
    assert "3 rows answered, written to y.jsonl" in capsys.readouterr().out
    answers = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert [set(answer["labels"]) for answer in answers] == [{"tents", "things"}, set(), {"lamps", "things"}]
    assert [answer["id"] for answer in answers] == ["7", "8", "9"]
