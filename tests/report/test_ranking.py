"""Who leads, who is level, whom to take: planted numbers, and how often chance misleads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bayeswell.report.numbers import SCORES
from bayeswell.report.ranking import Contest, contest_of
from bayeswell.report.summary import tables_of
from bayeswell.report.verdict import Verdict, verdict_of
from report.planted import run

NLL = next(score for score in SCORES if score.key == "nll")
BASE = [0.11 * (place % 7) for place in range(40)]
WAVE = [0.01 * (-1) ** place for place in range(40)]
"""Mean 0, standard error 0.01 / sqrt(39)."""
ERROR = 0.01 / math.sqrt(39)


def shifted(by: float, spread: float = 1.0) -> list[float]:
    return [one + by + spread * wave for one, wave in zip(BASE, WAVE, strict=True)]


def method(label: str, by: float, *, passes: float = 100.0, kept: float | None = None, **others: Any) -> Any:
    """Its NLL is ``by`` above that of ``map`` at every example, give or take 0.01."""
    values = shifted(by, 0.0 if by == 0 else 1.0)
    result = {} if kept is None else {"variational_parameters": kept, "draws": 1 if label == "map" else 50}
    mean = math.fsum(values) / len(values)
    return run(label, {"nll": mean}, examples={"nll": values}, passes=passes, result=result, **others)


def contest(*runs: Any) -> Contest:
    (table,) = tables_of(runs)
    found = contest_of(table.rows, NLL)
    assert found is not None
    return found


def judged(*runs: Any) -> Verdict:
    found = verdict_of(tables_of(runs)[0])
    assert found is not None
    return found


def advice(verdict: Verdict, purpose: str) -> tuple[str, str]:
    (found,) = [one for one in verdict.advice if one.purpose == purpose]
    return found.choice, found.reason


def test_level_and_behind() -> None:
    """Against the leader ``a`` the differences are 1.0, 2.3 and 7.0 ERROR with errors of ERROR, 1.4 and 1.4 ERROR.

    Of three others each is behind beyond 2.5 of its standard errors (39 degrees of freedom).
    """
    runs = [method("map", 0.0), method("a", -1.0 * ERROR), method("b", 1.3 * ERROR), method("c", 6.0 * ERROR)]
    for place, by in ((2, 1.3), (3, 6.0)):  # a wave that has nothing to do with that of ``a``
        wave = [0.01 * (-1) ** (index // 2) for index in range(40)]
        values = [one + by * ERROR + other for one, other in zip(BASE, wave, strict=True)]
        runs[place].inspection["by_example"]["nll"] = values
    found = contest(*runs)
    assert found.leader.label == "a"
    assert [row.label for row in found.level] == ["a", "map", "b"]
    (behind,) = found.behind
    assert behind[0].label == "c"
    assert behind[1].value == pytest.approx(7 * ERROR)
    assert behind[1].error == pytest.approx(math.sqrt(2) * ERROR)
    assert behind[1].limit(3) == pytest.approx(2.50, abs=0.005)
    assert not found.decided
    assert not found.open


def test_stars_go_to_all_that_are_level() -> None:
    (table,) = tables_of([method("map", 0.0), method("a", -1.0 * ERROR), method("c", 6.0 * ERROR)])
    assert [row.cells["nll"].best for row in table.rows] == [True, True, False]
    assert [row["scores"]["nll"].get("best", False) for row in table.comparison["rows"]] == [True, True, False]


def test_without_errors_the_best_mean_alone_is_marked() -> None:
    (table,) = tables_of([run("a", {"nll": 0.3}), run("b", {"nll": 0.4}), run("c", {"nll": 0.3})])
    assert [row.cells["nll"].best for row in table.rows] == [True, False, True]
    assert [row.label for row in contest(run("a", {"nll": 0.3}), run("b", {"nll": 0.4})).unknown] == ["b"]


def tables(means: Sequence[float], count: int, examples: int = 60) -> list[Contest]:
    """Contests of methods with these true means, whose examples share what is hard in them."""
    rng = np.random.default_rng(17)
    found = []
    for _ in range(count):
        hard = rng.standard_normal(examples)
        runs = []
        for index, mean in enumerate(means):
            values = (mean + hard + 0.3 * rng.standard_normal(examples)).tolist()
            runs.append(run(f"m{index}", {"nll": math.fsum(values) / examples}, examples={"nll": values}))
        found.append(contest(*runs))
    return found


def test_the_truly_best_is_marked_in_95_of_100_tables() -> None:
    """Of four methods the first is best by one standard error of a difference, and of four equals it is no better.

    300 tables: a rate of 0.05 has a standard error of 0.013; the bound is 5 of them above.
    """
    error = 0.3 * math.sqrt(2 / 60)
    for means in ([0.0, error, error, error], [0.0] * 4):
        missed = sum(all(row.label != "m0" for row in one.level) for one in tables(means, 300))
        assert missed / 300 < 0.05 + 5 * math.sqrt(0.05 * 0.95 / 300)


def test_of_two_equals_one_in_twenty_is_called_different() -> None:
    told = [not one.open for one in tables([0.0, 0.0], 600)]
    assert abs(np.mean(told) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / 600)


def test_of_three_seeds_too() -> None:
    """By the quantile of Student's distribution; with two standard errors it would be 18 in 100."""
    rng = np.random.default_rng(3)
    told = []
    for _ in range(500):
        numbers = rng.standard_normal((2, 3))
        runs = [run(f"m{m}", {"nll": float(numbers[m, s])}, seed=s) for m in range(2) for s in range(3)]
        told.append(not contest(*runs).open)
    assert abs(np.mean(told) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / 500)


