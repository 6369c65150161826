import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xcbench.data import TextColumn, TopK
from xcbench.errors import DataError
from xcbench.plugins import codec
from xcbench.plugins.codec import load_values, save_values

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_json_values_come_back_equal(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("values")
    save_values(folder, values)
    assert load_values(folder) == values


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(hnp.scalar_dtypes().filter(lambda d: d.kind in "biufc"), hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back_bit_by_bit(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("values")
    save_values(folder, {"a": array})
    loaded = load_values(folder)["a"]
    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape
    assert loaded.tobytes() == array.tobytes()


@pytest.mark.parametrize("mapped_from", [0, 1 << 30])
def test_every_kind_comes_back_with_its_type(tmp_path, monkeypatch, mapped_from):
    monkeypatch.setattr(codec, "MAPPED_FROM", mapped_from)
    matrix = sp.random_array((5, 7), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    predictions = TopK.of(np.array([[2, 0, -1]]), np.array([[0.5, 0.9, 0.0]]))
    half = torch.arange(6, dtype=torch.float32).reshape(2, 3).to(torch.bfloat16).T
    save_values(
        tmp_path,
        {
            "matrix": matrix,
            "predictions": predictions,
            "titles": TextColumn.of(["a", "", "ü"]),
            "weights": {"layer.weight": torch.ones(2, 3), "half": half},
            "list": [np.arange(3), 1.5, None],
            "empty": np.zeros((0, 4), np.int32),
            "scalar": np.float32(0.25),
            "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        },
    )
    loaded = load_values(tmp_path)
    assert isinstance(loaded["matrix"], sp.csr_array)
    assert (loaded["matrix"] != matrix).nnz == 0
    assert loaded["predictions"].indices.tolist() == predictions.indices.tolist()
    assert list(loaded["titles"]) == ["a", "", "ü"]
    assert torch.equal(loaded["weights"]["layer.weight"], torch.ones(2, 3))
    assert loaded["weights"]["half"].dtype == torch.bfloat16
    assert torch.equal(loaded["weights"]["half"], half)
    assert loaded["list"][0].tolist() == [0, 1, 2]
    assert loaded["list"][1:] == [1.5, None]
    assert loaded["empty"].shape == (0, 4)
    assert loaded["scalar"] == 0.25
    assert loaded["columns"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_changing_a_mapped_array_leaves_the_file_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "MAPPED_FROM", 0)
    save_values(tmp_path, {"a": np.zeros(8)})
    load_values(tmp_path)["a"][:] = 1
    assert load_values(tmp_path)["a"].sum() == 0


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), sp.coo_array((2, 2))])
def test_what_cannot_be_kept_is_named(tmp_path, value):
    with pytest.raises(TypeError, match=r"model\.thing"):
        save_values(tmp_path, {"model": {"thing": value}})


def test_pickles_are_never_loaded(tmp_path):
    save_values(tmp_path, {"a": np.zeros(3)})
    np.save(tmp_path / "0.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(DataError, match=tmp_path.name):
        load_values(tmp_path)


@pytest.mark.parametrize("damage", ["shorten", "remove", "tree"])
def test_damage_is_noticed(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(codec, "MAPPED_FROM", 0)
    save_values(tmp_path, {"a": np.zeros(100)})
    if damage == "shorten":
        (tmp_path / "0.npy").write_bytes((tmp_path / "0.npy").read_bytes()[:300])
    elif damage == "remove":
        (tmp_path / "0.npy").unlink()
    else:
        (tmp_path / "values.json").write_text('{"a": {"array"')
    with pytest.raises(DataError):
        load_values(tmp_path)


def test_a_tree_cannot_name_files_elsewhere(tmp_path):
    (tmp_path / "inside").mkdir()
    np.save(tmp_path / "secret.npy", np.ones(3))
    (tmp_path / "inside" / "values.json").write_text('{"a": {"array": "../secret.npy"}}')
    with pytest.raises(DataError):
        load_values(tmp_path / "inside")
