"""What the documentation shows is what works."""

import re
from pathlib import Path

import pytest

from xcbench.runner.check import check_method
from xcbench.runner.execute import run
from xcbench.runner.spec import RunSpec
from xcbench.runner.store import COLUMNS
from xcbench.runner.toy import toy_dataset

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture
def example(tmp_path):
    block = re.search(r"```python\n(.*?)```", (DOCS / "guides" / "writing-a-method.md").read_text("utf-8"), re.DOTALL)
    path = tmp_path / "centroids.py"
    path.write_text(block.group(1), "utf-8")
    return str(path)


def test_the_example_method_keeps_the_contract_and_learns(example):
    assert [finding for finding in check_method(example) if finding.problem] == []


def test_the_example_runs_with_its_ablation(example, tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    record = run(RunSpec(example, ablations=("no-text",)), data=toy_dataset())
    assert record.metrics["P@1"].value > 50
    assert [stage.name for stage in record.stages] == ["centroids"]


def test_the_columns_of_results_are_listed():
    text = " ".join((DOCS / "guides" / "runner.md").read_text("utf-8").split())
    listed = re.search(r"Columns: (.*?folder`)", text).group(1)
    assert re.findall(r"\w+", re.sub(r"\(.*?\)", "", listed)) == list(COLUMNS)
