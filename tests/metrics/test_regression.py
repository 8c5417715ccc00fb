"""Scores of real-valued predictions against scikit-learn, quadrature and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.metrics import (
    calibration_error,
    interval_coverage,
    interval_width,
    mae,
    r2,
    rmse,
    sample_crps,
)
from sklearn import metrics as sk

from .inputs import BOOTSTRAP_TOLERANCE, bootstrap_se

TARGETS = torch.randn(250, 2, dtype=torch.float64, generator=make_generator(1)) * torch.tensor([1.0, 3.0])
MEAN = TARGETS + 0.7 * torch.randn(250, 2, dtype=torch.float64, generator=make_generator(2))
VARIANCE = torch.rand(250, 2, dtype=torch.float64, generator=make_generator(3)) + 0.2


def test_errors_match_scikit_learn() -> None:
    y, f = TARGETS.numpy(), MEAN.numpy()
    assert rmse(MEAN, TARGETS).value == pytest.approx(math.sqrt(sk.mean_squared_error(y, f)))
    assert mae(MEAN, TARGETS).value == pytest.approx(sk.mean_absolute_error(y, f))
    assert r2(MEAN, TARGETS).value == pytest.approx(sk.r2_score(y, f))
    assert rmse(MEAN[:, 0], TARGETS[:, :1]).value == pytest.approx(rmse(MEAN[:, 0], TARGETS[:, 0]).value)


@pytest.mark.parametrize("score", [rmse, mae, r2])
def test_standard_errors_match_the_bootstrap(score: object) -> None:
    expected = bootstrap_se(score, (MEAN, TARGETS))  # type: ignore[arg-type]
    assert score(MEAN, TARGETS).se == pytest.approx(expected, rel=BOOTSTRAP_TOLERANCE)  # type: ignore[operator]


def test_r2_of_constant_targets_is_nan() -> None:
    constant = torch.full((5,), 0.1)
    assert math.isnan(r2(torch.randn(5), constant).value)
    assert r2(constant, constant).se is None
    both = torch.stack([TARGETS[:, 0], torch.full((250,), 0.3, dtype=torch.float64)], 1)
    assert r2(MEAN, both).value == pytest.approx(r2(MEAN[:, 0], TARGETS[:, 0]).value)


def test_perfect_predictions() -> None:
    assert rmse(TARGETS, TARGETS).value == rmse(TARGETS, TARGETS).se == 0
    assert r2(TARGETS, TARGETS).value == 1


def test_sample_crps_matches_all_pairs_and_the_closed_form() -> None:
    draws = MEAN + VARIANCE.sqrt() * torch.randn(7, 250, 2, dtype=torch.float64)
    distance = (draws - TARGETS).abs().mean(0)
    pairs = (draws[:, None] - draws[None]).abs().sum((0, 1)) / (2 * 7 * 6)
    torch.testing.assert_close(sample_crps.by_example(draws, TARGETS), distance - pairs)
    many = MEAN + VARIANCE.sqrt() * torch.randn(400, 250, 2, dtype=torch.float64)
    std = VARIANCE.sqrt()
    z = (TARGETS - MEAN) / std
    phi = torch.from_numpy(stats.norm.pdf(z))
    closed = std * (z * torch.erf(z / math.sqrt(2)) + 2 * phi - 1 / math.sqrt(math.pi))  # Gneiting & Raftery 2007
    difference = sample_crps.by_example(many, TARGETS) - closed
    # Unbiased: 4.5 standard errors fail once in 150,000.
    assert abs(float(difference.mean())) < 4.5 * float(difference.std()) / math.sqrt(difference.numel())


def test_calibrated_predictions_have_their_coverage() -> None:
    noise = torch.randn(20_000, dtype=torch.float64, generator=make_generator(9))
    pit = torch.special.ndtr(noise)
    for level in (0.5, 0.9, 0.95):
        found = interval_coverage(pit, level=level)
        inside = (noise.abs() <= stats.norm.ppf(0.5 + level / 2)).double().mean()
        assert found.value == pytest.approx(float(inside))
        assert abs(found.value - level) < 4.5 * math.sqrt(level * (1 - level) / 20_000)
    assert calibration_error(pit).value < 0.01
    assert calibration_error(pit / 2).value > 0.2


def test_coverage_of_counts_includes_both_ends_of_the_interval() -> None:
    counts = np.arange(12)
    for rate in (0.4, 2.5, 6.0):
        pit, below = stats.poisson.cdf(counts, rate), stats.poisson.cdf(counts - 1, rate)
        low, high = stats.poisson.ppf([0.05, 0.95], rate)
        expected = ((counts >= low) & (counts <= high)).mean()
        assert interval_coverage(pit, below, level=0.9).value == pytest.approx(expected)


def test_calibration_error_matches_brute_force_and_the_bootstrap() -> None:
    pit = torch.rand(300, dtype=torch.float64, generator=make_generator(5)).square()
    expected = np.mean([abs(float((pit <= q).double().mean()) - q) for q in np.arange(1, 20) / 20])
    found = calibration_error(pit)
    assert found.value == pytest.approx(expected)
    assert found.se == pytest.approx(bootstrap_se(calibration_error, (pit,)), rel=BOOTSTRAP_TOLERANCE)


def test_interval_width_is_a_mean() -> None:
    assert interval_width(MEAN - 1, MEAN + 2).value == pytest.approx(3)


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(DataError, match=r"predictions: shape \(250,\)"):
        rmse(MEAN[:, 0], TARGETS)
    with pytest.raises(DataError, match="NaN"):
        mae(MEAN * math.nan, TARGETS)
    with pytest.raises(DataError, match=r"pit must lie in \[0, 1\]"):
        interval_coverage(TARGETS, level=0.5)
    with pytest.raises(DataError, match="at least 2"):
        sample_crps(MEAN[None], TARGETS)
