"""Reading `.npz` files that came from elsewhere: nothing in them is ever executed, and a bad file is one clear line."""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.errors import DataError, InputError

DEFLATE_AT_MOST = 1100
"""Times smaller than it was: deflate packs no better. Other ways do, but numpy never uses them."""
HEADER_AT_MOST = 1 << 14
"""Bytes; numpy reads no header of more than 10,000, but would have it in memory before it finds out."""


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every array of an npz file by its name. Pickled objects are refused, and so are sizes the file cannot hold."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            limit = DEFLATE_AT_MOST * path.stat().st_size
            if (claimed := sum(member.file_size for member in members)) > limit:
                raise DataError(f"claims to unpack to {claimed:,} bytes", path)
            return {member.filename.removesuffix(".npy"): _read_member(archive, member, path) for member in members}
    except DataError:
        raise
    except Exception as error:  # a damaged directory fails in many ways, from a bad name to a bad checksum
        raise DataError(f"not a readable npz file ({_one_line(error)})", path) from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> npt.NDArray[Any]:
    name = repr(member.filename)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{name} is packed in a way that numpy does not use", path)
    with archive.open(member) as stream:
        head = io.BytesIO(stream.read(HEADER_AT_MOST))
        try:
            shape, dtype = _header(head)
        except Exception as error:  # it is parsed as a Python literal, which fails in many ways, too
            raise DataError(f"{name} is not an array ({_one_line(error)})", path) from None
        if dtype.hasobject:
            raise DataError(f"{name} holds pickled objects, which could run code and are never loaded", path)
        if dtype.kind not in "biufcSU" or not dtype.itemsize:
            raise DataError(f"{name} holds {dtype}, which is neither numbers nor text", path)
        # Asked before numpy allocates: a short file may claim any size. Places without cells count as well, for
        # whoever makes something of each row.
        if (
            min(shape, default=0) < 0
            or head.tell() + math.prod(shape) * dtype.itemsize != member.file_size
            or math.prod(max(n, 1) for n in shape) > DEFLATE_AT_MOST * path.stat().st_size
        ):
            raise DataError(f"{name} claims {dtype}{list(shape)}, which is not what it holds", path)
        stream.seek(0)
        array = np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        return array.astype(dtype.newbyteorder("="), copy=False)


def _header(stream: io.BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(stream)
    return shape, dtype


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def csr_of(arrays: dict[str, npt.NDArray[Any]], path: Path) -> sp.csr_array:
    """The matrix of a file that `scipy.sparse.save_npz` wrote in csr form, checked; rows sorted by column."""
    kind = arrays["format"].item() if "format" in arrays and arrays["format"].ndim == 0 else b"csr"
    if kind not in (b"csr", "csr"):
        raise DataError(f"expected a csr matrix, got format {kind!r}", path)
    if missing := {"data", "indices", "indptr", "shape"} - arrays.keys():
        raise DataError(f"a csr matrix needs {', '.join(sorted(missing))} too", path)
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise DataError(f"expected a shape of two sizes, got {shape.tolist()}", path)
    if arrays["data"].dtype.kind not in "biuf":
        raise DataError(f"expected numbers, got {arrays['data'].dtype}", path)
    if any(arrays[part].dtype.kind not in "iu" for part in ("indices", "indptr")):
        raise DataError("expected integer indices and indptr", path)
    data, starts = arrays["data"], arrays["indptr"]
    # scipy looks at the differences only, which overflow where they are meant to show that rows do not ascend.
    if starts.size and (starts.min() < 0 or starts.max() > data.size):
        raise DataError(f"expected rows that start from 0 to {data.size}, got {starts.min()} to {starts.max()}", path)
    data = data.astype(np.float32) if data.dtype == np.float16 else data  # which scipy does not know
    try:
        matrix = sp.csr_array((data, arrays["indices"], starts), shape=(int(shape[0]), int(shape[1])))
        matrix.check_format(full_check=True)
        matrix.sum_duplicates()
    except (ValueError, OverflowError) as error:
        raise DataError(f"not a csr matrix ({_one_line(error)})", path) from None
    return matrix
