"""Verdicts by rule, on planted results whose differences are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.studies import (
    FAILS,
    HOLDS,
    UNKNOWN,
    UNTESTED,
    Findings,
    Line,
    Verdict,
    append_line,
    read_results,
    read_study,
)
from bayeswell.studies.definition import Study
from bayeswell.studies.statistics import higher_is_better, paired, slope

HEAD = """
title = "t"
paper = "p"
scores = ["nll"]
seeds = 4
[run]
data = "digits"
[cells.a]
method = "bbb"
[cells.b]
method = "map"
[scales.cpu]
[scales.smoke]
"""
GRID = '\n[cells.g]\nmethod = "bbb"\ngrid = {"method.temperature" = [0.1, 0.3, 1.0]}\n'


def study_with(tmp_path: Path, claim: str, more: str = "") -> Study:
    path = tmp_path / "study.toml"
    path.write_text(f'{HEAD}{GRID}{more}\n[[claims]]\nname = "c"\ntext = "a claim"\n{claim}')
    return read_study(path)


def planted(study: Study, scale: str, scores: Mapping[str, list[Any]]) -> Findings:
    """Results as if runs had given them: by cell, a list over seeds of NLLs, or of tables of scores."""
    path = study.path.parent / "planted.jsonl"
    for cell in study.scale(scale).cells:
        for seed, value in enumerate(scores.get(cell.name, [])):
            found = value if isinstance(value, Mapping) else {"nll": value}
            append_line(path, Line(scale, cell.label, cell.at, seed, cell.settings_hash, cell.parts_hash, found))
    return Findings(study, study.scale(scale), read_results(path))


def verdict(tmp_path: Path, claim: str, scores: Mapping[str, list[Any]], more: str = "", scale: str = "cpu") -> Verdict:
    study = study_with(tmp_path, claim, more)
    return planted(study, scale, scores).verdict(study.claims[0])


BETTER = 'better = "a"\nthan = "b"\nscore = "nll"\n'
# a is better by 0.10, 0.14, 0.06, 0.10 at the four seeds: 0.1 +- 0.0163, though each alone spreads over a whole unit.
APART = {"a": [0.4, 1.4, 0.9, 0.7], "b": [0.5, 1.54, 0.96, 0.8]}


def test_a_difference_is_told_in_pairs_with_the_error_that_they_have(tmp_path: Path) -> None:
    found = verdict(tmp_path, BETTER, APART)
    assert found.word == HOLDS
    assert found.found is not None
    assert found.found.value == pytest.approx(0.1)
    assert found.found.error == pytest.approx(math.sqrt((0.04**2 + 0.04**2) / 3 / 4))


@pytest.mark.parametrize(("errors", "word"), [(6.0, HOLDS), (6.2, FAILS)])
def test_how_many_errors_a_claim_needs_is_what_its_rule_says(tmp_path: Path, errors: float, word: str) -> None:
    # 0.1 / 0.01633 = 6.12
    assert verdict(tmp_path, f"{BETTER}by_at_least_errors = {errors}", APART).word == word


def test_the_opposite_fails(tmp_path: Path) -> None:
    turned = {"a": APART["b"], "b": APART["a"]}
    found = verdict(tmp_path, BETTER, turned)
    assert found.word == FAILS
    assert "the opposite" in found.said


# a loses 0.1 +- 0.0163: between 0.067 and 0.133 with two errors on either side.
@pytest.mark.parametrize(("margin", "word"), [(0.06, FAILS), (0.07, UNTESTED), (0.13, UNTESTED), (0.14, HOLDS)])
def test_no_loss_is_told_only_with_errors_to_spare(tmp_path: Path, margin: float, word: str) -> None:
    turned = {"a": APART["b"], "b": APART["a"]}
    assert verdict(tmp_path, f"{BETTER}not_worse_by = {margin}", turned).word == word


def test_noise_makes_no_claim_of_no_loss_true(tmp_path: Path) -> None:
    noisy = {"a": [0.5, 0.7, 0.4, 0.6], "b": [0.6, 0.6, 0.6, 0.42]}  # d = 0.005 +- 0.0877
    assert verdict(tmp_path, f"{BETTER}not_worse_by = 0.01", noisy).word == UNTESTED
    with pytest.raises(SettingError, match="noise would make it true"):
        verdict(tmp_path, f"{BETTER}by_at_least_errors = -2", noisy)


def test_an_effect_that_could_not_have_been_seen_is_not_testable(tmp_path: Path) -> None:
    noisy = {"a": [0.5, 0.7, 0.4, 0.6], "b": [0.6, 0.6, 0.6, 0.42]}  # d = 0.005 +- 0.0877
    assert verdict(tmp_path, BETTER, noisy).word == FAILS  # nothing is said of how large it should be
    assert verdict(tmp_path, f"{BETTER}effect = 0.15", noisy).word == UNTESTED
    assert verdict(tmp_path, f"{BETTER}effect = 0.19", noisy).word == FAILS
    one = '[[printed]]\nwhere = "T"\ncell = "{}"\nvalues = {{nll = {}}}\n'
    printed = one.format("a", 0.2) + one.format("b", 0.35)
    assert verdict(tmp_path, BETTER, noisy, printed).word == UNTESTED  # the paper's own difference, 0.15


SAME = 'same = ["a", "b"]\nscore = "nll"\nwithin = 0.1'


@pytest.mark.parametrize("rule", [BETTER, f"{BETTER}not_worse_by = 0.1", SAME])
def test_cells_that_nothing_set_apart_show_nothing(tmp_path: Path, rule: str) -> None:
    rows = [{"nll": value, "accuracy": 0.5, "milliseconds_per_step": 2.0} for value in APART["a"]]
    slower = [row | {"milliseconds_per_step": 3.0} for row in rows]
    found = verdict(tmp_path, rule, {"a": rows, "b": slower})
    assert found.word == UNTESTED
    assert "nothing set the two apart" in found.said


def test_a_tie_in_one_score_is_a_result(tmp_path: Path) -> None:
    rows = {cell: [{"nll": value, "accuracy": 0.5} for value in APART[cell]] for cell in "ab"}
    by_accuracy = BETTER.replace("nll", "accuracy")
    assert verdict(tmp_path, f"{by_accuracy}not_worse_by = 0.1", rows).word == HOLDS
    assert verdict(tmp_path, by_accuracy, rows).word == FAILS
    cut = [{"whole.accuracy": 0.5, "rank1.accuracy": 0.5}] * 3
    itself = 'better = "a"\nthan = "a"\nscore = "rank1.accuracy"\nthan_score = "whole.accuracy"\nnot_worse_by = 0.1'
    assert verdict(tmp_path, itself, {"a": cut, "b": []}).word == HOLDS


def test_of_accuracies_the_higher_is_better(tmp_path: Path) -> None:
    rows = {"a": [{"accuracy": 0.9}, {"accuracy": 0.92}], "b": [{"accuracy": 0.8}, {"accuracy": 0.83}]}
    claim = BETTER.replace("nll", "accuracy")
    assert verdict(tmp_path, claim, rows).word == HOLDS
    assert verdict(tmp_path, claim + "higher = false", rows).word == FAILS
    assert all(map(higher_is_better, ("validation.accuracy", "accuracy.last", "auroc", "train.accuracy.first")))
    assert not any(map(higher_is_better, ("ece", "train.nll.first", "validation.nll")))


def test_two_cells_are_the_same_if_their_difference_surely_is_small(tmp_path: Path) -> None:
    same = 'same = ["a", "b"]\nscore = "nll"\nwithin = {}\n'
    assert verdict(tmp_path, same.format(0.14), APART).word == HOLDS  # |-0.1| + 2 x 0.0163 = 0.133
    assert verdict(tmp_path, same.format(0.12), APART).word == UNTESTED
    assert verdict(tmp_path, same.format(0.05), APART).word == FAILS


def test_a_value_lies_between_or_does_not(tmp_path: Path) -> None:
    value = 'value = "a"\nscore = "nll"\nbetween = {}\n'
    rows = {"a": [0.5, 0.54]}  # 0.52 +- 0.02
    assert verdict(tmp_path, value.format("[0.47, 0.57]"), rows).word == HOLDS
    assert verdict(tmp_path, value.format("[0.5, 0.57]"), rows).word == UNTESTED
    assert verdict(tmp_path, value.format("[0.6, 0.7]"), rows).word == FAILS
    assert verdict(tmp_path, value.format("[0.5, 0.5]"), {"a": [0.5]}).word == UNTESTED  # one seed
    assert verdict(tmp_path, value.format("[0.5, 0.5]\nexact = true"), {"a": [0.5]}, scale="smoke").word == HOLDS
    assert verdict(tmp_path, value.format("[0.6, 0.7]\nexact = true"), {"a": [0.5]}, scale="smoke").word == FAILS


def test_a_ratio_is_that_of_the_same_seeds(tmp_path: Path) -> None:
    ratio = 'ratio = "a"\nto = "b"\nscore = "nll"\nbetween = [2.4, 2.7]\n'
    assert verdict(tmp_path, ratio, {"a": [2.5, 26], "b": [1, 10]}).word == HOLDS
    assert verdict(tmp_path, ratio, {"a": [3, 31], "b": [1, 10]}).word == FAILS


def test_a_trend_is_the_slope_over_the_points_of_the_grid(tmp_path: Path) -> None:
    rows = {"g@temperature=0.1": [1.0, 2.0], "g@temperature=0.3": [1.2, 2.1], "g@temperature=1": [1.4, 2.4]}
    trend = 'trend = "{}"\nof = "g"\nalong = "method.temperature"\nscore = "nll"\n'
    assert verdict(tmp_path, trend.format("rises"), rows).word == HOLDS
    assert verdict(tmp_path, trend.format("falls"), rows).word == FAILS
    found = slope([{0: 1.0, 1: 2.0}, {0: 1.2, 1: 2.1}, {0: 1.4, 1: 2.4}])
    assert found is not None
    assert (found.value, found.error) == (pytest.approx(0.2), pytest.approx(0.0))


def test_a_point_of_the_grid_is_chosen_by_validation_data_and_not_by_the_test_set(tmp_path: Path) -> None:
    def rows(test: float, held_out: float) -> list[Any]:
        return [{"nll": test, "validation.nll": held_out}, {"nll": test + 0.01, "validation.nll": held_out}]

    scores = {
        "g@temperature=0.1": rows(0.9, 0.2), "g@temperature=0.3": rows(0.1, 0.3), "g@temperature=1": rows(0.5, 0.4),
        "b": rows(0.6, 0.6),
    }  # fmt: skip
    claim = BETTER.replace('"a"', '"g"')
    assert verdict(tmp_path, claim, scores, '[choose]\nby = "validation.nll"').word == FAILS  # 0.9 is what was chosen
    assert verdict(tmp_path, claim + 'at = {"method.temperature" = 0.3}\nthan_at = {}', scores).word == HOLDS
    with pytest.raises(SettingError, match="has 3 points of the grid"):
        verdict(tmp_path, claim, scores)
    with pytest.raises(SettingError, match="chosen by validation data"):
        verdict(tmp_path, claim, scores, '[choose]\nby = "nll"')
    with pytest.raises(SettingError, match=r"choose\.by = 'test\.nll\.last': settings are chosen by validation data"):
        verdict(tmp_path, claim, scores, '[choose]\nby = "test.nll.last"')


def test_without_results_without_errors_or_at_the_smoke_scale_nothing_is_judged(tmp_path: Path) -> None:
    assert verdict(tmp_path, BETTER, {}).word == UNKNOWN
    assert verdict(tmp_path, BETTER, {"a": [0.1], "b": [0.9]}).word == UNTESTED
    assert verdict(tmp_path, BETTER, APART, scale="smoke").word == UNTESTED
    found = verdict(tmp_path, 'not_testable = "ImageNet cannot be had"', APART)
    assert (found.word, found.said) == (UNTESTED, "ImageNet cannot be had")
    assert verdict(tmp_path, f'{BETTER}scales = ["paper"]\nwhy = "needs 300 epochs"', APART).said == "needs 300 epochs"


def test_two_scores_of_one_cell_can_be_compared(tmp_path: Path) -> None:
    rows = {"a": [{"train.kl.last": 5, "train.kl.first": 9}, {"train.kl.last": 6, "train.kl.first": 8.5}]}
    claim = 'better = "a"\nthan = "a"\nscore = "train.kl.last"\nthan_score = "train.kl.first"\n'
    assert verdict(tmp_path, claim, rows).word == HOLDS


def test_pairs_are_those_seeds_that_both_have() -> None:
    found = paired({0: 1.0, 1: 5.0, 2: 3.0}, {0: 0.5, 2: 2.0, 7: 9.0})
    assert found is not None
    assert (found.value, found.error) == (pytest.approx(0.75), pytest.approx(0.25))
    assert paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ('better = "x"\nthan = "b"\nscore = "nll"', "no cell 'x'"),
        ('better = "a"\nscore = "nll"', "'better' needs 'than'"),
        (BETTER + 'value = "a"', "one of better"),
        (BETTER + "errors = 2", "unknown key 'errors'"),
        (BETTER + 'control_of = "d"', "no claim 'd'"),
        ('trend = "up"\nof = "g"\nalong = "epochs"\nscore = "nll"', "rises or falls"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(tmp_path: Path, claim: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        study_with(tmp_path, claim)
