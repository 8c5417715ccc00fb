from __future__ import annotations

from typing import Any

import pytest

from bayeswell.lab.comparison import ComparedRun, Comparison
from bayeswell.lab.report import summarize, tables_of
from bayeswell.lab.report.summary import signed
from bayeswell.metrics import Estimate, mean_over_seeds, paired_difference
from made_runs import made_comparison, made_record, with_losses

MAP = [0.30, 0.34, 0.31]
BETTER, WORSE, EQUAL = [0.20, 0.23, 0.21], [0.40, 0.44, 0.42], [0.31, 0.32, 0.33]


def test_a_significant_gain_is_the_verdict():
    comparison = made_comparison({"digits": {"map": MAP, "swag": BETTER, "bbb": EQUAL}}, {"swag": 1.4})
    found = summarize(comparison)
    assert found.verdict == (
        "swag is significantly better in NLL than MAP on digits, at 1.4× the cost of ordinary training."
    )
    gain, cost, trust = found.tiles
    truth = paired_difference(BETTER, MAP)
    assert gain.value == f"{signed(truth.value, truth.se)} nats"
    assert (gain.tone, cost.value, trust.value) == ("good", "1.4×", "checks passed")
    assert "swag: 2.8 s of training a run, MAP: 2 s" in cost.note


def test_a_cheaper_method_that_is_as_good_is_named():
    methods = {"map": MAP, "deep-ensemble": BETTER, "swag": [0.22, 0.22, 0.22]}
    found = summarize(made_comparison({"digits": methods}, {"deep-ensemble": 5.0, "swag": 1.1}))
    assert found.verdict.endswith("; swag (1.1×) is not significantly worse than deep-ensemble.")


def test_no_significant_difference_is_a_result():
    found = summarize(made_comparison({"digits": {"map": MAP, "bbb": EQUAL, "vl": EQUAL}}, {"bbb": 1.5, "vl": 2.0}))
    assert (
        found.verdict == "No method is significantly better in NLL than MAP: the cheapest method, MAP, is enough here."
    )
    assert found.tiles[0].tone == "neutral"
    assert found.tiles[0].note.endswith("not significant")


def test_a_loss_is_said():
    found = summarize(made_comparison({"digits": {"map": MAP, "bbb": WORSE}}))
    assert found.verdict == "bbb is significantly worse in NLL than MAP; keep MAP."
    assert found.tiles[0].tone == "bad"


def test_several_problems_are_counted():
    planted = {
        "digits": {"map": MAP, "a": BETTER, "b": BETTER},
        "wine": {"map": MAP, "a": BETTER, "b": WORSE},
        "gap": {"map": MAP, "a": EQUAL, "b": EQUAL},
    }
    found = summarize(made_comparison(planted))
    assert "a is significantly better in NLL than MAP on 2 of 3 problems, at 1×" in found.verdict
    assert found.tiles[0].value == "2 of 3 better"
    assert found.tiles[0].note == "a against MAP: 0 worse, 1 not significantly different"
    assert found.comparisons == 6


def test_a_single_run_has_its_scores_as_verdict():
    found = summarize(made_comparison({"digits": {"bbb": [0.25]}}, baseline={"nll": 2.3}))
    assert found.verdict == "bbb on digits: NLL 0.250 ± 0.010, Accuracy 0.900 ± 0.010, ECE 0.0200 ± 0.0040."
    assert [tile.heading for tile in found.tiles] == ["NLL", "Cost", "Trust"]
    assert found.tiles[0].note == "nats, over 100 test examples; the best constant prediction has 2.3"
    assert found.reference is None


def test_single_runs_are_paired_over_examples():
    comparison = made_comparison({"digits": {"map": [0.3], "bbb": [0.2]}})
    assert summarize(comparison).tiles[0].note.endswith("not significant")
    found = summarize(with_losses(comparison, {"map": 0.0, "bbb": -0.1}))
    assert found.paired_over == "test examples"
    assert found.tiles[0].note.endswith("significant at 5 %")


def test_failures_and_failed_checks_lower_the_trust():
    check = {"name": "baseline", "ok": False, "message": "the model has learned nothing", "value": 0.1}
    comparison = made_comparison({"digits": {"map": MAP, "bbb": EQUAL}}, checks=(check,))
    trust = summarize(comparison).tiles[2]
    assert (trust.value, trust.tone) == ("6 of 6 warned", "bad")
    assert tables_of(comparison)[0].rows[1].warning == "3 of 3 runs failed a check"
    broken = Comparison((*comparison.runs, ComparedRun("digits", "vl", 0, error="diverged")))
    assert summarize(broken).tiles[2].value == "1 of 7 failed"


def test_tables_have_means_over_seeds_and_marks_of_significance():
    comparison = made_comparison({"digits": {"map": MAP, "a": BETTER, "b": WORSE, "c": EQUAL}})
    (table,) = tables_of(comparison)
    assert table.headings == ("NLL ↓", "Accuracy ↑", "ECE ↓")
    assert [row.cells[0].better for row in table.rows] == [None, True, False, None]
    assert table.rows[1].cells[0].text == str(mean_over_seeds(BETTER))
    assert table.caption == "3 runs of each method, 100 test examples; mean ± standard error over runs"


def test_a_table_has_one_ece_and_one_auroc_for_each_ood_set():
    scores = {key: Estimate(0.5, 0.1) for key in ("nll", "ece", "ece_quantile")}
    keys = ("ood_auroc_entropy", "ood_auroc_max_probability", "ood_aupr_entropy")
    outside = {name: {key: Estimate(0.9, 0.01) for key in keys} for name in ("noise", "svhn", "letters")}
    record = made_record("digits", "map", 0, 0.5, scores=scores, ood=outside)
    (table,) = tables_of(Comparison((ComparedRun("digits", "map", 0, None, record),)))
    assert table.headings == ("NLL ↓", "ECE ↓", "OOD AUROC noise ↑", "OOD AUROC svhn ↑")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((-0.0391, 0.004), "−0.0391 ± 0.0040"), ((0.25, None), "+0.25"), ((0.0, 0.5), "+0.00 ± 0.50")],
)
def test_differences_have_a_sign(arguments: Any, text: str):
    assert signed(*arguments) == text


def test_an_unknown_cost_is_a_dash():
    comparison = made_comparison({"digits": {"map": MAP, "bbb": EQUAL}}, {"bbb": None})
    assert [row.cost for row in tables_of(comparison)[0].rows] == ["1×", "–"]
