import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from xcbench.errors import InputError
from xcbench.plugins import registry
from xcbench.plugins.registry import entries, get_augmentation, get_method, unavailable_reason
from xcbench.report.availability import unavailable
from xcbench.report.experiments import Row

PLUGIN = """
from xcbench.plugins import Method, register_method

@register_method("{name}")
class Mine(Method):
    '''A title

    and more.'''
    def fit(self, data, run):
        raise RuntimeError
"""


@pytest.fixture
def built_in(tmp_path, monkeypatch):
    """A package of methods in place of ours."""
    package = tmp_path / "pretend_methods"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_PACKAGE", "pretend_methods")
    registry._built_in.cache_clear()
    yield package
    registry._built_in.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pretend_methods"]:
        del sys.modules[name]


def test_the_baselines_are_found_with_their_titles():
    found = {entry.name: entry for entry in entries("method")}
    assert {"knn", "label-text", "popularity"} <= found.keys()
    assert found["popularity"].title == "Label popularity: every point gets the most frequent labels"
    assert get_method("knn").name == "knn"
    assert get_method("knn").code_version == get_method("knn").version


def test_listing_imports_no_method():
    code = (
        "import sys; from xcbench.plugins.registry import entries; assert entries('method')\n"
        "print([m for m in sys.modules if m.startswith('xcbench.methods.')], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


@pytest.mark.parametrize(("wanted", "nearest"), [("kn", "knn"), ("label_text", "label-text"), ("Popularity", "popul")])
def test_a_miss_names_the_nearest(wanted, nearest):
    with pytest.raises(InputError, match=f"unknown method '{wanted}'; did you mean {nearest}"):
        get_method(wanted)


def test_a_missing_package_hides_only_its_own_method(built_in):
    (built_in / "fine.py").write_text(PLUGIN.format(name="fine"))
    (built_in / "needy.py").write_text("import no_such_package.inner\n" + PLUGIN.format(name="needy"))
    found = {entry.name: entry for entry in entries("method")}
    assert found["fine"].problem is None
    assert found["fine"].title == "A title"
    assert found["needy"].problem.endswith("pip install no_such_package")
    assert get_method("fine").name == "fine"
    with pytest.raises(InputError, match=r"'needy' is not available: .*pip install no_such_package"):
        get_method("needy")


def test_a_library_that_breaks_when_it_is_imported_hides_only_its_own_method(built_in):
    """A library that was built for another numpy raises anything but ImportError."""
    (built_in / "fine.py").write_text(PLUGIN.format(name="fine"))
    (built_in / "unlucky.py").write_text(
        "raise ValueError('numpy.dtype size changed')\n" + PLUGIN.format(name="unlucky")
    )
    assert {entry.name: unavailable_reason(entry) for entry in entries("method")} == {
        "fine": None,
        "unlucky": "not available: cannot be imported (ValueError: numpy.dtype size changed)",
    }
    with pytest.raises(InputError, match="'unlucky' is not available: cannot be imported"):
        get_method("unlucky")
    assert unavailable(Row("a", "fine")) is None
    assert unavailable(Row("a", "unlucky")) == "cannot be imported (ValueError: numpy.dtype size changed)"
    assert unavailable(Row("a", "unlucky", ablation=("whatever",))) is not None


def test_a_module_that_cannot_be_parsed_hides_only_itself(built_in, caplog):
    (built_in / "fine.py").write_text(PLUGIN.format(name="fine"))
    (built_in / "broken.py").write_text("def (:")
    assert [entry.name for entry in entries("method")] == ["fine"]
    assert "broken.py" in caplog.text


def test_an_installed_method_is_found_by_its_entry_point(tmp_path, monkeypatch):
    (tmp_path / "their_package.py").write_text(PLUGIN.format(name="theirs"))
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "their_package:Mine", "xcbench.methods")
    monkeypatch.setattr(
        registry.importlib.metadata, "entry_points", lambda group: [point] if group == "xcbench.methods" else []
    )
    monkeypatch.setattr(registry, "_installed", registry._installed.__wrapped__)
    assert "theirs" in {entry.name for entry in entries("method")}
    assert get_method("theirs").code_version == "1+their_package"
    assert "theirs" not in {entry.name for entry in entries("augmentation")}


def test_a_file_is_a_method_and_its_content_is_its_version(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(name="mine"))
    first = get_method(str(path))
    assert first.name == "mine"
    path.write_text(PLUGIN.format(name="mine") + "\n# changed\n")
    assert get_method(str(path)).code_version != first.code_version
    assert first.code_version.startswith("1+")


def test_a_file_may_take_a_built_in_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(name="knn"))
    assert get_method(str(path)) is not get_method("knn")
    assert get_method("knn").__module__ == "xcbench.methods.baselines.knn"


def test_a_file_with_two_methods_wants_a_name(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(PLUGIN.format(name="one") + PLUGIN.format(name="other").replace("Mine", "Other"))
    with pytest.raises(InputError, match=r"registers one, other; say which, as in two.py:one"):
        get_method(str(path))
    assert get_method(f"{path}:other").name == "other"
    with pytest.raises(InputError, match="did you mean other"):
        get_method(f"{path}:othr")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ny = 1 / 0\n", "mine.py, line 2: ZeroDivisionError"),
        ("x = 1\n\ndef (:\n", "mine.py, line 3: SyntaxError"),
        ("import no_such_package\n", "mine.py, line 1: ModuleNotFoundError"),
        ("x = 1\n", "mine.py: registers no method"),
        (PLUGIN.format(name="a b"), "name is letters, digits"),
        (PLUGIN.format(name="mine").replace("(Method)", ""), "not a subclass of Method"),
        (
            PLUGIN.format(name="mine").replace("    def fit", "    config_type = int\n    def fit"),
            "must be a dataclass",
        ),
    ],
)
def test_a_bad_file_is_one_line_with_the_place(tmp_path, source, message):
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(InputError) as caught:
        get_method(str(path))
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        get_augmentation(str(tmp_path / "none.py"))


def test_keys_that_lead_to_plug_ins_cannot_be_settings(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    augment: int = 1\n"
        + PLUGIN.format(name="mine").replace("    def fit", "    config_type = C\n    def fit")
    )
    with pytest.raises(InputError, match=r"C\.augment"):
        get_method(str(path))
