"""What docs/start/python.md, thresholds.md and tuning.md show is what works."""

import re
from pathlib import Path

import pytest

import xcbench
import xcbench.data
from xcbench.cli import app
from xcbench.evaluation import evaluate_decisions
from xcbench.evaluation.thresholds import MIN_POSITIVES, Thresholds
from xcbench.plugins import registry
from xcbench.runner.expected import PREDICTIONS_PER_POINT
from xcbench.runner.toy import toy_dataset

DOCS = Path(__file__).parent.parent.parent / "docs"


def text_of(page):
    (path,) = DOCS.rglob(page)
    return path.read_text("utf-8")


def blocks(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


def test_the_examples_in_python_run_one_after_the_other(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    monkeypatch.setattr("xcbench.runner.resolve._load", lambda name: (toy_dataset(), name))
    monkeypatch.setattr("xcbench.api.runs.load_dataset", lambda name: toy_dataset())
    names = {}
    for block in blocks("python.md"):
        exec(block, names)
    assert names["run"].record.config["neighbours"] == 20
    assert names["classifier"].predict(["apple pie"])[0][0] == "fruit"


def test_everything_exported_is_shown():
    for name in set(dir(xcbench)) - {"__version__", "load_dataset"}:
        assert f"xcbench.{name}(" in text_of("python.md"), name


@pytest.mark.parametrize("page", ["thresholds.md", "tuning.md"])
def test_the_commands_exist_with_their_options(page):
    for block in blocks(page, ""):
        for line in block.splitlines():
            words = line.partition("#")[0].split()
            app[words[1]].parse_args(words[2:], exit_on_error=False, print_error=False)


def test_the_figures_of_decisions_are_listed():
    data = toy_dataset()
    truth_as_scores = xcbench.data.TopK.from_csr(data.test.Y)
    listed = set()
    for first, others in re.findall(r"^\| `([\w-]+)`((?:, `-\w`)*) \|", text_of("thresholds.md"), re.MULTILINE):
        listed.add(first)
        listed |= {first.replace("-F1", suffix) for suffix in re.findall(r"`(-\w)`", others)}
    assert listed == set(evaluate_decisions(truth_as_scores, data, Thresholds.everywhere(0.5)))
    assert f"fewer than {MIN_POSITIVES} positives" in text_of("thresholds.md")
    assert f"among the {PREDICTIONS_PER_POINT} stored" in text_of("thresholds.md")


def test_the_methods_with_ranges_are_named():
    (block,) = blocks("tuning.md")
    names = {}
    exec(block, names)
    assert list(names["Mine"].search_space) == ["training.lr", "training.epochs", "dropout", "start"]
    sentence = text_of("tuning.md").rpartition("declare ranges")[0].rpartition("by factors.")[2]
    for name in re.findall(r"`(\w+)`", sentence):
        assert registry.get_method(name).search_space, name
