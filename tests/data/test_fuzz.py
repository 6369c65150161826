"""Any bytes in any file of any form give a dataset or a `DataError`, never anything else."""

import gzip
import io
import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.test_readers import COMBINED, CSV, JSON, LINES, SPLIT, write, zipped
from xcbench.data.assemble import assemble
from xcbench.data.dataset import Dataset
from xcbench.data.readers import read_raw
from xcbench.errors import DataError


def packed(matrix):
    out = io.BytesIO()
    sp.save_npz(out, sp.csr_array(np.array(matrix, np.float32)))
    return out.getvalue()


FILTERS = {"filter_labels_train.txt": "0 0\n", "tst_filter_labels.txt": "1 2\n"}
NPZ = {
    "X.trn.npz": packed([[1, 0], [0, 1], [1, 1]]),
    "Y.trn.npz": packed([[1, 0], [0, 1], [1, 1]]),
    "X.tst.npz": packed([[1, 0]]),
    "Y.tst.npz": packed([[0, 1]]),
    "Z.npz": packed([[1, 0], [0, 1]]),
}
MANIFEST = {"manifest.json": json.dumps({"name": "x", "text": {"min_count": 1}, "propensity": {"A": 1, "B": 2}})}
FORMS = {
    "split": SPLIT | FILTERS,
    "combined": COMBINED | FILTERS,
    "svmlight": {"train.svm": "0,2 1:0.6 3:0.8\n1 2:1\n", "test.svm": "1 1:1\n"},
    "lines": LINES | {name: SPLIT[name] for name in ("trn_X_Y.txt", "tst_X_Y.txt")},
    "json": JSON | FILTERS | MANIFEST,
    "json.gz": {f"{name}.gz": gzip.compress(text.encode()) for name, text in JSON.items()},
    "csv": CSV,
    "npz": NPZ,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-3, 5) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
json_points = st.dictionaries(
    st.sampled_from(["title", "content", "target_ind", "target_rel", "uid", "name", "files", "sizes", "text"]),
    json_values | st.text() | st.lists(st.integers(0, 2), max_size=3),
)
json_lines = st.lists(json_points | json_values, max_size=5).map(
    lambda values: "\n".join(json.dumps(value) for value in values).encode()
)
number_soup = st.text("0123456789:,. \n\r\t-+eE#naif", max_size=80).map(str.encode)
anything = st.binary(max_size=120) | number_soup | json_lines | st.text(max_size=60).map(str.encode)


@st.composite
def damaged(draw, content):
    """Something in the place of a file: anything at all, or the file with a piece cut out or put in."""
    if draw(st.booleans()):
        return draw(anything)
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 20)))
    return content[:start] + draw(anything) + content[end:]


def read_or_refuse(path):
    try:
        dataset = assemble(read_raw(path), "fuzzed")
    except DataError:
        return
    check(dataset)


def check(dataset: Dataset):
    labels, features = dataset.label_count, dataset.feature_count
    for split in (dataset.train, dataset.test):
        assert split.X.shape == (len(split), features)
        assert split.Y.shape == (len(split), labels)
        assert split.titles is None or len(list(split.titles)) == len(split)
        for matrix in (split.X, split.Y):
            matrix.check_format(full_check=True)
            assert np.isfinite(matrix.data).all()
            assert matrix.dtype == np.float32
        assert (split.Y.data > 0).all()
        assert ((split.filter >= 0) & (split.filter < (len(split), labels))).all()
    assert dataset.Z is None or dataset.Z.shape == (labels, features)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_any_bytes_in_any_file(form, tmp_path_factory, data):
    files = FORMS[form]
    name = data.draw(st.sampled_from(sorted(files)))
    content = files[name] if isinstance(files[name], bytes) else files[name].encode()
    if name.endswith(".gz") and data.draw(st.booleans()):
        new = gzip.compress(data.draw(damaged(gzip.decompress(content))))
    else:
        new = data.draw(damaged(content))
    read_or_refuse(write(tmp_path_factory.mktemp("fuzz"), files | {name: new}))


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_any_bytes_as_a_zip(tmp_path_factory, data):
    path = zipped(tmp_path_factory.mktemp("fuzz") / "data.zip", {f"in/{name}": text for name, text in SPLIT.items()})
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    read_or_refuse(path)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_scipy_matrix(tmp_path_factory, data):
    """Arrays of the right names with any content: what scipy would happily build a broken matrix of."""
    numbers = st.lists(st.integers(-2, 5) | st.integers(-(2**63), 2**63 - 1), max_size=5)
    arrays = {
        "format": np.array(data.draw(st.sampled_from([b"csr", b"csc", b"coo", b"bsr", b"dia", b"x"]))),
        "shape": np.array(data.draw(numbers | st.just([3, 2])), np.int64),
        "data": data.draw(
            st.sampled_from([np.ones(3), np.array([np.nan, 1, 1e300]), np.ones(2, complex), np.array(["a"])])
        ),
        "indices": np.array(data.draw(numbers | st.just([0, 1, 0])), np.int64),
        "indptr": np.array(data.draw(numbers | st.just([0, 1, 2, 3])), np.int64),
        "row": np.array(data.draw(numbers), np.int64),
        "col": np.array(data.draw(numbers), np.int64),
    }
    kept = data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=4, unique=True))
    folder = write(tmp_path_factory.mktemp("fuzz"), NPZ)
    np.savez(folder / "X.trn.npz", **{name: arrays[name] for name in kept})
    read_or_refuse(folder)
