"""The compiled parser against hand-made files, Python's own float and scikit-learn's reader."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from xcbench.data.sparse_text import read_matrix, read_pairs, read_points
from xcbench.errors import DataError


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "matrix.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_combined_file_by_hand(file):
    parsed = read_points(file("4 5 3\n0,2 1:0.5 4:-2\n 0:1e-1\n1\n\n"))
    assert parsed.features.toarray().tolist() == [
        [0, 0.5, 0, 0, -2],
        [np.float32(0.1), 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert parsed.labels.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert (parsed.header.rows, parsed.header.columns) == (4, (5, 3))


@pytest.mark.parametrize(
    "content",
    [
        "2 3\n0:1 2:2\n1:3\n",
        "2 3\n0:1 2:2\n1:3",
        "2 3\r\n0:1 2:2\r\n1:3\r\n",
        "2\t3\n0:1\t2:2 \n \t1:3\t\n",
        "2 3\n0:1 2:2\n1:3\n\n\n",
        "0:1 2:2\n1:3\n",
    ],
)
def test_matrix_layouts_that_mean_the_same(file, content):
    assert read_matrix(file(content)).features.toarray().tolist() == [[1, 0, 2], [0, 3, 0]]


def test_without_a_header_every_line_is_a_row_and_the_largest_id_gives_the_width(file):
    parsed = read_matrix(file("\n3:1\n\n"))
    assert parsed.header is None
    assert parsed.features.shape == (3, 4)


def test_without_a_header_points_are_svmlight(file):
    parsed = read_points(file("# made by hand\n2,0 1:1\n\n7:2 # no label\n1, 3 0:1\n"))
    assert parsed.labels.toarray().tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    assert parsed.features.indices.tolist() == [1, 7, 0]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_every_float32_survives_its_own_text(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "matrix.txt"
    path.write_text(" ".join(f"{i}:{np.float32(value)!s}" for i, value in enumerate(values)))
    read = read_matrix(path).features
    assert read.data.tolist() == values


@pytest.mark.parametrize(
    "text",
    ["1", "+1.", ".5", "-0.25", "1e3", "1E-3", "12345678901234567890123", "0.00000000000000000000000001", "0e99999"],
)
def test_numbers_as_python_reads_them(file, text):
    assert read_matrix(file(f"0:{text}\n")).features.data[0] == np.float32(float(text))


def test_same_content_as_scikit_learn(file):
    rng = np.random.default_rng(3)
    lines = []
    for _ in range(300):
        ids = np.sort(rng.choice(50, rng.integers(1, 9), replace=False))
        labels = rng.choice(20, rng.integers(1, 4), replace=False)
        lines.append(",".join(map(str, labels)) + " " + " ".join(f"{i}:{rng.normal():.7g}" for i in ids))
    path = file("\n".join(lines) + "\n")
    ours = read_points(path)
    X, labels = load_svmlight_file(str(path), multilabel=True, zero_based=True, dtype=np.float32)
    assert abs(ours.features - X).max() == 0
    assert (ours.labels.toarray() == MultiLabelBinarizer(classes=range(20)).fit_transform(labels)).all()


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", None, "empty"),
        ("1 2 3\n0 0:1\n", 1, "expected a header 'rows columns', got 3 numbers"),
        ("2 3\n0:1\n", 1, "declares 2 rows, but 1 lines"),
        ("1 3\n0:1\n1:1\n", 1, "declares 1 rows, but 2 lines"),
        ("10000000000 3\n0:1\n", 1, "declares 10,000,000,000 rows, but 1 lines"),
        ("1 10000000000\n0:1\n", 1, "10,000,000,000 columns"),
        ("2 3\n0:1\n3:1\n", 3, "id '3:1' is out of range: the header declares 3"),
        ("0:1\n99999999999999999999:1\n", 2, "ids are at most"),
        ("0:1\n1:1 2:\n", 2, "expected a finite number after 'id:', got '2:'"),
        ("0:1\n1:1 2\n", 2, "expected 'id:value', got '2'"),
        ("0:1\nx:1\n", 2, "expected a whole number as id, got 'x:1'"),
        ("0:1\n-1:1\n", 2, "expected a whole number as id, got '-1:1'"),
        ("0:1\n1:1.5.2\n", 2, "finite number"),
        ("0:1\n1:1e\n", 2, "finite number"),
        ("0:nan\n", 1, "finite number"),
        ("0:inf\n", 1, "finite number"),
        ("0:1e39\n", 1, "finite number"),
        ("0:1x\n", 1, "finite number"),
        (b"0:1\n\xff\xfe:1\n", 2, "whole number as id"),
    ],
)
def test_a_bad_matrix_is_one_clear_line(file, content, line, message):
    path = file(content)
    with pytest.raises(DataError) as caught:
        read_matrix(path)
    assert message in str(caught.value)
    assert caught.value.line == line
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("1 2\n0 0:1\n", 1, "expected a header 'points features labels', got 2 numbers"),
        ("1 2 3\n3 0:1\n", 2, "out of range"),
        ("1 2 3\n1,x 0:1\n", 2, "whole number as id"),
        ("1 2 3\n1, 0:1\n", 2, "whole number as id"),
        ("1 2 3\n1,\n", 2, "whole number as id"),
        ("1 2 3\n,1 0:1\n", 2, "whole number as id"),
        ("1 2 3\n1.0 0:1\n", 2, "whole number as id"),
        ("1 2 3\n1;2 0:1\n", 2, "whole number as id"),
        ("1 2 3\n1 0:1 # no comments here\n", 2, "whole number as id"),
        ("1 2 3\n1 0:1\n1\n", 1, "declares 1 rows, but 2 lines"),
    ],
)
def test_a_bad_point_is_one_clear_line(file, content, line, message):
    with pytest.raises(DataError) as caught:
        read_points(file(content))
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_header_never_makes_anything_large(file):
    path = file("9" * 15 + " 2000000000 2000000000\n" + "0 0:1\n" * 100)
    tracemalloc.start()
    with pytest.raises(DataError):
        read_points(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_pairs_by_hand(file):
    assert read_pairs(file("0 1\n\n 2\t0 \r\n"), 3, 2).tolist() == [[0, 1], [2, 0]]
    assert read_pairs(file(""), 3, 2).shape == (0, 2)


@pytest.mark.parametrize("content", ["0\n", "0 1 2\n", "0 x\n", "3 0\n", "0 2\n", "-1 0\n", "0:1\n", "0.5 1\n"])
def test_a_bad_pair_is_one_clear_line(file, content):
    with pytest.raises(DataError, match="expected") as caught:
        read_pairs(file("0 0\n" + content), 3, 2)
    assert caught.value.line == 2
