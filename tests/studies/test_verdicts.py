"""Verdicts: Student's t, chance, epochs, and each rule, on made-up runs; and those of the recorded results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from studies.definition import Cell, Claim, Scale, Study, read_studies
from studies.page import count_table, verdict_table
from studies.results import UNTRAINED, Line, append_lines, read_lines
from studies.verdicts import HOLDS, NOT_RUN, OPPOSITE, UNDECIDED, VERDICTS, Findings, decide, half_width, moved

SEEDS = 3


def cells(epochs):
    settings = {"data": "mnist", "epochs": epochs}
    grid = [Cell("grid", (("lr", lr),), settings) for lr in (0.1, 1.0, 10.0)]
    return (*(Cell(label, (), settings) for label in ("a", "b")), *grid)


def findings(values, *, epochs=20, choose="", printed=None):
    """Findings of runs {(label, point): {score: values over seeds}}; the scale paper has 50 epochs."""
    scales = {"small": Scale("small", SEEDS, cells(epochs)), "paper": Scale("paper", SEEDS, cells(50))}
    study = Study("made", Path("."), "", "", scales, (), printed or {}, (), choose)
    lines = [
        Line(
            "small",
            label,
            dict(point),
            seed,
            {key: values[seed] for key, values in {"accuracy": [0.9] * 3, **s}.items()},
        )
        for (label, point), s in values.items()
        for seed in range(SEEDS)
    ]
    return Findings.of(study, lines)


def two(first, second, **settings):
    return findings({("a", ()): first, ("b", ()): second}, **settings)


BETTER = Claim("", {"better": "a", "than": "b", "score": "nll"})


def test_half_width_is_that_of_student():
    values = [0.3, 0.5, 0.1, 0.35]
    low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
    assert half_width(dict(enumerate(values))) == pytest.approx((high - low) / 2, rel=1e-9)
    assert half_width({0: 1.0}) == float("inf")


def test_differences_are_paired_and_signed():
    found = two({"nll": [1.0, 2.0, 3.0]}, {"nll": [1.5, 2.4, 3.6]}).verdict(BETTER)
    assert found.value == pytest.approx(0.5)
    assert found.half == pytest.approx(4.302652729911275 * 0.1 / 3**0.5, rel=1e-6)
    assert found.word == HOLDS


def test_three_verdicts_of_a_difference():
    assert two({"nll": [1.5, 2.4, 3.6]}, {"nll": [1.0, 2.0, 3.0]}).verdict(BETTER).word == OPPOSITE
    assert two({"nll": [1.0, 2.0, 3.0]}, {"nll": [1.1, 1.9, 3.3]}).verdict(BETTER).word == UNDECIDED


def test_two_standard_errors_of_three_seeds_are_not_enough():
    gain = [0.1, 0.35, 0.5]
    assert np.mean(gain) > 2 * scipy.stats.sem(gain)
    assert two({"nll": [0.0] * 3}, {"nll": gain}).verdict(BETTER).word == UNDECIDED


def test_accuracy_is_better_if_higher():
    claim = Claim("", {"better": "a", "than": "b", "score": "accuracy"})
    assert two({"accuracy": [0.9, 0.91, 0.92]}, {"accuracy": [0.8, 0.81, 0.83]}).verdict(claim).word == HOLDS


def test_no_loss_is_claimed_with_a_margin():
    claim = Claim("", {**BETTER.rule, "not_worse_by": 0.1})
    assert two({"nll": [1.01, 2.0, 3.0]}, {"nll": [1.0, 2.0, 3.01]}).verdict(claim).word == HOLDS
    assert two({"nll": [1.31, 2.3, 3.3]}, {"nll": [1.0, 2.0, 3.0]}).verdict(claim).word == OPPOSITE


def test_same_needs_the_whole_interval_inside():
    claim = Claim("", {"same": ["a", "b"], "score": "nll", "within": 0.05})
    assert two({"nll": [1.0, 2.0, 3.0]}, {"nll": [1.01, 2.01, 3.0]}).verdict(claim).word == HOLDS
    assert two({"nll": [1.0, 2.0, 3.0]}, {"nll": [1.06, 1.96, 3.0]}).verdict(claim).word == UNDECIDED


def test_ratio_of_printed_numbers():
    claim = Claim("", {"ratio": "a", "to": "b", "score": "nll", "between": [1.5, 2.5]})
    printed = {"a": {"nll": 6.0}, "b": {"nll": 4.0}}
    verdict = two({"nll": [2.0, 4.1, 6.0]}, {"nll": [1.0, 2.0, 3.0]}, printed=printed).verdict(claim)
    assert (verdict.word, verdict.printed) == (HOLDS, 1.5)


GRID = {("grid", (("lr", lr),)): {"nll": [lr + 0.1 * s for s in range(3)], "validation.nll": [11 - lr] * 3}
        for lr in (0.1, 1.0, 10.0)}  # fmt: skip


def test_trend_is_the_slope_over_the_points():
    claim = Claim("", {"trend": "rises", "of": "grid", "along": "lr", "score": "nll"})
    verdict = findings(GRID).verdict(claim)
    assert verdict.value == pytest.approx((10.0 - 0.1) / 2)
    assert verdict.word == HOLDS


def test_validation_chooses_the_point():
    claim = Claim("", {"value": "grid", "score": "nll", "between": [9, 11]})
    assert findings(GRID, choose="validation.nll").verdict(claim).value == pytest.approx(10.1)
    assert findings(GRID).verdict(claim).note == "the rule needs a point of the grid"


def test_movement_between_two_points():
    found = findings({("grid", (("lr", lr),)): {"nll": [2 - lr, 1.0, lr]} for lr in (0.1, 10.0)})
    rule = {"moved": [0.1, 10.0], "along": "lr", "score": "nll"}
    assert moved(found, "grid", rule) == pytest.approx({0: 9.9, 1: 0.0, 2: 9.9})


def test_share_counts_failed_runs_as_below():
    found = findings({("grid", (("lr", lr),)): {"accuracy": [lr] * 3} for lr in (0.1, 1.0)})
    failed = [Line("small", "grid", {"lr": 10.0}, seed, error="diverged") for seed in range(3)]
    found = Findings(found.study, found.scale, [*found.lines, *failed])
    claim = Claim("", {"value": "grid", "score": "share(accuracy > 0.5)", "between": [0.3, 0.4]})
    assert found.verdict(claim).value == pytest.approx(1 / 3)


def test_no_verdict_at_chance():
    verdict = two({"nll": [1.0, 2, 3], "accuracy": [0.13] * 3}, {"nll": [2.0, 3.1, 4]}).verdict(BETTER)
    assert (verdict.word, verdict.note) == (NOT_RUN, "a is no better than chance")


def test_no_verdict_from_two_of_fifty_epochs():
    verdict = two({"nll": [1.0, 2, 3]}, {"nll": [2.0, 3.1, 4]}, epochs=2).verdict(BETTER)
    assert (verdict.word, verdict.note) == (NOT_RUN, "2 of 50 epochs")


def test_no_verdict_where_the_claim_says_so():
    claim = Claim("", BETTER.rule, not_run="capped")
    verdict = two({"nll": [1.0, 2, 3]}, {"nll": [2.0, 3.1, 4]}).verdict(claim)
    assert (verdict.word, verdict.note) == (NOT_RUN, "capped")


def test_no_verdict_from_equal_runs():
    assert two({"nll": [1.0, 2, 3]}, {"nll": [1.0, 2, 3]}).verdict(BETTER).note.startswith("equal in every run")


def test_counts_need_no_training():
    claim = Claim("", {"value": "a", "score": "num_params", "rounds_to": 1000})
    found = findings({}, epochs=1, printed={"a": {"num_params": 957000}})
    line = Line(UNTRAINED, "a", {}, 0, {"num_params": 956820.0})
    assert Findings(found.study, found.scale, [line]).verdict(claim).word == HOLDS
    other = Line(UNTRAINED, "a", {}, 0, {"num_params": 956400.0})
    assert Findings(found.study, found.scale, [other]).verdict(claim).word == OPPOSITE


def test_decide_at_the_edges():
    assert decide(1.0, 0.0, 1.0, 2.0) == HOLDS
    assert decide(1.0, 0.1, 1.0, 2.0) == UNDECIDED
    assert decide(0.5, 0.1, 1.0, 2.0) == OPPOSITE


def test_lines_survive_a_file(tmp_path):
    path = tmp_path / "results" / "x.jsonl"
    failed = Line("small", "a", {"betas": [0.9, 0.5]}, 0, error="killed")
    done = Line("small", "a", {"betas": [0.9, 0.5]}, 0, {"nll": 1.0})
    append_lines(path, [failed])
    append_lines(path, [done, failed])
    assert read_lines(path) == [done]
    assert done.point == (("betas", (0.9, 0.5)),)


def test_every_claim_on_recorded_results_has_a_verdict():
    for study in read_studies():
        found = Findings.of(study)
        for claim in study.claims:
            verdict = found.verdict(claim)
            assert verdict.word in VERDICTS
            assert (verdict.word == NOT_RUN) == bool(verdict.note)


def test_tables_are_markdown():
    table = verdict_table("hwa")
    assert "claims: " in table
    assert "| claim | in the paper | ours | verdict |" in table
    assert len(verdict_table("hwa", headlines=False)) > len(table)
    assert count_table().splitlines()[-1].startswith("| all |")
