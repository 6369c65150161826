"""Files are written whole or not at all; threads are set in one place; errors name what is near."""

import json
import subprocess
import sys

import pytest

from xcbench import files
from xcbench.errors import DataError, unknown_name


def test_atomic_file_keeps_the_old_content_when_the_writer_fails(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), files.atomic_file(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_atomic_folder_replaces_a_whole_folder(tmp_path):
    target = tmp_path / "folder"
    for content in ("first", "second"):
        with files.atomic_folder(target) as part:
            (part / content).write_text(content)
    assert [p.name for p in target.iterdir()] == ["second"]
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_atomic_folder_leaves_nothing_of_a_failed_write(tmp_path):
    with pytest.raises(RuntimeError), files.atomic_folder(tmp_path / "folder") as part:
        (part / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_json_is_stable_and_refuses_nan(tmp_path):
    files.write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n  "a": "ü",\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()


def test_json_keeps_half_a_character(tmp_path):
    files.write_json(tmp_path / "a.json", {"caf\udce9": "\ud800 ü"})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"caf\udce9": "\ud800 ü"}


def test_home_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XCBENCH_HOME", str(tmp_path / "here"))
    assert files.home() == tmp_path / "here"


def test_errors_name_the_place_and_the_nearest_name():
    assert str(DataError("expected a number", "f.txt", 7)) == "f.txt, line 7: expected a number"
    assert "did you mean eclare" in str(unknown_name("method", "eclaire", ["decaf", "eclare"]))
    assert "known: a, b" in str(unknown_name("method", "zzz", ["b", "a"]))


def test_torch_and_numba_share_one_thread_count():
    code = (
        "from xcbench.threads import set_threads, default_threads\n"
        "import numba, os\n"
        "assert set_threads() == default_threads() == 2\n"
        "import torch\n"
        "assert torch.get_num_threads() == numba.get_num_threads() == 2\n"
        "assert set_threads(1) == torch.get_num_threads() == numba.get_num_threads() == 1\n"
        "@numba.njit(parallel=True)\n"
        "def total(n):\n"
        "    s = 0\n"
        "    for i in numba.prange(n): s += i\n"
        "    return s\n"
        "assert total(10) == 45 and numba.threading_layer() == 'workqueue'\n"
        "assert os.environ['OMP_WAIT_POLICY'] == 'passive'\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"XCBENCH_THREADS": "2", "PATH": ""}, check=True)