def test_a_real_difference_is_found() -> None:
    """Five standard errors apart: beyond 2.66 (three looks, 59 degrees) in 99 of 100 tables."""
    error = 0.3 * math.sqrt(2 / 60)
    found = tables([0.0, 5 * error, 5 * error, 5 * error], 100)
    assert sum(one.decided for one in found) >= 90


def test_the_opening_says_who_leads_and_by_how_much() -> None:
    sure = judged(method("map", 0.0), method("a", -9 * ERROR, passes=200))
    assert sure.opening == (
        "a leads in the only score, NLL, ahead of every other method by more than the error. Against map alone it is "
        "better in NLL. It costs 2 times map's passes."
    )
    level = judged(method("map", 0.0), method("a", -0.5 * ERROR))
    assert level.opening.startswith("In NLL no other method can be told from the best; a has the best mean")
    assert "Against map alone nothing differs by more than its error." in level.opening
    own = judged(method("map", 0.0), method("a", 9 * ERROR))
    assert own.opening.endswith("map is ordinary training: no Bayesian method leads in more scores.")


def test_of_one_seed_stars_speak_of_trained_networks() -> None:
    one = judged(method("map", 0.0), method("a", 0.1 * ERROR))
    assert one.marks.endswith("With one seed that is said of these trained networks, not of the methods: another seed "
                              "may change it.")  # fmt: skip


def test_nothing_is_called_cheaper_or_leaner_at_the_same_price() -> None:
    found = judged(method("map", 0.0), method("a", -0.5 * ERROR), method("b", 0.5 * ERROR))
    choice, reason = advice(found, "cost")
    assert choice == "a"  # of equals the lower NLL
    assert "map and b take as many passes, and keep as many numbers" in reason
    assert "keep more" not in reason
    assert "costs least" not in advice(found, "probabilities")[1]


def test_some_scores_are_decided_and_some_not() -> None:
    def two(label: str, nll: float, hits: Sequence[float]) -> Any:
        values = shifted(nll, 0.0 if nll == 0 else 1.0)
        numbers = {"nll": math.fsum(values) / 40, "accuracy": math.fsum(hits) / 40}
        return run(label, numbers, examples={"nll": values, "accuracy": hits})

    right = [float(place % 10 != 0) for place in range(40)]
    found = judged(two("map", 0.0, right), two("a", -9 * ERROR, [1.0, *right[1:]]))
    assert found.opening.startswith("a has the best mean in 2 of 2 scores; ahead of every other by more than the error")
    assert "only in NLL. Against map alone it is better in NLL." in found.opening
    choice, reason = advice(found, "accuracy")
    assert choice == "any"
    assert reason.startswith("accuracy from 0.9000 to 0.9250: none differs from the best, a's, by more than its error.")


def test_advice_takes_the_cheapest_of_those_that_are_level() -> None:
    runs = [method("map", 0.0, kept=10), method("dear", -9 * ERROR, passes=500, kept=50),
            method("cheap", -8.8 * ERROR, passes=100, kept=20)]  # fmt: skip
    # The waves of both are alike, so that their difference has no error: another wave for one of them.
    values = [one - 8.8 * ERROR - wave for one, wave in zip(BASE, WAVE, strict=True)]
    runs[2].inspection["by_example"]["nll"] = values
    found = judged(*runs)
    choice, reason = advice(found, "probabilities")
    assert choice == "cheap"
    mean = math.fsum(BASE) / 40
    assert reason.startswith(
        f"NLL {mean - 8.8 * ERROR:.4f} is level with the best, dear's {mean - 9 * ERROR:.4f}, at a lower price (100 "
        "passes against 500). Behind by more than the error: map (by 0.0144 ± 0.0016)."
    )
    choice, reason = advice(found, "cost")
    assert choice == "map"
    assert reason == (
        "100 passes and 10 numbers kept, the least (cheap takes as many passes, and keeps more); it gives up NLL (by "
        "0.0144 ± 0.0016) against the best. Of the Bayesian methods cheap keeps the fewest numbers, 20: 0.4 times "
        "dear's."
    )


def test_advice_for_the_gap_goes_by_what_the_intervals_hold() -> None:
    """Of 100 targets 90 % intervals hold 84.1 at least within 1.96 errors of 3."""

    def band(share: float) -> dict[str, Any]:
        gap = {"ends": [-1.0, 1.0], "epistemic": [0.3, 0.1], "covered": [share, 0.9], "tests": [100, 200]}
        return {"regression_band": {"gap": gap}}

    narrow = method("map", 0.0, records=band(0.4))
    found = judged(narrow, method("a", 3 * ERROR, records=band(0.85)), method("b", -ERROR, records=band(0.83)))
    choice, reason = advice(found, "inputs without data near them")
    assert choice == "a"
    assert (
        "the 90 % intervals hold 40 % (map), 85 % (a) and 83 % (b); at least 84 % would be within the error" in reason
    )
    assert advice(judged(narrow, method("b", -ERROR, records=band(0.83))), "inputs without data near them")[0] == "none"


def test_worse_than_ordinary_training_is_an_alarm_only_beyond_chance() -> None:
    found = judged(method("map", 0.0), method("a", 2.5 * ERROR), method("b", -ERROR))
    assert list(found.worse) == ["a"]
    assert found.worse["a"].startswith("worse than map by more than the error: NLL (")
    assert judged(method("map", 0.0), method("a", 1.5 * ERROR)).worse == {}
