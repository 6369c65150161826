"""Files that were made to do harm: one clear line for each, and no memory for what they claim."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcbench.data.npz import csr_from_arrays, read_npz
from xcbench.errors import DataError

MUCH = 4 << 20
"""Bytes: more than reading any of these small files should take."""


def npy(descr="'<f4'", shape="(2,)", body=bytes(8), version=1, header=None):
    if header is None:
        header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + body


def archive_of(content, path, name="data.npy", packing=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr(name, content)
    return path


def refusal(path):
    """The one line that a file is refused with, after little memory was taken."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as found:
            read_npz(path)
        assert tracemalloc.get_traced_memory()[1] < MUCH
    finally:
        tracemalloc.stop()
    message = str(found.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_what_numpy_writes_is_read(tmp_path):
    arrays = {
        "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns_first": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "swapped": np.arange(3, dtype=">i8"),
        "text": np.array("csr"),
        "none": np.zeros((4, 0), np.int32),
        "scalar": np.float64(2.5),
        "flags": np.array([True, False]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = read_npz(tmp_path / "a.npz")
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert np.array_equal(found[name], array)
            assert found[name].dtype.isnative


@pytest.mark.parametrize("numbers", [np.float16, np.float32, ">f8", np.int64, bool])
@pytest.mark.parametrize("ids", [np.uint8, np.int32, ">i4", np.uint64])
def test_a_matrix_may_be_of_any_numbers(tmp_path, numbers, ids):
    M = sp.csr_array(np.array([[0, 1, 1], [1, 0, 0]], np.float64))
    parts = {"data": M.data.astype(numbers), "indices": M.indices.astype(ids), "indptr": M.indptr.astype(ids)}
    np.savez(tmp_path / "a.npz", shape=M.shape, **parts)
    found = csr_from_arrays(read_npz(tmp_path / "a.npz"), tmp_path / "a.npz")
    assert np.array_equal(found.toarray(), M.toarray())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy(shape="(250000000000,)"), "not what it holds"),
        (npy(shape="(250000000000, 0)", body=b""), "not what it holds"),
        (npy("'<U0'", "(250000000000,)", b""), "neither numbers nor text"),
        (npy("'|V0'", "(250000000000,)", b""), "neither numbers nor text"),
        (npy("'|S2000000000'", "(1,)"), "not what it holds"),
        (npy(shape="(-2, -1)"), "not what it holds"),
        (npy(shape="(-2,)"), "not what it holds"),
        (npy(shape="(0, -1)", body=b""), "not what it holds"),
        (npy(shape="(10**30, 0)", body=b""), "not an array"),
        (npy(shape=f"({10**30}, 0)", body=b""), "not what it holds"),
        (npy(shape="(2.0,)"), "not an array"),
        (npy(shape="2"), "not an array"),
        (npy("'|O'", "(1,)"), "pickled objects"),
        (npy("[('a', '|O')]", "(1,)"), "pickled objects"),
        (npy("[('a', '<f4')]", "(2,)"), "neither numbers nor text"),
        (npy("'<M8[s]'", "(1,)"), "neither numbers nor text"),
        (npy("'nonsense'"), "not an array"),
        (npy("('<f4', (1000000000,))", "(1,)"), "not an array"),
        (npy(header="{'descr': '<f4'}"), "not an array"),
        (npy(header="__import__('os').getcwd()"), "not an array"),
        (npy(header="(" * 9000), "not an array"),
        (npy(header="'\\x00\n' \n not python"), "not an array"),
        (npy(header="{" + " " * 20_000 + "}"), "not an array"),
        (npy(version=9), "format version"),
        (b"", "not an array"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "not an array"),
        (b"a pickle, perhaps", "not an array"),
    ],
)
def test_a_crafted_array_is_refused(tmp_path, content, says):
    assert says in refusal(archive_of(content, tmp_path / "a.npz"))


def test_an_odd_name_does_not_break_the_line(tmp_path):
    assert "not an array" in refusal(archive_of(b"", tmp_path / "a.npz", name="one\ntwo\x1b.npy"))


