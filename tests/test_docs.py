"""README and docs: figures are those of results/, links lead somewhere, examples run, the site is built."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
MADE_FROM_CODE = {"reference/cli.md", "reference/settings.md", "reference/api.md", "findings/tables.md"}


def tool(name):
    """A program of docs/_site as a module."""
    path = ROOT / "docs" / "_site" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"docs_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    return tool("figures")


def test_the_figures_are_those_of_the_results(figures):
    for page in figures.pages():
        text = page.read_text("utf-8")
        assert figures.filled(text) == text, f"{page.relative_to(ROOT)} is out of date: make docs-figures"


def test_figures_are_filled_in(figures, tmp_path, monkeypatch):
    lines = [
        "row,metric,value,low,high,best,tied,state",
        "A,P@1,12.345,10.0,14.0,True,False,done",
        "A,train_s,3,,,False,True,done",
        "B,P@1,,,,False,False,not run",
        "B,train_s,4.5,,,False,False,done",
    ]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "t.csv").write_text("\n".join(lines))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    table = "<!-- table: t; P@1, train_s -->\nold\n<!-- end -->"
    assert figures.filled(table).splitlines()[1:-1] == [
        "| | P@1 | train s |",
        "|---|---:|---:|",
        "| A | **12.35** ±2.00 | *3.00* |",
        "| B | not run | 4.50 |",
    ]
    assert "| B |" not in figures.filled(table.replace("train_s", "train_s; A"))
    one = "so <!-- figure: t; P@1; A -->1.0<!-- end -->%"
    assert figures.filled(one) == "so <!-- figure: t; P@1; A -->12.3<!-- end -->%"


def test_the_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 600
    assert "make table2" in text
    assert "make test" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    for target in LINK.findall(page.read_text("utf-8")):
        path = (page.parent / target).resolve()
        made = path.is_relative_to(ROOT / "docs") and path.relative_to(ROOT / "docs").as_posix() in MADE_FROM_CODE
        assert path.exists() or made, target


def test_what_code_and_pages_say_about_docs_exists():
    sources = [
        *ROOT.glob("xcbench/**/*.py"),
        *ROOT.glob("methods/**/*.py"),
        *ROOT.glob("experiments/**/*.yaml"),
        *PAGES,
    ]
    for source in sources:
        for name in re.findall(r"\bdocs/[\w/-]+\.md", source.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{source}: {name}"


def test_the_readme_s_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path))
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
    exec(code, {})
    psp, answer, predicted = capsys.readouterr().out.splitlines()
    assert float(psp) > 10
    assert answer.count("label=") == 3
    assert re.findall(r"fruit|nature", predicted) == ["fruit", "nature"]


def test_the_reference_has_every_setting_with_its_default_and_description():
    text = tool("reference").settings()
    assert "| `embedding_scale` | float | `4.0` | Length of E's rows at the start" in text
    assert "| `extreme.training.min_steps` | int | `600` | On small data" in text
    assert "| `lite` | DECAF-lite | `freeze` `true` |" in text
    assert "| `LF-AmazonTitles-131K` |" in text


def test_the_reference_has_every_command():
    text = tool("reference").commands()
    for verb in ("run", "predict", "table", "data import"):
        assert f"xcbench {verb}\n" in text
    assert "Decides everything random." in text


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_a_network(tmp_path):
    mkdocs = Path(sys.executable).with_name("mkdocs")
    subprocess.run([mkdocs, "build", "--quiet", "--site-dir", tmp_path], cwd=ROOT, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"?(https?:)?//", page.read_text("utf-8")), page
