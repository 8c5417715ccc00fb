"""The words say what the numbers say: numbers are planted, and the words are those worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from bayeswell.report.differences import difference, student_quantile
from bayeswell.report.reading import RunRecord
from bayeswell.report.summary import tables_of
from bayeswell.report.verdict import Verdict, verdict_of
from report.planted import run

BASE = [0.1, 0.3, 0.2, 0.4]


def judged(*runs: RunRecord) -> Verdict:
    (table,) = tables_of(runs)
    found = verdict_of(table)
    assert found is not None
    return found


def shifted(by: Sequence[float]) -> dict[str, list[float]]:
    return {"nll": [one + other for one, other in zip(BASE, by, strict=True)]}


MAP = run("map", {"nll": 0.25}, examples={"nll": BASE}, errors={"nll": 0.065})


def test_examples_are_compared_in_pairs() -> None:
    """Differences -0.03, -0.01, -0.03, -0.01: mean -0.02, std 0.02/sqrt(3), error 0.01/sqrt(3); unpaired it is 0.09."""
    by = [-0.03, -0.01, -0.03, -0.01]
    (table,) = tables_of([MAP, run("a", {"nll": 0.23}, examples=shifted(by), errors={"nll": 0.065})])
    found = difference(table.rows[1], table.rows[0], "nll")
    assert found is not None
    assert found.value == pytest.approx(-0.02)
    assert found.error == pytest.approx(0.01 / math.sqrt(3))
    assert found.told
    assert found.over == "the same test examples"


def test_without_examples_or_on_other_data_nothing_is_paired() -> None:
    (table,) = tables_of([MAP, run("a", {"nll": 0.23}, errors={"nll": 0.072})])
    found = difference(table.rows[1], table.rows[0], "nll")
    assert found is not None
    assert found.error == pytest.approx(math.hypot(0.065, 0.072))
    assert found.over == "test examples, not in pairs"
    assert not found.told
    (table,) = tables_of([MAP, run("a", {"nll": 0.23}, examples={"nll": [0.1, 0.2, 0.3]}, errors={"nll": 0.072})])
    short = difference(table.rows[1], table.rows[0], "nll")
    assert short is not None
    assert short.over == "test examples, not in pairs", "three examples are not four"
    (table,) = tables_of([MAP, run("a", {"nll": 0.23}, examples=shifted([0, 0, 0, 0]), data="other")])
    assert difference(table.rows[1], table.rows[0], "nll") is None


def test_of_few_seeds_little_is_known() -> None:
    """Two seeds: t of one degree of freedom is beyond 12.7 in one of twenty; -0.2 with an error of 0.1 is nothing."""
    runs = [run("map", {"nll": 1.0}), run("map", {"nll": 2.0}, seed=1),
            run("a", {"nll": 0.9}), run("a", {"nll": 1.7}, seed=1)]  # fmt: skip
    (table,) = tables_of(runs)
    found = difference(table.rows[1], table.rows[0], "nll")
    assert found is not None
    assert found.limit() == pytest.approx(12.7062, rel=1e-4)
    assert not found.told


@pytest.mark.parametrize(
    ("tail", "freedom", "value"), [(0.05, 2, 4.30265), (0.05, 7.5, 2.33306), (0.01, 30, 2.74999), (0.05, 1e6, 1.95996)]
)
def test_quantiles_of_student(tail: float, freedom: float, value: float) -> None:
    """Tables; that of 7.5 degrees by numerical integration of the density."""
    assert student_quantile(tail, freedom) == pytest.approx(value, rel=1e-4)


def test_seeds_and_examples_both_count() -> None:
    """Seeds: -0.1 and -0.3, error 0.1. Examples: mean differences over seeds -0.1, -0.3, -0.1, -0.3, error 0.1/sqrt(3).

    Degrees of freedom: (0.01 + 0.01/3)^2 / (1e-4 / 1 + (1e-4 / 9) / 3).
    """
    first, second = [-0.0, -0.2, -0.0, -0.2], [-0.2, -0.4, -0.2, -0.4]
    runs = [run("map", {"nll": 0.25}, examples={"nll": BASE}),
            run("map", {"nll": 0.25}, examples={"nll": BASE}, seed=1),
            run("a", {"nll": 0.15}, examples=shifted(first)),
            run("a", {"nll": -0.05}, examples=shifted(second), seed=1)]  # fmt: skip
    (table,) = tables_of(runs)
    found = difference(table.rows[1], table.rows[0], "nll")
    assert found is not None
    assert found.value == pytest.approx(-0.2)
    assert found.error == pytest.approx(math.sqrt(0.01 + 0.01 / 3))
    assert found.freedom == pytest.approx((0.01 + 0.01 / 3) ** 2 / (1e-4 + 1e-4 / 27))
    assert found.over == "the same test examples and 2 seeds"


def test_several_seeds_are_paired_by_seed() -> None:
    """Seeds differ by 1, methods by -0.1 and -0.3: mean -0.2, error 0.1."""
    runs = [run("map", {"nll": 1.0}), run("map", {"nll": 2.0}, seed=1),
            run("a", {"nll": 0.9}), run("a", {"nll": 1.7}, seed=1)]  # fmt: skip
    (table,) = tables_of(runs)
    found = difference(table.rows[1], table.rows[0], "nll")
    assert found is not None
    assert found.value == pytest.approx(-0.2)
    assert found.error == pytest.approx(0.1)
    assert found.over == "2 seeds"


def test_two_sides_of_an_auroc_both_count() -> None:
    """Variances of the differences over n: 0.02^2 * 4/3 / 4 inside, 0.04^2 * 4/3 / 4 outside."""
    sides = {"ood_auroc_entropy": [0.5] * 4, "ood_auroc_entropy.outside": [0.5] * 4}
    moved = {
        "ood_auroc_entropy": [0.52, 0.48, 0.52, 0.48], "ood_auroc_entropy.outside": [0.54, 0.46, 0.54, 0.46],
    }  # fmt: skip
    runs = [
        run("map", {"ood_auroc_entropy": 0.5}, examples=sides),
        run("a", {"ood_auroc_entropy": 0.5}, examples=moved),
    ]
    (table,) = tables_of(runs)
    found = difference(table.rows[1], table.rows[0], "ood_auroc_entropy")
    assert found is not None
    assert found.error == pytest.approx(math.sqrt((0.02**2 + 0.04**2) / 3))


def test_words_for_a_gain_a_draw_and_a_loss() -> None:
    found = judged(
        MAP,
        run("good", {"nll": 0.23}, examples=shifted([-0.03, -0.01, -0.03, -0.01]), passes=200),
        run("same", {"nll": 0.26}, examples=shifted([0.03, -0.01, 0.03, -0.01])),
        run("bad", {"nll": 0.27}, examples=shifted([0.03, 0.01, 0.03, 0.01]), passes=500),
    )
    assert found.control == (
        "map, ordinary training, is what the others are measured against: NLL 0.2500, for 100 passes."
    )
    assert found.lines == [
        "good: better than map in NLL (0.2300, by 0.0200 ± 0.0058). It costs 2 times map's passes.",
        "same: no better than map here, and no worse: level in NLL (0.2600, +0.0100 ± 0.012). It costs what map costs.",
        "bad: loses to map: worse in NLL (0.2700, by 0.0200 ± 0.0058), better in nothing. "
        "It costs 5 times map's passes.",
    ]
    assert found.closing == (
        "On digits, against map: good is better in some scores and worse in none; same makes no difference that can be "
        "told; bad loses. The lowest NLL is good's, 0.2300, at 2 times map's passes."
    )
    assert "of the 3 differences fewer than one would look so by chance" in found.meaning
    assert "another seed" in found.meaning


def test_higher_accuracy_is_better_and_both_kinds_stand_in_one_line() -> None:
    hits = {"accuracy": [0.0, 1.0, 1.0, 1.0], "nll": BASE}
    more = {"accuracy": [1.0, 1.0, 1.0, 1.0], **shifted([0.03, 0.01, 0.03, 0.01])}
    control = run("map", {"accuracy": 0.75, "nll": 0.25}, examples=hits)
    found = judged(control, run("a", {"accuracy": 1.0, "nll": 0.27}, examples=more))
    # One example in four: 0.25 ± 0.25 is level; the NLL is worse by 3.5 standard errors.
    assert found.lines[0].startswith("a: loses to map: worse in NLL (0.2700, by 0.0200 ± 0.0058), better in nothing; ")
    assert "level in accuracy (1.0000, +0.2500 ± 0.25)" in found.lines[0]
    assert found.closing.endswith("The lowest NLL is map's own, 0.2500.")
    sure = {"accuracy": [0.51, 1.5, 1.5, 1.49], **shifted([0.03, 0.01, 0.03, 0.01])}
    found = judged(control, run("a", {"accuracy": 1.25, "nll": 0.27}, examples=sure))
    assert found.lines[0].startswith("a: better than map in accuracy (1.2500, by 0.5000 ± 0.0041); worse in NLL (")
    assert "a is better in some scores and worse in others" in found.closing


def test_the_gap_is_told() -> None:
    def band(within: float, among: float, covered: Sequence[float]) -> dict[str, Any]:
        gap = {"ends": [-0.98, 1.01], "epistemic": [within, among], "covered": list(covered)}
        return {"regression_band": {"gap": gap}}

    control = run("map", {"nll": 0.25}, examples={"nll": BASE}, records=band(0, 0, [0.31, 0.92]))
    wide = run("a", {"nll": 0.25}, examples={"nll": BASE}, records=band(0.42, 0.1, [0.88, 0.91]))
    found = judged(control, wide)
    assert found.control.endswith(
        " In the gap in the inputs (-0.98 to 1) it has no epistemic band, and its 90 % intervals hold 31 % of the "
        "targets there, 92 % elsewhere."
    )
    assert (
        "its band widens (epistemic std 4.2 times that among the data), and its 90 % intervals hold 88 %"
        in found.lines[0]
    )
    flat = run("b", {"nll": 0.25}, examples={"nll": BASE}, records=band(0.09, 0.1, [0.5, 0.91]))
    assert "its band does not widen (epistemic std 0.9 times that" in judged(control, flat).lines[0]


def test_without_a_control_there_is_an_opening_and_advice_alone() -> None:
    found = verdict_of(tables_of([run("a", {"nll": 1.0}), run("b", {"nll": 2.0})])[0])
    assert found is not None
    assert (found.control, found.lines, found.closing) == ("", [], "")
    assert verdict_of(tables_of([MAP])[0]) is None
