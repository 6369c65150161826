import pytest

from xcbench.errors import InputError
from xcbench.evaluation import DEFAULT_METRICS, parse_metric, parse_metrics


@pytest.mark.parametrize(
    ("name", "family", "k"),
    [
        ("P@1", "P", 1),
        ("ndcg@5", "nDCG", 5),
        ("PSP@3", "PSP", 3),
        (" psNDCG@10 ", "PSnDCG", 10),
        ("r@100", "R", 100),
        ("PSR@7", "PSR", 7),
        ("mrr", "MRR", None),
        ("MRR@10", "MRR", 10),
        ("c@5", "C", 5),
        ("cpred@20", "Cpred", 20),
        ("precision@1", "P", 1),
        ("Precision@5", "P", 5),
        ("recall@10", "R", 10),
        ("ps-precision@3", "PSP", 3),
        ("propensity_scored_ndcg@3", "PSnDCG", 3),
        ("mean reciprocal rank", "MRR", None),
    ],
)
def test_names_are_read_in_any_case(name, family, k):
    metric = parse_metric(name)
    assert (metric.family.name, metric.k) == (family, k)
    assert parse_metric(str(metric)) == metric


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ndgc@5", "did you mean nDCG@5"),
        ("PPS@3", "did you mean .*PSP@3"),
        ("coverage@3", "did you mean"),
        ("zzz@1", "known: P, nDCG, R"),
        ("P", "needs a k, such as P@5"),
        ("P@", "whole number from 1"),
        ("P@0", "whole number from 1"),
        ("P@-1", "whole number from 1"),
        ("P@1.5", "whole number from 1"),
        ("P@five", "whole number from 1"),
        ("P@٣", "whole number from 1"),
        ("P@99999999999999999999", "whole number from 1"),
        ("", "unknown metric ''"),
        (5, "named by a text"),
    ],
)
def test_a_wrong_name_gets_one_helpful_line(name, hint):
    with pytest.raises(InputError, match=hint) as caught:
        parse_metric(name)
    assert "\n" not in str(caught.value)


def test_a_metric_asked_for_twice_is_computed_once():
    assert parse_metrics(["P@1", "p@1", "R@2"]) == (parse_metric("P@1"), parse_metric("R@2"))


def test_defaults_are_spelt_as_they_are_printed():
    assert [str(metric) for metric in parse_metrics(DEFAULT_METRICS)] == list(DEFAULT_METRICS)
