"""What the pages say of the quality record: means, errors, leaders and ties, against numbers worked out by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from benchmarks.quality.differences import Results

import measured

# NLL of three seeds on two problems. Differences of "good" to map: (-0.3, -0.2, -0.1) and (-0.5, -0.5, -0.2).
NLL = {
    ("one", "map"): (1.0, 1.2, 1.4),
    ("one", "good"): (0.7, 1.0, 1.3),
    ("one", "near"): (0.9, 0.9, 1.2),
    ("one", "bad"): (1.5, 1.7, 2.0),
    ("two", "map"): (3.0, 2.0, 2.5),
    ("two", "good"): (2.5, 1.5, 2.3),
    ("two", "near"): (2.6, 1.6, 2.2),
    ("two", "bad"): (3.6, 2.5, 3.1),
    ("one", "elsewhere"): (0.1, 0.1, 0.1),
    ("one", "changed"): (0.1, 0.1, 0.1),
    ("two", "changed"): (0.1, 0.1, 0.1),
}
COST = {"map": 1.0, "good": 2.0, "near": 1.0, "bad": 1.0, "elsewhere": 1.0, "changed": 1.0}


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        {"problem": problem, "method": method, "seed": seed, "nll": value, "rmse": 2 * value, "session": "s",
         "passes": COST[method]}
        for (problem, method), values in NLL.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    monkeypatch.setattr(measured, "results", lambda: Results.of(lines))
    monkeypatch.setattr(measured, "changed_since", lambda method: method == "changed")
    session = {"session/s": {"when": "2026-01-02 03:04 UTC", "commit": "abc"}}
    monkeypatch.setattr(measured, "_lines", lambda: session)


BOTH = ("one", "two")


@pytest.mark.usefixtures("record")
def test_a_standing_is_the_mean_over_problems_of_paired_differences() -> None:
    found = measured.standing("good", measured.NLL, BOTH)
    assert found is not None
    assert found.mean == pytest.approx((-0.2 - 0.4) / 2)
    # Sample stds 0.1 and sqrt(0.03), each over sqrt(3); the mean of two has half the root of their summed squares.
    assert found.error == pytest.approx(0.5 * math.sqrt(0.01 / 3 + 0.03 / 3))
    shares = measured.standing("good", measured.RMSE, ("one",))
    assert shares is not None
    assert shares.mean == pytest.approx(100 / 3 * (math.log(0.7 / 1.0) + math.log(1.0 / 1.2) + math.log(1.3 / 1.4)))


@pytest.mark.usefixtures("record")
def test_a_method_that_was_not_measured_everywhere_is_left_out_by_name() -> None:
    assert measured.standing("elsewhere", measured.NLL, BOTH) is None
    table = measured.by_method(BOTH, [measured.NLL])
    assert "`elsewhere`" not in table
    assert "Left out, since not measured on all of them: elsewhere." in table
    assert "`changed`" not in table
    assert "Left out, since defaults have changed since: changed." in table


@pytest.mark.usefixtures("record")
def test_a_table_is_in_order_with_its_marks() -> None:
    table = measured.by_method(BOTH, [measured.NLL])
    order = [line.split("`")[1] for line in table.splitlines() if line.startswith("| [`")]
    assert order == ["good", "near", "map", "bad"]
    assert "| ✓ -0.300 ± 0.058 | 2.0 |" in table
    assert "| **+0.550 ± 0.024** | 1.0 |" in table
    assert "Measured 2026-01-02 at commit abc." in table


@pytest.mark.usefixtures("record")
def test_the_leader_of_a_budget_and_what_cannot_be_told_from_it() -> None:
    once, twice = measured.by_budget(BOTH, measured.NLL, budgets=(1, 2)).splitlines()[2:]
    assert once.startswith("| 1x | [`near`](cards/near.md) | ✓ -0.283")
    assert once.endswith("| none |")
    assert twice.startswith("| 2x | [`good`](cards/good.md) | ✓ -0.300 ± 0.058 |")
    assert twice.endswith("| `near` |")


@pytest.mark.usefixtures("record")
def test_better_is_below_zero_for_every_score() -> None:
    for score, better, worse in (
        (measured.NLL, 0.1, 0.2), (measured.RMSE, 1.0, 2.0), (measured.ECE, 0.01, 0.02),
        (measured.ERRORS, 0.9, 0.8), (measured.MISSED, 0.9, 0.8), (measured.CORRUPTED, 0.1, 0.2),
    ):  # fmt: skip
        assert score.compare(better, worse) < 0 < score.compare(worse, better)
    assert measured.ERRORS.compare(0.955, 0.950) == pytest.approx(-0.5)


@pytest.mark.parametrize(("passes", "changed"), [(1.0, True), (3.0, False)])
def test_a_method_of_another_cost_than_was_measured_has_changed(
    passes: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"problem": "wine", "method": "vl", "seed": 0, "nll": 1.0, "passes": passes, "session": "s"}
    monkeypatch.setattr(measured, "results", lambda: Results.of([line]))
    assert measured.changed_since("vl") is changed
    assert ("**Measured before its defaults changed**: a step then cost 1x" in measured.card("vl")) is changed


def test_what_was_not_measured_is_said() -> None:
    assert "not measured yet" in measured.card("no-such-method")
    assert measured.by_method(("no such problem",), [measured.NLL]) == "Not measured yet."
    assert measured.by_budget(("no such problem",), measured.NLL) == "By budget: not measured yet."


def test_an_error_is_never_shown_as_zero() -> None:
    assert measured._signed(measured.Mean(0.0004, 0.0001, 3), 3, worse=True) == "**+0.0004 ± 0.0001**"
    assert measured._signed(measured.Mean(-0.04, 0.01, 3), 3, worse=False) == "-0.040 ± 0.010"
