"""The notebooks in results/ are what their sources say, carry their output, and still execute on the stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ("ablations", "browse", "compare")


def cells(notebook) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def shown(cell) -> tuple[set[str], str]:
    """The kinds of a cell's results, and what it printed (which arrives in pieces of any size)."""
    outputs = cell.get("outputs", [])
    printed = "".join(output["text"] for output in outputs if output.output_type == "stream")
    return {kind for output in outputs for kind in output.get("data", {})}, printed


@pytest.mark.parametrize("name", NAMES)
def test_notebook_and_source_agree(name):
    source, notebook = (jupytext.read(RESULTS / f"{name}{suffix}") for suffix in (".py", ".ipynb"))
    assert cells(source) == cells(notebook), f"run `make results`: {name}.ipynb is older than {name}.py"


@pytest.mark.parametrize("name", NAMES)
def test_notebook_executes_to_its_output(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    committed = jupytext.read(RESULTS / f"{name}.ipynb")
    again = jupytext.read(RESULTS / f"{name}.ipynb")
    for cell in again.cells:
        cell["outputs"] = []
    nbclient.NotebookClient(again, timeout=300, resources={"metadata": {"path": str(RESULTS)}}).execute()
    for before, after in zip(committed.cells, again.cells, strict=True):
        assert shown(after) == shown(before)
    kinds = {kind for cell in committed.cells for kind in shown(cell)[0]}
    assert "image/png" in kinds or name == "browse"
    assert not any(str(Path.home()) in str(cell) or "/work/" in str(cell) for cell in committed.cells)
