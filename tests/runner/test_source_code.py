"""The digest of code: it changes with what can change a figure, and with nothing else."""

import json

import pytest

from xcbench.runner.execute import run
from xcbench.runner.source_code import SourceTree, code_of, is_by_other_code
from xcbench.runner.spec import OverwriteStrategy, RunSpec
from xcbench.runner.store import Store
from xcbench.runner.toy import toy_dataset

FILES = {
    "core/__init__.py": "",
    "core/nn/__init__.py": "from core.nn.block import Block\nfrom .loss import loss\n",
    "core/nn/block.py": "class Block:\n    size = 1\n",
    "core/nn/loss.py": "from core.kernels import add\n\n\ndef loss():\n    return add()\n",
    "core/kernels.py": "def add():\n    return 1\n",
    "core/report.py": "TITLE = 'a'\n",
    "methods/__init__.py": "",
    "methods/_shared.py": "RATE = 1\n",
    "methods/one.py": '"""A method."""\n\nfrom core.nn import loss\n\nfrom ._shared import RATE\n\nX = loss() * RATE\n',
    "methods/two.py": "def fit():\n    from core.nn import Block\n\n    return Block\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def digest(method, file=None, text=None):
        if file is not None:
            (tmp_path / file).write_text(text)
        return SourceTree({"core": tmp_path / "core", "core.methods": tmp_path / "methods"}).digest([method])

    return digest


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/kernels.py", "def add():\n    return 2\n"),
        ("core/nn/loss.py", "def loss():\n    return 1\n"),
        ("methods/_shared.py", "RATE = 2\n"),
        ("methods/one.py", "X = 2\n"),
    ],
)
def test_it_changes_with_the_method_and_all_that_it_imports(tree, file, text):
    before = tree("core.methods.one")
    assert tree("core.methods.one", file, text) != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/report.py", "TITLE = 'b'\n"),
        ("core/nn/block.py", "class Block:\n    size = 2\n"),
        ("methods/two.py", "X = 2\n"),
        ("core/kernels.py", '"""Sums."""\n\n\n# Why.\ndef add():\n    """One."""\n    return 1\n'),
    ],
)
def test_other_methods_reports_comments_and_docstrings_change_nothing(tree, file, text):
    before = tree("core.methods.one")
    assert tree("core.methods.one", file, text) == before


def test_imports_inside_of_functions_count(tree):
    before = tree("core.methods.two")
    assert tree("core.methods.two", "core/nn/block.py", "class Block:\n    size = 2\n") != before


def test_text_that_looks_like_a_comment_is_text(tree):
    before = tree("core.methods.two", "methods/two.py", 'X = """\n# a\n"""\n')
    assert tree("core.methods.two", "methods/two.py", 'X = """\n# b\n"""\n') != before


def test_every_method_has_code_of_its_own():
    assert code_of("xcbench.methods.decaf") == code_of("xcbench.methods.decaf")
    assert code_of("xcbench.methods.decaf") != code_of("xcbench.methods.eclare")


def test_a_record_of_other_code_is_known_and_made_again_if_asked(tmp_path):
    data = toy_dataset()

    def go(overwrite=OverwriteStrategy.KEEP):
        return run(RunSpec("popularity"), data=data, store=tmp_path, cache=tmp_path / "stages", overwrite=overwrite)

    first = go()
    assert not is_by_other_code(first)

    path = first.folder / "record.json"
    value = json.loads(path.read_text())
    value["environment"]["code"] = "0" * 12
    path.write_text(json.dumps(value))
    old = Store(tmp_path).find(first.id)
    assert is_by_other_code(old)

    assert is_by_other_code(go())
    assert not is_by_other_code(go(OverwriteStrategy.STALE))
