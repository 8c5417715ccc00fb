from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError
from bayeswell.lab.measure import RunRecord
from bayeswell.lab.plots import plot_coverage, plot_pit, plot_regression_band
from bayeswell.likelihoods import Gaussian
from bayeswell.metrics import Estimate, interval_coverage
from bayeswell.prediction import PredictiveMixture, RealPrediction

NOISE = 0.4


def prediction(examples: int = 300, noise: float = NOISE) -> tuple[Tensor, RealPrediction, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(examples, 1, generator=generator) - 2
    outputs = x.sin() + 0.1 * torch.randn(6, examples, 1, generator=generator) * x.abs()
    mixture = PredictiveMixture(outputs, Gaussian(std=noise))
    variance = torch.full((examples, 1), noise**2)
    found = RealPrediction(outputs.mean(0), outputs.var(0, correction=0), variance, 6, mixture=mixture)
    return x, found, x.sin() + NOISE * torch.randn(examples, 1, generator=generator)


def band(collection: object) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest y at each x of a filled band."""
    points = collection.get_paths()[0].vertices  # type: ignore[attr-defined]
    places = np.unique(points[:, 0])
    own = [points[points[:, 0] == place, 1] for place in places]
    return np.array([values.min() for values in own]), np.array([values.max() for values in own])


def test_bands_are_two_stds_around_the_mean_in_the_order_of_x():
    x, found, _ = prediction()
    axes = plot_regression_band(found, x).axes[0]
    order = x[:, 0].argsort()
    mean = found.mean[order, 0].numpy()
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean, rtol=1e-6)
    for collection, std in zip(axes.collections, (found.std, found.epistemic_std), strict=True):
        low, high = band(collection)
        np.testing.assert_allclose(low, mean - 2 * std[order, 0].numpy(), atol=1e-5)
        np.testing.assert_allclose(high, mean + 2 * std[order, 0].numpy(), atol=1e-5)


def test_several_bands_share_the_y_axis_in_one_row():
    x, found, y = prediction()
    figure = plot_regression_band({"a": found, "b": found}, x, train=(x, y), truth=x.sin())
    first, second = figure.axes
    assert first.get_ylim() == second.get_ylim()
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "mean",
        "± 2 stds",
        "± 2 epistemic stds",
        "truth",
        "training data",
    ]


def test_pit_heights_are_the_histogram_of_the_cdf():
    _, found, y = prediction()
    stairs = plot_pit(found, y, bins=5).axes[0].patches[0]
    expected = np.histogram(found.cdf(y).numpy(), bins=5, range=(0, 1), density=True)[0]
    np.testing.assert_allclose(stairs.get_data().values, expected, atol=1e-6)


def test_pit_band_holds_95_percent_of_the_bins_of_uniform_values():
    """95 % ± 0.54 % of 1,600 bins should lie inside; 2.7 % is five standard errors."""
    generator, inside = torch.Generator().manual_seed(4), []
    for _ in range(40):
        kept = {"pit": torch.rand(5000, generator=generator)}
        record = RunRecord({}, "toy", "real", "a", 0, {"nll": Estimate(0.0)}, {}, per_example=kept)
        axes = plot_pit(record, bins=40).axes[0]
        stairs, box = axes.patches[:2]
        low, high = box.get_y(), box.get_y() + box.get_height()
        inside.append(np.mean((stairs.get_data().values >= low) & (stairs.get_data().values <= high)))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.027)


def test_coverage_is_that_of_the_metric():
    _, found, y = prediction(noise=0.25)
    axes = plot_coverage(found, y).axes[0]
    levels, shares = axes.lines[1].get_data()
    pit = found.cdf(y).clamp(0, 1)
    expected = [interval_coverage(pit, level=float(level)).value for level in levels]
    np.testing.assert_allclose(shares, expected, atol=1e-12)
    assert shares[-2] < 0.9, "noise that is too small gives intervals that are too narrow"


def test_a_line_needs_its_inputs_with_one_column():
    x, found, _ = prediction()
    with pytest.raises(DataError, match="give `x`"):
        plot_regression_band(found)
    with pytest.raises(DataError, match="one number for each example"):
        plot_regression_band(found, x.expand(-1, 2))
