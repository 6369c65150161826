"""Reading YAML strictly: what is right arrives typed, what is wrong names its line and the nearest right word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from xcbench.errors import DataError
from xcbench.report.typed_yaml import read_yaml


@dataclass(frozen=True)
class Wheel:
    size: float
    side: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Car:
    name: str
    label: str
    wheels: tuple[Wheel, ...] = ()
    tags: tuple[str, ...] = ()
    doors: int = 4
    owner: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.doors < 1:
            raise ValueError("a car has a door")


def read(tmp_path, text: str) -> Car:
    path = tmp_path / "car.yaml"
    path.write_text(text, "utf-8")
    return read_yaml(path, Car, name="beetle")


def test_reads_every_kind_of_value(tmp_path):
    car = read(
        tmp_path,
        "label: 8k\nwheels:\n  - {size: 2, side: right}\n  - {size: 1.5}\n"
        "tags: fast\nowner: null\nextra: {a.b: [1, 2]}\n",
    )
    assert car == Car("beetle", "8k", (Wheel(2.0, "right"), Wheel(1.5)), ("fast",), 4, None, {"a.b": [1, 2]})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("label: x\ndors: 3\n", 2, "unknown car key 'dors'; did you mean doors?"),
        ("label: x\nwheels:\n  - {size: 1}\n  - {sise: 1}\n", 4, "unknown wheel key 'sise'; did you mean"),
        ("label: x\nname: y\n", 2, "unknown car key 'name'"),
        ("doors: 3\n", 1, "car needs label"),
        ("label: x\ndoors: three\n", 2, "doors must be a whole number, got 'three'"),
        ("label: x\ndoors: true\n", 2, "doors must be a whole number, got True"),
        ("label: x\nwheels: [{size: 1, side: rigth}]\n", 2, "unknown side 'rigth'; did you mean right?"),
        ("label: x\nlabel: y\n", 2, "the key 'label' stands here twice"),
        ("label: x\nextra: 3\n", 2, "extra must be a mapping, got 3"),
        ("label: x\ndoors: 0\n", 1, "a car has a door"),
        ("- 1\n", 1, "expected a mapping of car keys"),
        ("label: [x\n", 2, "not valid YAML"),
        ("label: !!python/object/apply:os.getcwd []\n", 1, "could not determine a constructor"),
    ],
)
def test_says_what_is_wrong_and_where(tmp_path, text, line, message):
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert f"car.yaml, line {line}:" in str(error.value)


def test_empty_and_missing_files(tmp_path):
    with pytest.raises(DataError, match="the file is empty"):
        read(tmp_path, "")
    with pytest.raises(DataError, match="no such file"):
        read_yaml(tmp_path / "none.yaml", Car, name="x")
