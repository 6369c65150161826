"""What is shipped: the wheel has the methods, the experiments and the data, and works without the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "xcbench", "methods", "experiments")
SOURCES = (ROOT / "xcbench", ROOT / "methods", ROOT / "experiments")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the sources, so that nothing is built in the repository."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def build(sources, *kinds):
    program = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", "dist", "."]
    done = subprocess.run(program, cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (sources / "dist").glob("*.whl")
    return wheel


def test_the_wheel_has_everything(sources):
    with zipfile.ZipFile(build(sources, "--wheel")) as wheel:
        names = set(wheel.namelist())
    for folder in SOURCES:
        place = "xcbench" if folder.name == "xcbench" else f"xcbench/{folder.name}"
        for path in folder.rglob("*.py"):
            in_wheel = f"{place}/{path.relative_to(folder).as_posix()}"
            assert in_wheel in names or "search" in path.parts, in_wheel
    assert "xcbench/experiments/eclare/table2.yaml" in names
    assert "xcbench/experiments/paper/results.csv" in names
    assert "xcbench/data/published.json" in names
    assert "xcbench/py.typed" in names
    assert any(name.startswith("xcbench/data/embedded/lf-debian-4k/") for name in names)
    assert not any(name.startswith(("tests/", "docs/", "methods/")) for name in names)


@pytest.mark.slow
def test_a_wheel_made_of_the_source_archive_works_in_a_clean_environment(sources, tmp_path):
    wheel = build(sources)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # The libraries are those of this environment: a path in a .pth file is added, but its own .pth files are not read,
    # so that xcbench itself can only come from the wheel.
    paths = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], stdout=-1, text=True
    )
    (Path(paths.stdout.strip()) / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["XCBENCH_HOME"] = str(tmp_path / "home")

    def xcbench(*words):
        program = [tmp_path / "venv" / "bin" / "xcbench", *words]
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "decaf" in xcbench("list", "methods")
    assert "eclare/table5" in xcbench("list", "tables")
    assert "P@1" in xcbench("run", "--method", "knn")
