"""Reading `.npz` files from elsewhere: nothing in them is ever executed, and a bad file gives one clear error line."""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.errors import DataError, InputError

_MAX_DEFLATE_RATIO = 1100
"""Unpacked over packed size: deflate packs no better. Other methods do, but numpy never uses them."""
_MAX_HEADER_BYTES = 1 << 14
"""numpy accepts no header of more than 10,000 bytes, but reads a longer one into memory before it refuses."""

Arrays = dict[str, npt.NDArray[Any]]


def read_npz(path: Path) -> Arrays:
    """Return every array of an npz file by its name.

    Raises `DataError` for pickled objects, and for arrays that claim to be larger than the file can hold.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")

    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            claimed = sum(member.file_size for member in members)
            if claimed > _max_unpacked(path):
                raise DataError(f"claims to unpack to {claimed:,} bytes", path)

            arrays = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                arrays[name] = _read_member(archive, member, path)
            return arrays
    except DataError:
        raise
    except Exception as error:  # a damaged directory fails in many ways, from a bad name to a bad checksum
        raise DataError(f"not a readable npz file ({_one_line(error)})", path) from None


def _max_unpacked(path: Path) -> int:
    return _MAX_DEFLATE_RATIO * path.stat().st_size


def _read_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    path: Path,
) -> npt.NDArray[Any]:
    name = repr(member.filename)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{name} is packed in a way that numpy does not use", path)

    with archive.open(member) as stream:
        head = io.BytesIO(stream.read(_MAX_HEADER_BYTES))
        try:
            shape, dtype = _read_header(head)
        except Exception as error:  # the header is parsed as a Python literal, which fails in many ways, too
            raise DataError(f"{name} is not an array ({_one_line(error)})", path) from None

        if dtype.hasobject:
            raise DataError(f"{name} holds pickled objects, which could run code and are never loaded", path)
        if dtype.kind not in "biufcSU" or not dtype.itemsize:
            raise DataError(f"{name} holds {dtype}, which is neither numbers nor text", path)
        # Checked before numpy allocates, since a short file may claim any size.
        content_bytes = member.file_size - head.tell()
        if not _is_possible(shape, content_bytes, dtype.itemsize, _max_unpacked(path)):
            raise DataError(f"{name} claims {dtype}{list(shape)}, which is not what it holds", path)

        stream.seek(0)
        array = np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        return array.astype(dtype.newbyteorder("="), copy=False)


def _is_possible(
    shape: tuple[int, ...],
    content_bytes: int,
    itemsize: int,
    max_rows: int,
) -> bool:
    """Whether an array of this shape has exactly this many bytes, and not too many rows.

    An array of shape [n, 0] needs no bytes at all, but code that makes something per row would need memory for n.
    """
    if min(shape, default=0) < 0:
        return False
    if math.prod(shape) * itemsize != content_bytes:
        return False
    return math.prod(max(size, 1) for size in shape) <= max_rows


def _read_header(stream: io.BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def csr_from_arrays(arrays: Arrays, path: Path) -> sp.csr_array:
    """Return the matrix of a file that `scipy.sparse.save_npz` wrote in csr form; rows are sorted by column.

    Raises `DataError` where the arrays are not such a matrix. `path` names the file in the message.
    """
    _check_csr_arrays(arrays, path)

    data = arrays["data"]
    if data.dtype == np.float16:
        data = data.astype(np.float32)  # scipy has no sparse matrices of float16
    entries = (data, arrays["indices"], arrays["indptr"])
    rows, columns = arrays["shape"].tolist()
    try:
        matrix = sp.csr_array(entries, shape=(rows, columns))
        matrix.check_format(full_check=True)
        matrix.sum_duplicates()
    except (ValueError, OverflowError) as error:
        raise DataError(f"not a csr matrix ({_one_line(error)})", path) from None
    return matrix


def _check_csr_arrays(arrays: Arrays, path: Path) -> None:
    form = b"csr"
    if "format" in arrays and arrays["format"].ndim == 0:
        form = arrays["format"].item()
    if form not in (b"csr", "csr"):
        raise DataError(f"expected a csr matrix, got format {form!r}", path)

    missing = {"data", "indices", "indptr", "shape"} - arrays.keys()
    if missing:
        raise DataError(f"a csr matrix needs {', '.join(sorted(missing))} too", path)

    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise DataError(f"expected a shape of two sizes, got {shape.tolist()}", path)

    data = arrays["data"]
    if data.dtype.kind not in "biuf":
        raise DataError(f"expected numbers, got {data.dtype}", path)

    indptr = arrays["indptr"]
    if arrays["indices"].dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise DataError("expected integer indices and indptr", path)

    # scipy checks the differences only, which may overflow and so hide that the row starts do not ascend.
    if indptr.size == 0:
        return
    first = indptr.min()
    last = indptr.max()
    if first < 0 or last > data.size:
        raise DataError(f"expected rows that start from 0 to {data.size}, got {first} to {last}", path)
