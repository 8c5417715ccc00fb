"""Settings drawn at random, shares of them, and their landscape."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from bayeswell.errors import SettingError
from bayeswell.studies import Findings, Line, read_study
from bayeswell.studies.landscapes import landscape, landscape_points
from bayeswell.studies.points import random_points

NEAR = {"lr": {"near": [0.02]}}


def test_near_draws_a_normal_of_half_its_mean_cut_at_zero() -> None:
    values = [point["lr"] for point in random_points("f", "a", NEAR, 2000)]
    # P(value <= x) of N(v, v/2) given that it is above 0, at 2,000 draws: p below 1e-6 once in a million seeds.
    cut = stats.truncnorm(-2, math.inf, loc=0.02, scale=0.01)
    assert stats.kstest(values, cut.cdf).pvalue > 1e-6
    assert min(values) > 0


def test_uniform_in_the_logarithm() -> None:
    values = [point["x"] for point in random_points("f", "a", {"x": {"from": 0.001, "to": 10, "log": True}}, 2000)]
    even = [math.log(value / 0.001) / math.log(1e4) for value in values]
    assert stats.kstest(even, "uniform").pvalue > 1e-6


def test_more_points_leave_the_first_as_they_are_and_cells_differ() -> None:
    few, many = random_points("f", "a", NEAR, 3), random_points("f", "a", NEAR, 9)
    assert many[:3] == few
    assert random_points("f", "b", NEAR, 3) != few


@pytest.mark.parametrize("bad", [3, {"near": []}, {"near": [-1]}, {"from": 1, "to": 0}, {"nearby": [1]},
                                 {"from": 0, "to": 1, "log": True}, {"near": [1], "to": 3}])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(bad: object) -> None:
    with pytest.raises(SettingError, match="near = "):
        random_points("f", "a", {"lr": bad}, 2)


@pytest.mark.parametrize("below", [0, 0.01, "x", True])
def test_a_bound_that_nothing_is_below_is_refused(below: object) -> None:
    with pytest.raises(SettingError, match="below = "):
        random_points("f", "a", {"lr": {"near": [0.01, 0.1], "below": below}}, 2)


STUDY = """
title = "t"
paper = "p"
scores = ["accuracy"]
points = 4
[run]
data = "digits"
[cells.sgd]
method = {name = "bbb", stepper = {name = "sgd"}}
[cells.sgd.random]
"method.stepper.lr" = {from = 0.01, to = 1, log = true}
"method.stepper.momentum" = {from = 0, to = 0.9}
[scales.cpu]
[[claims]]
name = "c"
text = "c"
value = "sgd"
score = "share(accuracy > 0.5)"
between = [0.4, 0.6]
exact = true
[[plots]]
score = "accuracy"
landscape = ["method.stepper.lr", "method.stepper.momentum"]
log = true
clip = 0.1
curvature = 1.5
"""


def planted(tmp_path: Path, accuracies: list[float | None]) -> Findings:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    study = read_study(path)
    lines = [
        Line("cpu", cell.label, cell.at, 0, cell.settings_hash, cell.parts_hash,
             {} if value is None else {"accuracy": value}, error="diverged" if value is None else "")
        for cell, value in zip(study.scale("cpu").cells, accuracies, strict=False)
    ]  # fmt: skip
    return Findings(study, study.scale("cpu"), lines)


def test_a_share_counts_failures_as_not_above_and_waits_for_all_points(tmp_path: Path) -> None:
    assert planted(tmp_path, [0.9, 0.6, 0.1, None]).values("sgd", {}, "share(accuracy > 0.5)") == {0: 0.5}
    assert planted(tmp_path, [0.9, 0.6, 0.1]).values("sgd", {}, "share(accuracy > 0.5)") == {}
    found = planted(tmp_path, [0.9, 0.6, 0.1, 0.2])
    assert found.verdict(found.study.claims[0]).word == "holds"


def test_a_landscape_has_a_point_for_each_pair_in_its_place(tmp_path: Path) -> None:
    found = planted(tmp_path, [0.9, 0.6, 0.1, None])
    (plot,) = found.study.plots
    points = landscape_points(plot, found)
    cells = found.scale.cells
    assert points == [
        (cell.at["method.stepper.lr"], cell.at["method.stepper.momentum"], value)
        for cell, value in zip(cells, [0.9, 0.6, 0.1], strict=False)
    ]
    text = landscape(plot, found, "A landscape")
    assert text is not None
    assert "momentum" in text
    with pytest.raises(SettingError, match="two settings"):
        landscape({**plot, "landscape": ["lr"]}, found, "t")