def with_sizes(path, size):
    """Write another unpacked size into both directories of a zip with one member."""
    content = bytearray(path.read_bytes())
    content[22:26] = struct.pack("<I", size)
    central = content.index(b"PK\x01\x02")
    content[central + 24 : central + 28] = struct.pack("<I", size)
    path.write_bytes(content)
    return path


def test_a_claim_of_the_archive_is_refused(tmp_path):
    huge = npy(shape="(900000000,)", body=bytes(8))
    path = archive_of(huge, tmp_path / "a.npz", packing=zipfile.ZIP_DEFLATED)
    claimed = len(huge) - 8 + 4 * 900_000_000
    assert f"claims to unpack to {claimed:,} bytes" in refusal(with_sizes(path, claimed))


def test_a_claim_that_deflate_might_keep_is_found_out_where_the_bytes_end(tmp_path):
    held = npy(shape="(5000,)", body=bytes(8))
    path = archive_of(held, tmp_path / "a.npz", packing=zipfile.ZIP_DEFLATED)
    assert "not a readable npz" in refusal(with_sizes(path, len(held) - 8 + 20_000))


def test_a_long_header_is_not_unpacked(tmp_path):
    """Well packed, so that the file may claim it, and read whole by numpy before it looks at the length."""
    content = npy(version=2, header=" " * (64 << 20), body=b"")
    assert "not an array" in refusal(archive_of(content, tmp_path / "a.npz", packing=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_packs_better_than_deflate_is_refused(tmp_path, packing):
    content = npy(shape="(8000000,)", body=bytes(32_000_000))
    path = archive_of(content, tmp_path / "a.npz", packing=packing)
    assert "claims to unpack" in refusal(path)
    small = archive_of(npy(), tmp_path / "b.npz", packing=packing)
    assert "packed in a way" in refusal(small)


def test_many_names_for_one_content_are_counted(tmp_path):
    """Each alone is small enough; all point to the same bytes."""
    content = npy(shape="(1000000,)", body=bytes(4_000_000))
    path = archive_of(content, tmp_path / "a.npz", packing=zipfile.ZIP_DEFLATED)
    packed = path.read_bytes()
    start, end = packed.index(b"PK\x01\x02"), packed.index(b"PK\x05\x06")
    entry, count = packed[start:end], 3000
    tail = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, len(entry) * count, start, 0)
    path.write_bytes(packed[:start] + entry * count + tail)
    assert "claims to unpack" in refusal(path)


def test_a_name_that_is_not_text_is_refused(tmp_path):
    path = archive_of(npy(), tmp_path / "a.npz", name="é.npy")
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    assert "not a readable npz" in refusal(path)


def path_content(path):
    with zipfile.ZipFile(path) as archive:
        return archive.read("data.npy")


def arrays_or_refusal(path):
    """What is read; nothing where the file is refused in one line."""
    message = ""
    try:
        return read_npz(path)
    except DataError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return {}


shapes = st.lists(st.integers(-3, 5) | st.sampled_from([2**31, 2**62, 2**63, 2**64, 10**30]), max_size=4).map(
    lambda numbers: repr(tuple(numbers))
)
descriptions = st.sampled_from(
    ["<f4", ">i8", "|b1", "|O", "|V0", "<U3", "<U0", "<M8[ns]", "<c16", "|S9", "f2", "x", ""]
)


@given(
    shape=shapes | st.text(max_size=12),
    descr=descriptions.map(repr) | st.text(max_size=12),
    body=st.binary(max_size=40),
    version=st.integers(0, 4),
    packing=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
@settings(deadline=None, max_examples=300)
def test_any_header_gives_an_array_of_what_is_there_or_a_data_error(
    tmp_path_factory, shape, descr, body, version, packing
):
    path = tmp_path_factory.getbasetemp() / "header.npz"
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode().decode("latin1")
    archive_of(npy(header=text, body=body, version=version), path, packing=packing)
    array = arrays_or_refusal(path).get("data")
    if array is not None:
        assert array.tobytes() == np.load(io.BytesIO(path_content(path))).astype(array.dtype).tobytes()
        assert array.nbytes == len(body)


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_any_damage_to_the_archive_gives_arrays_or_a_data_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged archive.npz"
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(path, a=np.arange(5), b=np.zeros((2, 3), np.float32))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    arrays_or_refusal(path)
