"""Predictions: ranking and its tie rule, files in and out, and everything a bad file may hold."""

import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.data import TopK
from xcbench.data.npz import read_npz
from xcbench.errors import DataError, InputError, XCBenchError


def top_k(*rows, k=None):
    """Rows of (label, score) pairs, best first."""
    k = max(map(len, rows)) if k is None else k
    indices, scores = np.full((len(rows), k), -1, np.int32), np.full((len(rows), k), -np.inf, np.float32)
    for i, row in enumerate(rows):
        for place, (label, score) in enumerate(row):
            indices[i, place], scores[i, place] = label, score
    return TopK(indices, scores)


def same(a, b):
    return a.indices.tolist() == b.indices.tolist() and a.scores.tolist() == b.scores.tolist()


RAGGED = sp.csr_array(([0.5, 0.9, 0.5, 0.0, -1.0], [4, 2, 0, 3, 1], [0, 3, 3, 5]), shape=(3, 5))
UNRANKED = np.array([[4, 2, 0], [-1, -1, -1], [-1, 1, 3]])
UNRANKED_SCORES = np.array([[0.5, 0.9, 0.5], [7, 7, 7], [9, -1, 0]])
RANKED = top_k([(2, 0.9), (0, 0.5), (4, 0.5)], [], [(3, 0.0), (1, -1.0)])


def test_higher_scores_first_then_smaller_labels():
    assert same(TopK.from_csr(RAGGED), RANKED)
    assert same(TopK.from_csr(RAGGED, k=2), RANKED.cut(2))
    assert RAGGED.indices.tolist() == [4, 2, 0, 3, 1]  # the caller's matrix is not sorted behind their back
    assert same(TopK.of(UNRANKED, UNRANKED_SCORES), RANKED)


@given(st.lists(st.dictionaries(st.integers(0, 30), st.sampled_from([0.0, 0.5, 2.0])), min_size=1), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_ranking_equals_sorting_each_row(rows, k):
    expected = top_k(*[sorted(row.items(), key=lambda pair: (-pair[1], pair[0]))[:k] for row in rows])
    indptr = np.cumsum([0, *map(len, rows)])
    labels = np.array([label for row in rows for label in row], np.int32)
    scores = np.array([score for row in rows for score in row.values()], np.float32)
    assert same(TopK.from_csr(sp.csr_array((scores, labels, indptr), shape=(len(rows), 31)), k), expected)


def test_scores_are_ranked_in_the_precision_they_come_in(tmp_path):
    close = sp.csr_array(np.array([[1.0, 1.0 + 1e-12]]))
    ranked = TopK.from_csr(close)
    assert ranked.indices.tolist() == [[1, 0]]
    assert TopK.of(np.array([[0, 1]]), np.array([[1.0, 1.0 + 1e-12]])).indices.tolist() == [[1, 0]]
    ranked.save(tmp_path / "p.npz")  # where they are ties, as float32
    assert same(TopK.load(tmp_path / "p.npz"), ranked)


def test_entries_of_one_label_are_one_prediction():
    assert same(TopK.from_csr(sp.csr_array(([1.0, 2.0], [3, 3], [0, 2]), shape=(1, 5))), top_k([(3, 3.0)]))


def test_nan_is_refused_with_its_point():
    with pytest.raises(InputError, match="point 1 has a score that is not a number"):
        TopK.from_csr(sp.csr_array(([1.0, np.nan], [0, 1], [0, 1, 2]), shape=(2, 2)))
    with pytest.raises(InputError, match="point 1 has a score that is not a number"):
        TopK.of(np.array([[0], [1]]), np.array([[1.0], [np.nan]]))


def test_a_label_twice_is_refused():
    with pytest.raises(InputError, match="point 0 lists a label twice"):
        TopK.of(np.array([[3, 1, 3]]), np.array([[0.1, 0.2, 0.3]]))


def test_infinite_scores_have_their_places():
    assert TopK.of(np.array([[0, -1, 1, 2]]), np.array([[-np.inf, 5, np.inf, 0]])).indices.tolist() == [[1, 2, 0, -1]]


def test_both_file_forms_say_the_same(tmp_path):
    RANKED.save(tmp_path / "arrays.npz")
    sp.save_npz(tmp_path / "csr.npz", RAGGED)
    sp.save_npz(tmp_path / "old.npz", sp.csr_matrix(RAGGED), compressed=False)
    np.savez(tmp_path / "foreign.npz", indices=UNRANKED, scores=UNRANKED_SCORES)
    for path in sorted(tmp_path.glob("*.npz")):
        assert same(TopK.load(path, shape=(3, 5)), RANKED), path
        assert same(TopK.load(path, k=2), RANKED.cut(2)), path


def test_saving_is_atomic_and_readable_by_numpy(tmp_path, monkeypatch):
    RANKED.save(tmp_path / "deep" / "p.npz")
    with np.load(tmp_path / "deep" / "p.npz", allow_pickle=False) as stored:
        assert stored["indices"].tolist() == RANKED.indices.tolist()
        assert stored["scores"].dtype == np.float32

    def fail(*arguments, **keywords):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space"):
        top_k([(0, 1.0)]).save(tmp_path / "deep" / "p.npz")
    assert same(TopK.load(tmp_path / "deep" / "p.npz"), RANKED)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["p.npz"]


def test_batches_concatenate():
    assert same(TopK.concatenate([RANKED.rows(slice(0, 1)).cut(3), RANKED.rows(slice(1, 3)).cut(2)]), RANKED)


def test_to_csr_and_back():
    assert same(TopK.from_csr(RANKED.to_csr(5)), RANKED)


def write(tmp_path, **arrays):
    np.savez(tmp_path / "p.npz", **arrays)
    return tmp_path / "p.npz"


TWO, TWO_SCORES = np.array([[0, 1]]), np.array([[0.2, 0.1]])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"a": TWO}, "expected a csr matrix .* or arrays 'indices' and 'scores', got a"),
        ({}, "got no array"),
        ({"indices": TWO, "scores": TWO_SCORES[:, :1]}, "of one shape"),
        ({"indices": TWO[0], "scores": TWO_SCORES[0]}, "of one shape"),
        ({"indices": TWO * 1.0, "scores": TWO_SCORES}, "expected integers and numbers"),
        ({"indices": TWO, "scores": np.array([["a", "b"]])}, "expected integers and numbers"),
        ({"indices": TWO + 9, "scores": TWO_SCORES}, "label ids from 0 to 8 .*, got 10"),
        ({"indices": TWO - 2, "scores": TWO_SCORES}, "label ids from 0 to 8 .*, got -2"),
        ({"indices": np.vstack([TWO, TWO]), "scores": np.vstack([TWO_SCORES] * 2)}, "predictions for 1 points, got 2"),
        ({"indices": TWO, "scores": TWO_SCORES * np.nan}, "point 0 has a score that is not a number"),
        ({"indices": TWO * 0, "scores": TWO_SCORES}, "lists a label twice"),
        ({"indices": np.array([[{}, {}]], object), "scores": TWO_SCORES}, "pickled objects"),
        ({"indptr": np.array([0, 1]), "indices": np.array([0])}, "needs data, shape too"),
        ({"format": b"csc", "indptr": np.array([0, 1])}, "expected a csr matrix, got format"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path, arrays, complaint):
    path = write(tmp_path, **arrays)
    with pytest.raises(DataError, match=complaint) as caught:
        TopK.load(path, shape=(1, 9))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("indptr", [0, 2, 1]),
        ("indptr", [0, 1]),
        ("indptr", [0.0, 1.0, 2.0]),
        ("indices", [0, 7]),
        ("indices", [0, -1]),
        ("indices", [0]),
        ("data", [1.0]),
        ("data", [1j, 1]),
        ("shape", [2]),
        ("shape", [-2, 5]),
        ("shape", [2.0, 5.0]),
        ("shape", [10**15, 5]),
        ("shape", [2, 10**15]),
    ],
)
def test_a_damaged_csr_is_a_data_error(tmp_path, part, value):
    good = {"format": b"csr", "data": [1.0, 2.0], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 5]}
    TopK.load(write(tmp_path, **good))
    with pytest.raises(DataError):
        TopK.load(write(tmp_path, **(good | {part: value})))


