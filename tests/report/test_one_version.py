"""What results/ shows comes from one version of the code."""

from pathlib import Path

import pytest

from xcbench.report.render import BY_OTHER_CODE
from xcbench.runner.store import Store

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.xfail(reason="the runs of results/ were made by many versions; all are to be made again at the end")
def test_runs_of_the_same_plugins_were_made_by_the_same_code():
    code = {}
    for record in Store(RESULTS / "runs").records():
        plugins = (record.method, record.augment, record.rerank)
        code.setdefault(plugins, set()).add(record.environment["code"])
    assert {plugins: versions for plugins, versions in code.items() if len(versions) > 1} == {}


def test_no_rendered_table_mixes_versions():
    """A table marks what other code made than the code that rendered it."""
    marked = [path for path in RESULTS.rglob("*.md") if BY_OTHER_CODE in path.read_text("utf-8")]
    assert marked == []
