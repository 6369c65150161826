"""One table becomes a dataset: columns by name, labels however they are written, and a split that is honest."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.test_readers import write
from xcbench.data import load_dataset
from xcbench.data.importing import import_table
from xcbench.data.readers.label_fields import label_form
from xcbench.data.readers.single_table import TableColumns, read_single_table
from xcbench.data.readers.table_files import open_table, open_titles
from xcbench.data.splitting import choose_test_rows, groups_of, near_duplicates
from xcbench.errors import DataError, InputError

ROWS = [
    ("a", "Red shoe", ["shoes", "red"]),
    ("b", "Oak table,\nround", ["tables"]),
    ("c", "Tent", ["tents", "red"]),
    ("d", "", ["tables"]),
    ("e", 'A "quoted" lamp', []),
]
COLUMNS = TableColumns(title_column="name", label_column="tags", id_column="sku", split=0.4)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "home"))


def quoted(text):
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def csv_text(separator=",", labels="|".join):
    lines = [separator.join(("sku", "Name", "price", "tags"))]
    for sku, title, tags in ROWS:
        lines.append(separator.join((sku, quoted(title), "1", quoted(labels(tags)))))
    return "\r\n".join(lines) + "\r\n"


def json_text():
    rows = [{"sku": sku, "name": title, "tags": tags} for sku, title, tags in ROWS]
    return "\n\n".join(json.dumps(row) for row in rows)


def parquet_bytes(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    sku, name, tags = zip(*ROWS, strict=True)
    write_table(pyarrow.table({"sku": sku, "name": name, "tags": tags}), tmp_path / "made")
    return (tmp_path / "made").read_bytes()


FILES = {
    "plain.csv": csv_text(),
    "marked.csv": "\ufeff" + csv_text(),
    "excel.csv": csv_text(";"),
    "tabs.tsv": csv_text("\t", ";".join),
    "json.csv": csv_text(labels=json.dumps),
    "pandas.csv": csv_text(labels=str),
    "commas.csv": csv_text(labels=", ".join),
    "lines.jsonl": json_text(),
    "table.parquet": None,
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_table_gives_the_same_dataset(tmp_path, name):
    content = FILES[name]
    if content is None:
        content = parquet_bytes(tmp_path)
    path = write(tmp_path / "raw", {name: content}) / name
    expected = read_single_table(write(tmp_path / "raw", {"first.csv": csv_text()}) / "first.csv", COLUMNS)
    raw = read_single_table(path, COLUMNS)
    assert list(raw.label_titles.column) == ["shoes", "red", "tables", "tents"]
    for side in ("train", "test"):
        assert list(raw.splits[side].titles.column) == list(expected.splits[side].titles.column)
        assert raw.splits[side].Y.matrix.toarray().tolist() == expected.splits[side].Y.matrix.toarray().tolist()


def test_no_row_is_lost_and_labels_stay_with_their_titles(tmp_path):
    raw = read_single_table(write(tmp_path, {"x.csv": csv_text()}) / "x.csv", COLUMNS)
    names = list(raw.label_titles.column)
    found = {}
    for split in raw.splits.values():
        for title, row in zip(split.titles.column, split.Y.matrix.toarray(), strict=True):
            found[title] = {names[label] for label in np.flatnonzero(row)}
    assert found == {title: set(tags) for _, title, tags in ROWS}
    assert len(raw.test.titles.column) == 2


def test_the_report_says_what_was_decided(tmp_path):
    text = "sku;name;tags\n1;red shoe;shoes|a,b\n1;oak table;Tables|tables\n;tent;\n\n3;lamp;tables\n;;\n"
    path = write(tmp_path, {"shop.csv": text}) / "shop.csv"
    report = import_table(path, "shop", TableColumns("name", "tags", "sku"))
    for note in (
        "columns are separated by ';'",
        "rows without title and labels: 2, left out",
        "rows with the id of an earlier row: 1, such as '1' in lines 2 and 3",
        "rows without an id: 1",
        "labels are separated by '|': '|' occurs in 2 of 3 rows with labels, ',' in 1 (--label-separator)",
        "split: 0.2 of the rows for test, seed 0; rows whose titles have the same words, but for words with digits, "
        "stay together",
        "labels that differ from another only in case: 2, such as 'Tables' and 'tables'",
    ):
        assert f"note       {note}\n" in str(report)
    stored = load_dataset("shop")
    assert stored.manifest.split_rule.startswith("0.2 of the rows")
    assert sorted(stored.label_titles) == ["Tables", "a,b", "shoes", "tables"]


def test_a_split_column_is_followed(tmp_path):
    text = "title,labels,part\na,x,train\nb,x,TEST\nc,y,Train\n"
    path = write(tmp_path, {"x.csv": text}) / "x.csv"
    raw = read_single_table(path, TableColumns(split_column="part"))
    assert list(raw.train.titles.column) == ["a", "c"]
    assert list(raw.test.titles.column) == ["b"]


def test_a_table_loads_by_its_path(tmp_path):
    text = "title,labels\n" + "".join(f"thing {chr(97 + i)},x;y\n" for i in range(10))
    dataset = load_dataset(str(write(tmp_path, {"x.csv": text}) / "x.csv"))
    assert (dataset.name, len(dataset.train), len(dataset.test), dataset.label_count) == ("x", 8, 2, 2)


@pytest.mark.parametrize(
    ("fields", "separator", "is_list"),
    [
        (["a;b", "c", "a,b"], ";", False),
        (["a,b", "c,d", "a;b"], ",", False),
        (["a", "b"], None, False),
        (["[]", '["a"]', " ['b'] ", ""], None, True),
        (['["a"]', "b|c"], "|", False),
        ([], None, False),
    ],
)
def test_how_labels_are_written(fields, separator, is_list):
    form = label_form(fields)
    assert (form.separator, form.is_list) == (separator, is_list)


def test_a_separator_may_be_asked_for():
    assert label_form(["a;b"], " / ").names("a;b / c") == ["a;b", "c"]


def test_titles_of_the_same_words_are_near_duplicates():
    titles = ["Red shoe, size 40", "shoe RED size 41", "red shoe", "", "2001", "2010", "", "size red red shoe"]
    groups = near_duplicates(titles)
    assert groups[0] == groups[1] == groups[7]
    assert len(set(groups.tolist())) == 6


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_whole_and_the_share_is_met(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 60, 300)
    is_test = choose_test_rows(groups, 0.2, seed)
    assert not set(groups[is_test]) & set(groups[~is_test])
    assert 60 <= is_test.sum() < 60 + np.bincount(groups).max()
    assert is_test.tolist() == choose_test_rows(groups, 0.2, seed).tolist()
    assert is_test.tolist() != choose_test_rows(groups, 0.2, seed + 1).tolist()


def test_a_giant_group_trains():
    is_test = choose_test_rows(np.array([0] * 90 + list(range(1, 11))), 0.2, 0)
    assert is_test.tolist() == [False] * 90 + [True] * 10


def test_rows_of_one_group_stay_together():
    groups = groups_of(["x", "", "x", "y", ""], ["a", "b", "c", "d", "b"])
    assert groups[0] == groups[2]
    assert groups[1] == groups[4]
    assert len(set(groups.tolist())) == 3


def test_two_rows_are_split_and_one_is_not():
    assert choose_test_rows(np.array([5, 9]), 0.9, 0).sum() == 1
    with pytest.raises(InputError, match="one group"):
        choose_test_rows(np.array([1, 1]), 0.5, 0)


def test_lines_keep_their_place(tmp_path):
    path = write(tmp_path, {"x.txt": "a\r\n\n b \u2028c\n\n"}) / "x.txt"
    assert list(open_titles(path).rows(["title"])) == [(1, ("a",)), (2, ("",)), (3, ("b \u2028c",)), (4, ("",))]
    assert open_titles(path).expected_rows() == 4


def test_a_row_is_named_by_its_first_line(tmp_path):
    path = write(tmp_path, {"x.csv": 'a,b\n"1\n\n2",x\n\n3,y\n'}) / "x.csv"
    assert list(open_table(path).rows(["b", "a"])) == [(2, ("x", "1\n\n2")), (5, (None, None)), (6, ("y", "3"))]


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    path = write(tmp_path, {"x.parquet": "PAR1"}) / "x.parquet"
    with pytest.raises(InputError, match=r"x\.parquet: parquet files need pyarrow.*pip install pyarrow"):
        open_table(path)


def test_columns_are_found_whatever_their_case(tmp_path):
    table = open_table(write(tmp_path, {"x.csv": "Title,title,Tags\n"}) / "x.csv")
    assert (table.column("title"), table.column("Title"), table.column("tags")) == ("title", "Title", "Tags")
    with pytest.raises(DataError, match="several columns 'TITLE'"):
        table.column("TITLE")
    with pytest.raises(DataError, match="has no column 'name'; found Title, title, Tags"):
        table.column("name")


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["plain.csv", "json.csv", "excel.csv", "tabs.tsv", "lines.jsonl"]),
    st.lists(st.tuples(st.integers(0, 150), st.binary(max_size=3)), max_size=4),
)
def test_any_change_of_bytes_gives_a_dataset_or_one_line(tmp_path, name, changes):
    content = bytearray(FILES[name].encode())
    for place, patch in changes:
        content[place : place + len(patch)] = patch
    path = write(tmp_path / "raw", {name: bytes(content)}) / name
    error = ""
    try:
        raw = read_single_table(path, COLUMNS)
    except DataError as refusal:
        error = str(refusal)
    if error:
        assert "\n" not in error
        assert str(path) in error
    else:
        assert len(raw.train.titles.column) > 0
        assert len(raw.test.titles.column) > 0