def test_a_matrix_of_another_shape_says_what_was_expected(tmp_path):
    sp.save_npz(tmp_path / "p.npz", RAGGED)
    with pytest.raises(DataError, match=r"expected a 3 x 6 matrix of scores, got \(3, 5\)"):
        TopK.load(tmp_path / "p.npz", shape=(3, 6))


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    path = tmp_path / "p.npz"
    np.savez(path, indices=np.array([Trap()], object), scores=TWO_SCORES)
    with pytest.raises(DataError, match="pickled objects"):
        TopK.load(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="not a readable npz"):
        TopK.load(path)
    assert not (tmp_path / "sprung").exists()


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        TopK.load(tmp_path / "nowhere.npz")


def test_a_huge_claim_allocates_nothing(tmp_path):
    """A header of a terabyte in a file of a few hundred bytes."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (250000000000, 1), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        archive.writestr("scores.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match="not what it holds"):
        TopK.load(tmp_path / "p.npz")


def complaint_of(path):
    try:
        TopK.load(path, shape=(3, 5))
    except XCBenchError as error:
        return str(error)
    return ""


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_damaged_files_give_predictions_or_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    if data.draw(st.booleans()):
        RANKED.save(path)
    else:
        sp.save_npz(path, RAGGED)
    with zipfile.ZipFile(path) as archive:
        members = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    for _ in range(data.draw(st.integers(1, 4))):
        damaged = members[data.draw(st.sampled_from(sorted(members)))]
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with zipfile.ZipFile(path, "w") as archive:  # anew, so that the checksums are right and the damage gets through
        for name, content in members.items():
            archive.writestr(name, bytes(content))
    assert "\n" not in complaint_of(path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert "not a readable npz" in complaint_of(path)


@pytest.mark.parametrize("starts", [[0, 2, 2**63 - 1, -(2**63) + 5], [0, 2, 4, 9], [-1, 2, 4, 5]])
def test_rows_outside_of_the_scores_are_refused(tmp_path, starts):
    """Differences of the first overflow into ascending ones, on which scipy would go on."""
    arrays = {"data": np.ones(5), "indices": np.arange(5), "indptr": np.array(starts), "shape": np.array([3, 5])}
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(DataError, match=r"p\.npz.*rows that start from 0 to 5"):
        TopK.load(tmp_path / "p.npz")


def test_any_bytes_are_a_data_error(tmp_path):
    for content in (b"", b"PK", b"\x93NUMPY", b"PK\x05\x06" + bytes(18), bytes(100)):
        (tmp_path / "p.npz").write_bytes(content)
        with pytest.raises(DataError):
            TopK.load(tmp_path / "p.npz")


def test_read_npz_keeps_every_array(tmp_path):
    path = write(tmp_path, a=np.arange(3), b=np.zeros((2, 0)), c=np.float32(4))
    arrays = read_npz(path)
    assert {name: array.shape for name, array in arrays.items()} == {"a": (3,), "b": (2, 0), "c": ()}
