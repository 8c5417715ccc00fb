"""Orange for what changes a decision, grey for what is to be understood."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bayeswell.report.alarms import alarms_of, notes_of
from bayeswell.report.cards import card_of
from bayeswell.report.figures import order_of, pictures_of
from bayeswell.report.reading import RunRecord
from bayeswell.report.rows import MethodRow, Table
from bayeswell.report.summary import tables_of
from report.planted import run

K_HAT = "k-hat 29.00 > 0.62: the posterior is far from the true one"


def trusted(weights: int, k_hat: float = 29.0) -> RunRecord:
    lines = [K_HAT] if k_hat > 0.62 else []
    pareto = {"k_hat": k_hat, "limit": 0.62, "good": not lines, "warnings": lines}
    record = {"trust": {"pareto": pareto, "warnings": [*lines, "something else"]}}
    return run("bbb", {"nll": 0.3}, records=record, result={"parameters": weights})


def trained(ratios: Sequence[float], rate: float | None = 0.001) -> RunRecord:
    rows: list[dict[str, Any]] = [{"epoch": index, "std_ratio": ratio} for index, ratio in enumerate(ratios)]
    return RunRecord(Path("run"), epochs=[row | ({} if rate is None else {"lr.stds": rate}) for row in rows])


def test_k_hat_of_many_weights_is_a_note_and_no_alarm() -> None:
    card = card_of(MethodRow("bbb", [trusted(4510)]))
    assert card.warnings == ["something else"]
    assert card.notes == ["k-hat 29 (good up to 0.62): no alarm, as every approximation has it with 4,510 weights."]
    (few,) = notes_of(trusted(151))
    assert "its ELBO is no measure of the evidence" in few
    assert notes_of(trusted(4510, 0.3)) == []


def test_stds_that_have_not_moved_are_an_alarm() -> None:
    (line,) = alarms_of(MethodRow("bbb", [trained([0.05, 0.0501, 0.0503])]))
    assert line.startswith("the stds have not moved: 0.05 of the prior's after the first epoch, 0.0503 after the last")
    for fine in ([0.05, 0.06, 0.08], [0.05, 0.0501], [0.05, 0.04, 0.0496]):
        assert (alarms_of(MethodRow("bbb", [trained(fine)])) == []) == (fine != [0.05, 0.04, 0.0496])
    assert alarms_of(MethodRow("swag", [trained([0.05, 0.05, 0.05], None)])) == [], "they were not trained"


@pytest.mark.parametrize("worse", ["", "worse than map by more than the error: NLL (1.2, by 0.3 ± 0.1)"])
def test_worse_than_ordinary_training_stands_first(worse: str) -> None:
    assert card_of(MethodRow("bbb", [trusted(10)]), worse).warnings == [*([worse] if worse else []), "something else"]


def scores(size: float) -> dict[str, Any]:
    return {"ood_scores": [{"inside": [0.0, size], "outside": [size, 2 * size], "score": "mutual_information"}]}


def test_rounding_noise_is_no_picture() -> None:
    """The mutual information of a single network is 1e-16; its stds are 0."""
    flat = {"layers": {"layers": [{"layer": "a", "std_ratio_median": 0.0, "kl_per_weight": 1.0}]}}
    rows = [MethodRow("map", [run("map", {}, records=scores(1e-16) | flat)]),
            MethodRow("bbb", [run("bbb", {}, records=scores(1e-3))])]  # fmt: skip
    drawn = pictures_of(Table("digits", rows), "t0")
    assert [picture.title for picture in drawn.alone["map"]] == []
    assert [picture.title for picture in drawn.alone["bbb"]] == ["Inside and outside the distribution"]


def test_a_vector_has_no_ranks_to_show() -> None:
    def of(stds: list[list[float]], values: list[float]) -> dict[str, Any]:
        layers = [{"layer": "a", "stds": values, "means": values}]
        return {"std_heat_maps": {"layer": "a", "stds": stds, "approximations": {}}, "spectra": [{"layers": layers}]}

    flat, full = of([[0.1], [0.2]], [1.0]), of([[0.1, 0.3], [0.2, 0.2]], [0.8, 0.2])
    rows = [MethodRow("flat", [run("flat", {}, records=flat)]), MethodRow("full", [run("full", {}, records=full)])]
    drawn = pictures_of(Table("digits", rows), "t0").alone
    assert [picture.title for picture in drawn["flat"]] == []
    assert [picture.title for picture in drawn["full"]] == ["Singular values", "Stds of a layer"]


def test_the_best_bayesian_method_comes_first() -> None:
    runs = [run("map", {"nll": 0.1}, result={"draws": 1}), run("a", {"nll": 0.3}, result={"draws": 9}),
            run("b", {"nll": 0.2}, result={"draws": 9})]  # fmt: skip
    (table,) = tables_of(runs)
    assert order_of(table) == [2, 0, 1]
    (points,) = tables_of(runs[:1])
    assert order_of(points) == [0]
