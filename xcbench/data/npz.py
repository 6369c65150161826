"""Reading `.npz` files that came from elsewhere: nothing in them is ever executed, and a bad file is one clear line."""

import lzma
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcbench.errors import DataError, InputError

DEFLATE_AT_MOST = 1100  # times smaller, and nothing packs better
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError, RuntimeError)


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every array of an npz file by its name. Pickled objects are refused, and so are sizes the file cannot hold."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                member.filename.removesuffix(".npy"): _read_member(archive, member, path)
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }
    except BROKEN_ARCHIVE as error:
        raise DataError(f"not a readable npz file ({error})", path) from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> npt.NDArray[Any]:
    name = member.filename
    try:
        with archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(stream)
            if member.file_size > DEFLATE_AT_MOST * path.stat().st_size:
                raise DataError(f"{name} claims to unpack to {member.file_size:,} bytes", path)
            if dtype.hasobject:
                raise DataError(f"{name} holds pickled objects, which could run code and are never loaded", path)
            # Asked before numpy allocates: a short file may claim any size.
            if stream.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize != member.file_size:
                raise DataError(f"{name} claims {dtype}{list(shape)}, which is not what it holds", path)
            stream.seek(0)
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except (DataError, *BROKEN_ARCHIVE):
        raise
    except Exception as error:  # an array's header is parsed as a Python literal, which fails in many ways
        raise DataError(f"{name} is not an array ({' '.join(str(error).split())})", path) from None


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
    try:
        matrix = sp.csr_array(
            (arrays["data"], arrays["indices"], arrays["indptr"]), shape=(int(shape[0]), int(shape[1]))
        )
        matrix.check_format(full_check=True)
    except (ValueError, OverflowError) as error:
        raise DataError(f"not a csr matrix ({error})", path) from None
    matrix.sum_duplicates()
    return matrix
