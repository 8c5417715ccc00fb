"""Bands of several methods stand on one scale, with the gap where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import DataError
from bayeswell.plots.regression import describe_regression_band, plot_regression_band
from bayeswell.report.bands import bands_of
from bayeswell.report.figures import pictures_of
from bayeswell.report.reading import RunRecord
from bayeswell.report.summary import MethodRow, Table


def band(mean: list[float], std: float) -> dict[str, Any]:
    return {
        "x": [-5.0, -3.0, 0.0, 3.0], "mean": mean, "epistemic_std": [3 * std] * 4, "aleatoric_std": [4 * std] * 4,
        "train_x": [-3.0, 3.0], "train_y": [-1.0, 1.5], "gap": {"ends": [-3.0, 3.0]},
    }  # fmt: skip


def row(label: str, record: dict[str, Any]) -> MethodRow:
    inspection = {"records": {"regression_band": record}} if record else {}
    return MethodRow(label, [RunRecord(Path(label), label, inspection=inspection)])


def test_limits_hold_every_band_among_the_data() -> None:
    """Stds of both kinds 5 * 0.1 and 5 * 0.02; at x = -5, outside, the mean is 90 and must not count."""
    first, second = band([90.0, 0.0, 1.0, 2.0], 0.1), band([0.0, -0.5, 0.0, 0.0], 0.02)
    found = bands_of([row("a", first), row("none", {}), row("b", second)])
    assert list(found) == [0, 2]
    # Lowest: the target -1 and 0 - 2 * 0.5; highest: 2 + 2 * 0.5. A twentieth of 4 more on either side.
    assert found[0]["y_limits"] == pytest.approx([-1.2, 3.2])
    assert found[2]["y_limits"] == found[0]["y_limits"]


def test_the_page_has_them_side_by_side_once() -> None:
    rows = [row("a", band([0.0] * 4, 0.1)), row("b", band([0.0] * 4, 0.2))]
    drawn = pictures_of(Table("gap", rows), "t0")
    assert [picture.of for picture in drawn.together if picture.title == "Prediction and its uncertainty"] == ["a", "b"]
    assert not any(drawn.alone.values())
    alone = pictures_of(Table("gap", rows[:1]), "t0")
    assert [picture.of for picture in alone.alone["a"]] == ["a"]


def test_the_gap_is_shaded_and_told() -> None:
    record = {**band([0.0] * 4, 0.1), "y_limits": [-2.0, 4.0]}
    axes = plot_regression_band(record)
    assert axes.get_ylim() == (-2.0, 4.0)
    shaded = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    assert [(box.x0, box.x1) for box in shaded] == [pytest.approx((-3.0, 3.0))]
    assert describe_regression_band(record).endswith("No training inputs from -3 to 3; epistemic std there 0.3.")
    assert not plot_regression_band({name: part for name, part in record.items() if name != "gap"}).patches


@pytest.mark.parametrize("bad", [{"gap": {"ends": [1.0]}}, {"gap": 3}, {"y_limits": [2.0, 1.0]}, {"y_limits": [1.0]}])
def test_bad_records_are_refused_in_one_line(bad: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="plot_regression_band"):
        plot_regression_band({**band([0.0] * 4, 0.1), **bad})
