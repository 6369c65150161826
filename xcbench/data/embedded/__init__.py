"""The datasets that come with the package, one folder each: real, small, usable offline right after install.

They lie here in the XC repository's raw form with manifest and licence, exactly as `xcbench.data.builders` writes them.
"""

from pathlib import Path

from xcbench.data.manifest import MANIFEST_FILE
from xcbench.errors import unknown_name

DEFAULT_DATASET = "lf-debian-4k"
_HERE = Path(__file__).parent


def embedded_names() -> list[str]:
    """The embedded datasets' names, the default first."""
    names = (manifest.parent.name for manifest in _HERE.glob(f"*/{MANIFEST_FILE}"))
    return sorted(names, key=lambda name: (name != DEFAULT_DATASET, name))


def embedded_folder(name: str) -> Path:
    """The folder with the files of an embedded dataset."""
    if name not in embedded_names():
        raise unknown_name("embedded dataset", name, embedded_names())
    return _HERE / name


def embedded_notices(name: str) -> list[Path]:
    """The texts that must travel with the data of an embedded dataset; none for other names."""
    if name not in embedded_names():
        return []
    return [path for file in ("LICENSE.txt", "NOTICE.txt") if (path := _HERE / name / file).is_file()]
