"""The verb graph against a graph counted by hand."""

import json

import pytest

from tests.cli.test_run import call, one_line, toy  # noqa: F401  # fixtures
from tests.methods.problems import csr
from xcbench.data import Dataset, Split, TextColumn
from xcbench.data.binary import store_dataset
from xcbench.errors import InputError
from xcbench.labels.label_graph import LabelGraph
from xcbench.report.neighbours import draw_neighbourhood, neighbourhood


@pytest.fixture
def three():
    """Labels A and B share two points, B and C one."""
    Y = csr([[1, 1, 0], [1, 1, 0], [0, 1, 1], [1, 0, 0]])
    split = Split(csr([[1]] * 4), Y)
    return Dataset("three", split, split, label_titles=TextColumn.of(["Apple pie", "Banana", "Cherry"]))


def test_neighbours_come_nearest_first_with_counts_and_weights(three):
    found = neighbourhood(three, "banana", LabelGraph("cooccurrence"))
    assert (found.label, found.title, found.training_points) == (1, "Banana", 3)
    # Y^T Y has rows [3 2 0], [2 3 1], [0 1 1], with sums 5, 6 and 2.
    near = {n.title: (n.count, n.weight) for n in found.neighbours}
    assert near["Banana"] == pytest.approx((3, 3 / 6))
    assert near["Apple pie"] == pytest.approx((2, 2 / 30**0.5))
    assert near["Cherry"] == pytest.approx((1, 1 / 12**0.5))
    assert [n.title for n in found.neighbours] == ["Banana", "Apple pie", "Cherry"]


def test_a_part_of_a_title_is_enough_where_no_other_label_has_it(three):
    assert neighbourhood(three, "apple").label == 0
    assert neighbourhood(three, "err").label == 2
    with pytest.raises(InputError, match="2 labels have 'e' in their titles, such as apple pie, cherry"):
        neighbourhood(three, "e")


def test_walks_count_their_steps(three):
    found = neighbourhood(three, "0")
    assert found.title == "Apple pie"
    assert sum(n.count for n in found.neighbours) == 400


def test_a_label_is_shown_in_the_terminal_as_json_and_as_a_picture(call, three, tmp_path):  # noqa: F811
    store_dataset(three, tmp_path / "three")
    code, out, err = call("graph", "--dataset", tmp_path / "three", "--label", "Cherry", "--kind", "cooccurrence")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Cherry (label 2, 1 training points)"
    assert [line.split()[-1] for line in out.splitlines()[3:]] == ["Cherry", "Banana"]
    picture = tmp_path / "cherry.svg"
    code, out, _ = call(
        "graph", "--dataset", tmp_path / "three", "--label", "Cherry", "--kind", "cooccurrence", "--json",
        "--picture", picture,
    )  # fmt: skip
    assert [n["label"] for n in json.loads(out)["neighbours"]] == [2, 1]
    assert "<svg" in picture.read_text()


def test_pictures_of_labels_alone_and_in_crowds(three, tmp_path):
    for label in ("Apple pie", "Banana"):
        draw_neighbourhood(neighbourhood(three, label, LabelGraph(top=1)), tmp_path / "a.png")
    alone = neighbourhood(three, "Cherry", LabelGraph(head_threshold=0))
    assert len(alone.neighbours) == 1
    draw_neighbourhood(alone, tmp_path / "b.pdf")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_unknown_labels_and_pictures_get_one_line(call, three, tmp_path):  # noqa: F811
    store_dataset(three, tmp_path / "three")
    words = "graph", "--dataset", tmp_path / "three", "--label"
    code, _, err = call(*words, "bananas")
    assert code == 2
    assert "did you mean banana" in one_line(err)
    for label in ("3", "no such thing"):
        code, _, err = call(*words, label)
        assert code == 2
        assert f"unknown label '{label}': no title of three has it, and numbers are 0 to 2" in one_line(err)
    code, _, err = call(*words, "")
    assert code == 2
    assert "got nothing" in one_line(err)
    code, _, err = call(*words, "Banana", "--picture", "x.bmp")
    assert code == 2
    assert "x.bmp" in one_line(err)
    code, _, err = call(*words, "Banana", "--top", 0)
    assert code == 2
