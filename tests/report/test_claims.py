"""Claims: what holds, what does not, what cannot be told, and what cannot even be asked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.report.conftest import LABELS, METHOD, InProcess
from xcbench.cli import main
from xcbench.data.binary import store_dataset
from xcbench.report import tables
from xcbench.report.claims import Verdict, claims_grid, judge_claims
from xcbench.report.experiments import Claim, Experiment, Row
from xcbench.report.grid import as_text
from xcbench.report.scores import DatasetRuns

RIGHT = {"all": 1.0, "nearly": 0.995, "most": 0.8, "half": 0.5, "some": 0.4, "few": 0.1}
ROWS = (*(Row(label, METHOD, overrides={"right": share}) for label, share in RIGHT.items()), Row("to come", "renee"))


def claim(**parts: object) -> Claim:
    return Claim("A sentence.", ("P@1",), **parts)


SEEDS = (0, 1, 2)


def findings(dataset_runs, *claims: Claim, rows=ROWS, seeds=SEEDS):
    experiment = Experiment("mine", "A table", rows, ("P@1",), claims=claims)
    tables.run_missing(experiment, [dataset_runs], seeds, InProcess())
    return experiment, judge_claims(experiment, [dataset_runs], seeds)


def test_one_seed_decides_nothing(dataset_runs):
    rows = tuple(row for row in ROWS if row.label in ("all", "half"))
    experiment, found = findings(dataset_runs, claim(better="all", worse=("half",)), rows=rows, seeds=(0,))
    assert found[0].verdict is Verdict.FEW_SEEDS
    assert found[0].p_value < 0.01
    assert "2 more seeds are needed" in found[0].reason
    assert "undecided for want of seeds: 1." in as_text([claims_grid(experiment, found)])


def test_verdicts(dataset_runs):
    experiment, found = findings(
        dataset_runs,
        claim(better="all", worse=("half",)),
        claim(better="few", worse=("half",)),
        claim(better="all", worse=("nearly",)),
        claim(better="to come", worse=("half",)),
    )
    assert [finding.verdict for finding in found] == [
        Verdict.HOLDS,
        Verdict.FAILS,
        Verdict.UNDECIDED,
        Verdict.UNAVAILABLE,
    ]
    holds, fails, undecided, unavailable = found
    assert (holds.difference, fails.difference, undecided.difference) == (50.0, -40.0, pytest.approx(0.5))
    assert holds.low < 50 < holds.high
    assert holds.p_value < 0.01
    # One point of 200 makes the difference, so it is one standard error; it takes 1.96 + 0.84 of them, squared.
    assert "about 7.9 times as many" in undecided.reason
    assert unavailable.reason == "no package exists; needs pre-trained DistilBERT weights"
    assert math.isnan(unavailable.difference)
    text = as_text([claims_grid(experiment, found)])
    for words in ("holds", "does not hold", "undecided at this sample size", "not available", "+50.00", "A sentence."):
        assert words in text


def test_gains_are_compared(dataset_runs):
    _, found = findings(
        dataset_runs,
        claim(gain=("all", "half"), exceeds=("half", "some")),  # 50 against 10
        claim(gain=("half", "some"), exceeds=("all", "half")),
        claim(gain=("half", "some"), exceeds=("some", "half")),
        claim(gain=("all", "most"), exceeds=("half", "half")),
    )
    assert [f.difference for f in found] == [pytest.approx(value) for value in (40.0, -40.0, 20.0, 20.0)]
    assert [f.verdict for f in found] == [Verdict.HOLDS, Verdict.FAILS, Verdict.HOLDS, Verdict.HOLDS]
    assert found[0].description == "(all vs half) vs (half vs some)"


def test_margins(dataset_runs):
    _, found = findings(
        dataset_runs,
        claim(better="all", worse=("half",), margin=30.0),
        claim(better="all", worse=("half",), margin=70.0),
        claim(better="all", worse=("half",), margin=49.0),
        claim(better="nearly", worse=("all",), margin=-5.0),
        claim(better="half", worse=("all",), margin=-5.0),
    )
    assert [f.verdict for f in found] == [
        Verdict.HOLDS,
        Verdict.FAILS,
        Verdict.UNDECIDED,
        Verdict.HOLDS,
        Verdict.FAILS,
    ]
    assert all(f.difference == pytest.approx(d) for f, d in zip(found, [50, 50, 50, -0.5, -50], strict=True))


def test_many_claims_are_corrected_together(dataset_runs):
    """Six points of 200 are enough for one claim, and not for one among a hundred."""
    rows = (Row("a", METHOD, overrides={"right": 0.53}), Row("b", METHOD, overrides={"right": 0.5}))
    one = claim(better="a", worse=("b",))
    _, alone = findings(dataset_runs, one, rows=rows)
    _, among = findings(dataset_runs, *[claim(better="a", worse=("b",)) for _ in range(100)], rows=rows)
    assert alone[0].verdict is Verdict.HOLDS
    assert alone[0].p_value < 0.05
    assert {f.verdict for f in among} == {Verdict.UNDECIDED}
    assert among[0].p_value == pytest.approx(min(1.0, 100 * alone[0].p_value))


def test_scope_and_several_opponents(dataset_runs):
    _, found = findings(
        dataset_runs,
        claim(better="all", worse=("half", "few")),
        claim(better="all", worse=("half",), datasets=("elsewhere",)),
    )
    assert [f.description for f in found] == ["all vs half", "all vs few"]


def test_points_that_are_labels_apart(toy, store, tmp_path):
    points = np.arange(60, 100)
    filtered = np.column_stack([points, (points + 5) % LABELS])
    data = replace(toy, test=replace(toy.test, filter=filtered))
    store_dataset(data, tmp_path / "with filter")
    runs = DatasetRuns(data, store, str(tmp_path / "with filter"))
    experiment, found = findings(runs, claim(better="all", worse=("some",), labels_apart=True))

    # "some" is right on the first 80 of 200 points: on 20 of the 40 with a filtered pair, on 60 of the 160 others.
    labels, others = found[0].parts
    assert (labels.points, labels.difference) == ("40 points that are labels", 50.0)
    assert (others.points, others.difference) == ("160 other points", 62.5)
    assert labels.low < 50 < labels.high
    assert found[0].difference == 60.0
    assert "160 other points" in as_text([claims_grid(experiment, found)])


def test_without_filtered_pairs_all_points_are_others(dataset_runs):
    _, found = findings(dataset_runs, claim(better="all", worse=("some",), labels_apart=True))
    assert [part.points for part in found[0].parts] == ["200 other points"]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"better": "a"},
        {"worse": ("a",)},
        {"gain": ("a", "b")},
        {"gain": ("a",), "exceeds": ("b",)},
        {"better": "a", "worse": ("b",), "gain": ("a", "b"), "exceeds": ("a", "b")},
    ],
)
def test_a_claim_compares_rows_or_gains(parts):
    with pytest.raises(ValueError, match="a claim has either"):
        claim(**parts)


def test_the_verb(dataset_runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["claims", "eclare/table4", "--dataset", dataset_runs.source, "--store", str(dataset_runs.store.folder)])
    said = capsys.readouterr()
    assert end.value.code == 0
    assert "not available: 9." in said.out
    assert "+1.04 .. +1.54" in said.out  # Parabel's gain from GAME in PSP@1, in the paper
    with pytest.raises(SystemExit) as end:
        main(["claims", "eclare/figure9"])
    assert "lists no claims" in capsys.readouterr().err
