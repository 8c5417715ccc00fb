"""The mean and the band of several seeds are those of their numbers, epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayeswell import plots
from bayeswell.errors import DataError
from bayeswell.training import EpochRecord
from plots.plot_samples import SAMPLES, epochs, with_test


def rows(values: list[float], name: str = "nll", **more: Any) -> list[dict[str, Any]]:
    return [{"epoch": epoch, name: value, **more} for epoch, value in enumerate(values)]


def drawn(axes: Any, place: int = 0) -> tuple[Any, Any, Any]:
    """x, y of a line, and the ends of its band."""
    line = axes.get_lines()[place]
    path = axes.collections[place].get_paths()[0].vertices
    ends = {x: path[path[:, 0] == x][:, 1] for x in line.get_xdata()}
    return list(line.get_xdata()), list(line.get_ydata()), [(min(e), max(e)) for e in ends.values()]


def test_a_line_is_the_mean_and_its_band_one_std_over_seeds() -> None:
    runs = [rows([3.0, 1.5, 0.7]), rows([2.0, 1.1, 0.9]), rows([2.2, 1.6, 0.5])]
    (axes,) = plots.plot_seed_curves({"a": runs}, figure=Figure())
    x, mean, band = drawn(axes)
    values = np.array([[row["nll"] for row in run] for run in runs])
    assert x == [0, 1, 2]
    np.testing.assert_allclose(mean, values.mean(0))
    std = values.std(0, ddof=1)
    np.testing.assert_allclose(band, np.stack([values.mean(0) - std, values.mean(0) + std], 1))


def test_members_are_averaged_first_and_only_shared_epochs_count() -> None:
    ensemble = rows([3.0, 1.0], member=0) + rows([1.0, 2.0], member=1)
    longer = rows([4.0, 2.0, 1.0])
    (axes,) = plots.plot_seed_curves({"a": [ensemble, longer]}, figure=Figure())
    x, mean, _ = drawn(axes)
    assert (x, mean) == ([0, 1], [3.0, 1.75])


def test_each_source_has_a_panel_and_the_average_is_dashed_from_its_first_epoch_on() -> None:
    runs = {"hwa": [with_test(epochs(10, 2.4, 0.1)), with_test(epochs(10, 2.1, 0.2))]}
    panels = plots.plot_seed_curves(runs, figure=Figure())
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in panels]
    assert titles == ["Training: NLL", "Validation: NLL", "Test set: NLL", "Test set: accuracy"]
    iterate, average = panels[2].get_lines()
    assert iterate.get_linestyle() == "-"
    assert average.get_linestyle() == "--"
    assert list(average.get_xdata()) == [7, 8, 9]
    wanted = [np.mean([run[epoch]["test.average.nll"] for run in runs["hwa"]]) for epoch in (7, 8, 9)]
    np.testing.assert_allclose(average.get_ydata(), wanted)


def test_one_run_is_a_line_without_a_band_and_a_seed_that_broke_makes_a_gap() -> None:
    (axes,) = plots.plot_seed_curves({"a": [rows([2.0, 1.0])]}, figure=Figure())
    assert list(axes.get_lines()[0].get_ydata()) == [2.0, 1.0]
    broken: list[Any] = [{"epoch": 0, "nll": 2.0}, {"epoch": 1, "nll": None}]
    (axes,) = plots.plot_seed_curves({"a": [rows([2.0, 1.0]), broken]}, figure=Figure())
    assert np.isnan(axes.get_lines()[0].get_ydata()[1])


def test_records_of_training_are_rows_too_and_others_are_refused() -> None:
    record = EpochRecord(0, 3.0, 2.5, 7.0, 0.1, test={"nll": 1.5})
    panels = plots.plot_seed_curves({"a": [[record], [record]]}, figure=Figure())
    assert [list(axes.get_lines()[0].get_ydata()) for axes in panels] == [[2.5], [1.5]]
    with pytest.raises(DataError, match="seed_curves: a row of 'a' has no number 'epoch'"):
        plots.plot_seed_curves({"a": [[{"nll": 1.0}]]})
    with pytest.raises(DataError, match="a run of 'a' is"):
        plots.plot_seed_curves({"a": [{"epoch": 1}]})


def test_test_curves_are_named_in_the_curves_of_one_run() -> None:
    runs = {"hwa": SAMPLES["seed_curves"]["hwa"][0]}
    axes = plots.plot_training_curve(runs, "nll", ax=Figure().add_subplot())
    legend = axes.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["hwa", "validation (dashed)", "test set (dotted)", "test, average (dash-dotted)"]
    assert "test average nll" in plots.PLOTS["training_curves"].describe(runs)
