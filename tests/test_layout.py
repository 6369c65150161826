"""The rooms import only in the data's direction, and the command line answers before torch could load."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GROUND = {"costs", "defaults", "disk", "errors", "files", "progress", "ranks", "signals", "threads"}


def arrows() -> dict[str, set[str]]:
    """What each room may import, as the table in CONTRIBUTING.md says."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    return {room: set(re.findall(r"\w+", imports)) for room, imports in rows}


MAY_IMPORT = arrows()


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


def test_every_room_has_its_arrows():
    rooms = {path.parent.name for path in (ROOT / "xcbench").glob("*/__init__.py")} - {"methods", "experiments"}
    assert set(MAY_IMPORT) == rooms
    assert {path.stem for path in (ROOT / "xcbench").glob("[!_]*.py")} == GROUND


def test_the_arrows_lead_in_one_direction():
    order = list(MAY_IMPORT)
    for room, imports in MAY_IMPORT.items():
        assert imports <= {*order[: order.index(room)], "methods"}, room


def test_the_core_names_no_method():
    for source in (ROOT / "xcbench").rglob("*.py"):
        assert not re.search(r"(from|import) xcbench\.methods\.\w", source.read_text("utf-8")), source


def test_methods_stand_below_the_runner_and_know_only_their_own_folder():
    core = set(MAY_IMPORT) - {"runner", "report", "cli"}
    for source in (ROOT / "methods").rglob("*.py"):
        assert rooms_imported_by(source) <= core | GROUND, source
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            assert not isinstance(node, ast.ImportFrom) or node.level <= 1, source


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_every_room_says_what_lives_there_what_it_may_import_and_who_may_import_it(room):
    docstring = ast.get_docstring(ast.parse((ROOT / "xcbench" / room / "__init__.py").read_text("utf-8")))
    assert docstring
    assert re.search(r"(May|may) import|Imports no|imports `data` only", docstring)
    assert re.search(r"import(s)? it\b", docstring)


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
