"""The datasets that come with the package, one folder each: real, small, usable offline right after install.

They are stored in the XC repository's raw form with manifest and licence, exactly as `xcbench.data.builders` writes
them.
"""

from pathlib import Path

from xcbench.data.manifest import MANIFEST_FILE
from xcbench.defaults import DEFAULT_DATASET
from xcbench.errors import unknown_name

_HERE = Path(__file__).parent
_NOTICE_FILES = ("LICENSE.txt", "NOTICE.txt")


def embedded_names() -> list[str]:
    """Return the names of the embedded datasets, the default first."""
    names = sorted(manifest.parent.name for manifest in _HERE.glob(f"*/{MANIFEST_FILE}"))
    names.remove(DEFAULT_DATASET)
    return [DEFAULT_DATASET, *names]


def embedded_folder(name: str) -> Path:
    """Return the folder with the files of an embedded dataset."""
    if name not in embedded_names():
        raise unknown_name("embedded dataset", name, embedded_names())
    return _HERE / name


def embedded_notices(name: str) -> list[Path]:
    """Return the texts that must be distributed with an embedded dataset; none for other names."""
    if name not in embedded_names():
        return []

    paths = [_HERE / name / file for file in _NOTICE_FILES]
    return [path for path in paths if path.is_file()]
