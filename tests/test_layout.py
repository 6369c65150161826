"""The rooms import only in the data's direction, and the command line answers before torch could load."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GROUND = {"disk", "errors", "files", "ranks", "threads"}
MAY_IMPORT = {
    "data": set(),
    "kernels": set(),
    "labels": {"data", "kernels"},
    "nn": {"kernels"},
    "shortlist": {"data", "kernels", "labels", "nn"},
    "train": {"data", "kernels", "nn", "shortlist"},
    "evaluation": {"data", "kernels"},
    "plugins": {"data", "methods"},
    "runner": {"data", "kernels", "labels", "nn", "shortlist", "train", "evaluation", "plugins", "methods"},
    "report": {"data", "kernels", "labels", "nn", "shortlist", "train", "evaluation", "plugins", "runner"},
    "cli": {"data", "labels", "evaluation", "plugins", "runner", "report"},
}


def rooms_imported_by(source: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("xcbench.")}
    return rooms


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_go_one_way(room):
    allowed = MAY_IMPORT[room] | GROUND | {room, "__version__"}
    for source in (ROOT / "xcbench" / room).rglob("*.py"):
        assert rooms_imported_by(source) <= allowed, source


def test_the_core_names_no_method():
    for source in (ROOT / "xcbench").rglob("*.py"):
        assert not re.search(r"(from|import) xcbench\.methods\.\w", source.read_text("utf-8")), source


def test_every_room_says_what_lives_there():
    for room in MAY_IMPORT:
        assert ast.get_docstring(ast.parse((ROOT / "xcbench" / room / "__init__.py").read_text("utf-8"))), room


def test_help_needs_neither_torch_nor_numba():
    code = (
        "import sys; from xcbench.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numba', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "xcbench" in done.stdout


def test_an_unknown_command_is_one_line_and_exit_code_2():
    done = subprocess.run([sys.executable, "-m", "xcbench", "no-such-verb"], capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
