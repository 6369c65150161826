from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import pytest

from xcbench.errors import InputError
from xcbench.plugins.config import Change, build, changes, compose, leaves, parse_assignment


class Colour(Enum):
    red = 1
    blue = 2


@dataclass(frozen=True)
class Graph:
    kind: Literal["walk", "cooccurrence"] = "walk"
    steps: int = 400
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    graph: Graph = field(default_factory=Graph)
    limit: int | None = None
    either: int | str = 3
    flag: bool = False
    name: str = "a"
    colour: Colour = Colour.red
    level: Literal[1, 2] = 1
    weights: dict[str, float] = field(default_factory=dict)
    levels: list[float] = field(default_factory=list)

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError(f"rate must not be negative, got {self.rate}")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("rate", "1e-3", 0.001),
        ("rate", "3", 3.0),
        ("graph.kind", "cooccurrence", "cooccurrence"),
        ("graph.steps", "7", 7),
        ("graph.sizes", "[3, 4]", [3, 4]),
        ("graph.steps", " 7", 7),
        ("limit", "null", None),
        ("limit", "7", 7),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("flag", "on", True),
        ("flag", "false", False),
        ("name", "true", "true"),
        ("name", "null", "null"),
        ("name", "1e3", "1e3"),
        ("colour", "blue", "blue"),
        ("level", "2", 2),
        ("weights.x", "1.5", 1.5),
        ("levels", "[1, 2e-3]", [1.0, 0.002]),
    ],
)
def test_text_is_read_as_the_type_that_the_key_has(key, text, expected):
    value = leaves(build(Settings, {key: text}))[key]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rate", "abc", "rate expects float, got 'abc'"),
        ("rate", "", "rate expects float"),
        ("rate", None, "rate expects float, got None"),
        ("rate", "nan", "rate expects a finite number"),
        ("rate", "-1", "rate must not be negative"),
        ("graph.kind", "wlak", "graph.kind expects one of walk, cooccurrence, got 'wlak'"),
        ("graph.steps", "2.5", "graph.steps expects int"),
        ("graph.steps", True, "graph.steps expects int"),
        ("graph.sizes", "7", "graph.sizes expects tuple"),
        ("graph", 3, "graph expects a group of keys"),
        ("flag", "maybe", "flag expects bool"),
        ("limit", "x", "limit expects int or null"),
        ("colour", "green", "colour expects one of red, blue"),
        ("level", "3", "level expects one of 1, 2"),
        ("levels", "[1, x]", "levels expects list"),
        ("name", "${oc.env:HOME}", "not allowed"),
        ("graph.stps", "3", "did you mean graph.steps"),
        ("grph.kind", "walk", "did you mean graph.kind"),
        ("kind", "walk", "did you mean graph.kind"),
        ("graph.kind.deeper", "x", "unknown config key"),
        ("zzz", "1", "unknown config key"),
    ],
)
def test_what_does_not_fit_is_one_line_that_says_what_would(key, value, message):
    with pytest.raises(InputError) as caught:
        build(Settings, {key: value})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_is_an_instance_of_its_class_and_later_patches_win():
    config = build(Settings, {"rate": 1, "graph.steps": 5}, {"rate": 2})
    assert isinstance(config, Settings)
    assert isinstance(config.graph, Graph)
    assert (config.rate, config.graph.steps, config.graph.sizes, config.colour) == (2.0, 5, (1, 2), Colour.red)


def test_a_group_may_be_given_as_a_mapping():
    for value in ({"steps": 3, "kind": "cooccurrence"}, "{steps: 3, kind: cooccurrence}"):
        assert build(Settings, {"graph": value}).graph == Graph("cooccurrence", 3)
    with pytest.raises(InputError, match=r"did you mean graph\.steps"):
        build(Settings, {"graph": {"stps": 3}})


def test_changes_are_exactly_the_keys_that_differ():
    patch = {"graph.kind": "cooccurrence", "rate": 0.1, "limit": 3, "weights": {"x": 1.0}}
    assert changes(Settings, patch) == [
        Change("graph.kind", "walk", "cooccurrence"),
        Change("limit", None, 3),
        Change("weights", {}, None),
        Change("weights.x", None, 1.0),
    ]


def test_patches_that_agree_compose():
    one, two = {"rate": 0.5, "flag": True}, {"flag": True, "graph.steps": 3}
    assert compose([("one", one), ("two", two)]) == {"rate": 0.5, "flag": True, "graph.steps": 3}
    # What is given on the command line is text.
    assert compose([("one", one), ("--set", {"rate": "0.5"})])["rate"] == "0.5"


@pytest.mark.parametrize(
    ("one", "two"), [({"rate": 0.5}, {"rate": 0.6}), ({"graph": {"steps": 3}}, {"graph.steps": 4})]
)
def test_patches_that_disagree_are_refused_whichever_comes_first(one, two):
    for first, second in ((one, two), (two, one)):
        with pytest.raises(InputError, match=r"the second sets .* but the first sets"):
            compose([("the first", first), ("the second", second)])


def test_assignments():
    assert parse_assignment("a.b = c=d") == ("a.b", "c=d")
    for text in ("a.b", "=3", ""):
        with pytest.raises(InputError, match=r"expected key\.path=value"):
            parse_assignment(text)
