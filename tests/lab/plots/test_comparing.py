from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bayeswell.core.errors import DataError
from bayeswell.lab.plots import THEMES, plot_cost_quality, plot_forest
from bayeswell.lab.plots.comparing import paired_table, pareto_front
from bayeswell.metrics import paired_difference
from made_runs import made_comparison, with_losses

PLANTED = {
    "digits": {"map": [0.30, 0.34, 0.31], "a": [0.20, 0.23, 0.21], "b": [0.31, 0.32, 0.33]},
    "wine": {"map": [0.10, 0.12, 0.11], "a": [0.19, 0.22, 0.20]},
}


def test_forest_shows_paired_differences_with_their_intervals():
    axes = plot_forest(made_comparison(PLANTED)).axes[0]
    rows = [("digits", "a", 1), ("digits", "b", 2), ("wine", "a", 4)]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    for (problem, method, place), line, ends in zip(rows, points, axes.collections, strict=True):
        truth = paired_difference(PLANTED[problem][method], PLANTED[problem]["map"])
        np.testing.assert_allclose(line.get_xydata(), [[truth.value, place]])
        np.testing.assert_allclose(ends.get_segments()[0][:, 0], truth.interval())
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["digits", "a", "b", "wine", "a"]


def test_only_significant_points_are_filled():
    theme = THEMES["light"]
    points = [line for line in plot_forest(made_comparison(PLANTED)).axes[0].lines if line.get_marker() == "o"]
    fills = [to_hex(line.get_markerfacecolor()) for line in points]
    assert fills == [theme.color(2), theme.background, theme.color(1)], "better, not significant, worse"


def test_single_runs_are_paired_over_their_examples():
    comparison = made_comparison({"digits": {"map": [0.3], "a": [0.2]}})
    row = paired_table(comparison, "nll").iloc[0]
    assert (row["over"], row["better"]) == ("runs", None)
    assert np.isnan(row["se"])
    comparison = with_losses(comparison, {"map": 0.0, "a": -0.1})
    row = paired_table(comparison, "nll").iloc[0]
    losses = {run.method: run.record.per_example["nll"].tolist() for run in comparison.runs if run.record}
    truth = paired_difference(losses["a"], losses["map"])
    assert (row["over"], row["better"]) == ("test examples", True)
    assert (row["difference"], row["se"]) == pytest.approx((truth.value, truth.se))


def test_forest_needs_a_method_beside_the_reference():
    with pytest.raises(DataError, match="no other method has the score"):
        plot_forest(made_comparison({"digits": {"map": [0.3, 0.2]}}))


def test_cost_quality_shows_means_over_seeds():
    comparison = made_comparison({"digits": PLANTED["digits"]}, {"a": 5.0, "b": 2.0})
    axes = plot_cost_quality(comparison).axes[0]
    points = {tuple(line.get_xydata()[0].round(6)) for line in axes.lines if line.get_marker() == "o"}
    expected = {"map": 1.0, "a": 5.0, "b": 2.0}
    assert points == {(cost, round(float(np.mean(PLANTED["digits"][name])), 6)) for name, cost in expected.items()}
    assert {text.get_text() for text in axes.texts} == {"map", "a", "b"}
    with pytest.raises(DataError, match="give `problem`"):
        plot_cost_quality(made_comparison(PLANTED))


def test_pareto_front_matches_brute_force():
    generator = random.Random(6)
    for _ in range(50):
        points = {str(name): (generator.randint(0, 9), generator.random()) for name in range(8)}
        beaten = {
            a
            for a, b in itertools.permutations(points, 2)
            if points[b][0] <= points[a][0] and points[b][1] < points[a][1]
        }
        assert set(pareto_front(points)) == set(points) - beaten
