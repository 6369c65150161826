"""`xcbench evaluate` from the outside: tables, JSON, plain files, and one line for everything that is wrong."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tests.evaluation.reference import csr
from tests.evaluation.test_metrics import WORKED_FIGURES, WORKED_SCORES, worked_example
from xcbench.cli import main
from xcbench.data import TopK, load_dataset

NAMES = ",".join(WORKED_FIGURES)


@pytest.fixture
def files(tmp_path):
    """The worked example of docs/reference/metrics.md as files."""
    data = worked_example()
    sp.save_npz(tmp_path / "scores.npz", WORKED_SCORES)
    TopK.from_csr(WORKED_SCORES).save(tmp_path / "ranked.npz")
    sp.save_npz(tmp_path / "Y.npz", data.test.Y)
    sp.save_npz(tmp_path / "Y_train.npz", data.train.Y)
    (tmp_path / "Y.txt").write_text("3 5\n0:1 2:1\n1:1 3:1\n2:1\n")
    (tmp_path / "Y_train.txt").write_text("8 5\n0:1 1:1 2:1 3:1\n0:1 1:1\n0:1\n0:1\n\n\n\n\n")
    (tmp_path / "headless.txt").write_text("0:1 2:1\n1:1 3:1\n2:1\n")
    (tmp_path / "test.txt").write_text("3 2 5\n0,2 0:1\n1,3 1:1\n2 0:1\n")
    (tmp_path / "filter.txt").write_text("1 4\n2 2\n")
    return tmp_path


def run(capsys, *arguments):
    """stdout, stderr and exit code of `xcbench evaluate`."""
    code = 0
    try:
        main(["evaluate", *map(str, arguments)])
    except SystemExit as left:
        code = left.code or 0
    out, err = capsys.readouterr()
    return out, err, code


def figures(capsys, *arguments):
    out, _, code = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def refusal(capsys, *arguments):
    out, err, code = run(capsys, *arguments)
    assert (out, code) == ("", 2)
    assert len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize("scores", ["scores.npz", "ranked.npz"])
@pytest.mark.parametrize(
    ("truth", "train"),
    [("Y.npz", "Y_train.npz"), ("Y.txt", "Y_train.txt"), ("test.txt", "Y_train.npz"), ("headless.txt", "Y_train.txt")],
)
def test_plain_files_of_every_form(files, capsys, scores, truth, train):
    found = figures(
        capsys, "--predictions", files / scores, "--truth", files / truth, "--train-labels", files / train,
        "--filter", files / "filter.txt", "--metrics", NAMES,
    )  # fmt: skip
    assert {name: round(value, 2) for name, value in found.items()} == WORKED_FIGURES


def test_propensity_constants_can_be_given(files, capsys):
    base = (
        "--predictions",
        files / "scores.npz",
        "--truth",
        files / "Y.npz",
        "--train-labels",
        files / "Y_train.npz",
        "--metrics",
        "PSP@2",
    )
    given = figures(capsys, *base, "--propensity-a", 0.55, "--propensity-b", 1.5)
    assert given == figures(capsys, *base)
    assert given != figures(capsys, *base, "--propensity-a", 0.6, "--propensity-b", 2.6)


def test_without_training_labels_the_defaults_leave_propensities_out(files, capsys):
    found = figures(capsys, "--predictions", files / "scores.npz", "--truth", files / "Y.npz")
    assert {"P@1", "nDCG@5", "R@10", "C@5"} <= found.keys()
    assert not any(name.startswith("PS") for name in found)


def test_labels_nobody_declared_are_those_that_are_mentioned(files, capsys):
    found = figures(
        capsys, "--predictions", files / "ranked.npz", "--truth", files / "headless.txt", "--metrics", "P@1"
    )
    assert found == {"P@1": pytest.approx(200 / 3)}


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("lf-debian-4k")


@pytest.fixture(scope="module")
def ideal(dataset, tmp_path_factory):
    """A file that predicts the truth, the filtered pairs before it."""
    path = tmp_path_factory.mktemp("ideal") / "p.npz"
    scores = sp.lil_array(dataset.test.Y)
    for point, label in dataset.test.filter.tolist():
        scores[point, label] = 9
    sp.save_npz(path, sp.csr_array(scores))
    return path


def test_an_embedded_dataset_in_json(dataset, ideal, capsys):
    found = figures(capsys, "--predictions", ideal, "--dataset", "lf-debian-4k", "--metrics", "p@1,PSP@5,R@100,C@100")
    left = dataset.test.Y.toarray() > 0
    left[tuple(dataset.test.filter.T)] = False
    assert found == {
        "P@1": pytest.approx(100 * left.any(axis=1).mean()),
        "PSP@5": pytest.approx(100, abs=5),  # scores are equal, so among more than five labels the small ids win
        "R@100": pytest.approx(100 * left.any(axis=1).mean()),
        "C@100": 100.0,
    }


def test_the_table_shows_intervals_and_bins(ideal, capsys):
    out, _, code = run(capsys, "--predictions", ideal, "--dataset", "lf-debian-4k", "--metrics", "P@5,MRR", "--bins", 3)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["metric", "%", "95%", "interval"]
    name, value, low, _, high = lines[1]
    assert name == "P@5"
    assert float(low) < float(value) < float(high)
    start = lines.index(["bin", "labels", "training", "pairs", "P@5"])
    bins = np.array([[float(cell.replace(",", "")) for cell in line] for line in lines[start + 1 : start + 4]])
    assert bins[:, 3].sum() == pytest.approx(float(value), abs=0.02)
    assert bins[:, 1].sum() == 4390
    assert (np.diff(bins[:, 1]) < 0).all()  # the rare labels come first, and there are many


def test_bins_in_json_add_up(ideal, capsys):
    found = figures(
        capsys,
        "--predictions",
        ideal,
        "--dataset",
        "lf-debian-4k",
        "--metrics",
        "PSP@3",
        "--bins",
        10,
        "--bins-by",
        "labels",
    )
    assert len(found) == 11
    assert sum(found[f"PSP@3[{n}/10]"] for n in range(1, 11)) == pytest.approx(found["PSP@3"])


def test_places_that_are_not_there_are_noted(files, capsys):
    out, err, code = run(
        capsys, "--predictions", files / "ranked.npz", "--truth", files / "Y.npz", "--metrics", "P@1,R@100", "--json"
    )
    assert json.loads(out).keys() == {"P@1", "R@100"}
    assert (code, err) == (0, "note: there are 3 places, fewer than R@100 look at\n")


def test_wrong_names_get_a_hint(files, capsys):
    base = ("--predictions", files / "scores.npz", "--truth", files / "Y.npz")
    assert "did you mean PSP@3" in refusal(capsys, *base, "--metrics", "P@1,PSPP@3")
    assert "lf-debian-4k" in refusal(capsys, "--predictions", files / "scores.npz", "--dataset", "lf-debain-4k")


def test_wrong_shapes_say_what_was_expected(files, capsys):
    message = refusal(capsys, "--predictions", files / "scores.npz", "--dataset", "lf-debian-4k")
    assert "expected a 2979 x 4390 matrix of scores, got (3, 5)" in message
    message = refusal(capsys, "--predictions", files / "ranked.npz", "--dataset", "lf-debian-4k")
    assert "expected predictions for 2979 points, got 3" in message
    sp.save_npz(files / "narrow.npz", csr([[(0, 1)], [(1, 1)], []], 2))
    message = refusal(capsys, "--predictions", files / "ranked.npz", "--truth", files / "narrow.npz")
    assert "expected label ids from 0 to 1" in message
    base = ("--predictions", files / "scores.npz", "--truth", files / "Y.npz")
    assert "different numbers of labels: [2, 5]" in refusal(capsys, *base, "--train-labels", files / "narrow.npz")


def test_files_that_cannot_be_read(files, capsys):
    assert "there is no file" in refusal(capsys, "--predictions", files / "no.npz", "--dataset", "lf-debian-4k")
    np.savez(files / "objects.npz", indices=np.array([[None]]), scores=np.zeros((1, 1)))
    assert "pickled" in refusal(capsys, "--predictions", files / "objects.npz", "--dataset", "lf-debian-4k")
    (files / "broken.npz").write_bytes((files / "scores.npz").read_bytes()[:-30])
    assert "not a readable npz" in refusal(capsys, "--predictions", files / "broken.npz", "--dataset", "lf-debian-4k")
    base = ("--predictions", files / "scores.npz")
    assert "there is no file" in refusal(capsys, *base, "--truth", files / "no.txt")
    (files / "words.txt").write_text("3 5\n0:1 two:1\n1:1\n2:1\n")
    assert "words.txt, line 2" in refusal(capsys, *base, "--truth", files / "words.txt")
    (files / "far.txt").write_text("1 4\n9 2\n")
    message = refusal(capsys, *base, "--truth", files / "Y.npz", "--filter", files / "far.txt")
    assert "far.txt, line 2" in message


@pytest.mark.parametrize("where", ["--truth", "--train-labels", "--filter", "--predictions"])
def test_a_huge_label_in_a_small_file_allocates_nothing(files, capsys, where):
    scores = np.array([[0.5], [0.4], [0.3]])
    np.savez(files / "huge.npz", indices=np.array([[0], [1], [2_000_000_000]]), scores=scores)
    (files / "huge.txt").write_text("0 2000000000\n" if where == "--filter" else "2:1\n2000000000:1\n1:1\n")
    given = {"--predictions": files / "ranked.npz", "--truth": files / "headless.txt"}
    given[where] = files / ("huge.npz" if where == "--predictions" else "huge.txt")
    message = refusal(capsys, *(word for option in given.items() for word in option), "--metrics", "P@1")
    assert f"{given[where]}: 2,000,000,001 labels, but only" in message


def test_a_huge_header_of_a_small_file_allocates_nothing(files, capsys):
    (files / "huge.txt").write_text("3 2000000000\n2:1\n1:1\n1:1\n")
    message = refusal(capsys, "--predictions", files / "ranked.npz", "--truth", files / "huge.txt")
    assert "huge.txt: 2,000,000,000 labels, but only" in message


def test_filtered_points_are_not_labels(files, capsys):
    """Two labels, three points, a filter of the third: halves are those of two labels, one each."""
    (files / "one.txt").write_text("0:1\n1:1\n0:1\n")
    (files / "pairs.txt").write_text("2 1\n")
    np.savez(files / "two.npz", indices=np.array([[0], [1], [0]]), scores=np.ones((3, 1)))
    words = ("--predictions", "two.npz", "--truth", "one.txt", "--train-labels", "one.txt", "--filter", "pairs.txt")
    given = [word if word.startswith("-") else files / word for word in words]
    found = figures(capsys, *given, "--metrics", "P@1", "--bins", 2, "--bins-by", "labels")
    assert [found["P@1[1/2]"], found["P@1[2/2]"]] == [pytest.approx(100 / 3), pytest.approx(200 / 3)]


def test_options_that_do_not_fit_together(files, capsys):
    scores = ("--predictions", files / "scores.npz")
    plain = (*scores, "--truth", files / "Y.npz")
    assert "--dataset, or --truth" in refusal(capsys, *scores)
    assert "either --dataset or --truth" in refusal(capsys, *plain, "--dataset", "lf-debian-4k")
    assert "go with --truth" in refusal(capsys, *scores, "--dataset", "lf-debian-4k", "--filter", files / "filter.txt")
    assert "training set" in refusal(capsys, *plain, "--metrics", "PSP@1")
    assert "--bins need --train-labels" in refusal(capsys, *plain, "--bins", 5)
    assert "need --train-labels" in refusal(capsys, *plain, "--propensity-a", 0.5, "--propensity-b", 0.4)
    trained = (*plain, "--train-labels", files / "Y_train.npz")
    assert "at least one bin" in refusal(capsys, *trained, "--bins", 0)
    assert "B must exceed 0" in refusal(capsys, *trained, "--propensity-a", 0.5, "--propensity-b", 0)
    assert "predictions" in refusal(capsys, "--dataset", "lf-debian-4k")
