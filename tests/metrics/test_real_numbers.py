"""Regression metrics against scipy, numerical integration and exact calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.random import make_generator
from metrics.inputs import BOOTSTRAP_TOLERANCE, bootstrap


def normal(*shape: int, seed: int = 1, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=make_generator(seed))


def mixture(draws: int, *shape: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    means, y = normal(draws, *shape, seed=seed, scale=1.7), normal(*shape, seed=seed + 1, scale=1.5)
    return means, normal(draws, *shape, seed=seed + 2).square() + 0.05, y


def integrated_crps(means: Tensor, variances: Tensor, y: float) -> float:
    """int (F(x) - 1[x >= y])^2 dx, on each side of y."""
    centres, stds = means.numpy(), variances.sqrt().numpy()

    def below(x: float) -> float:
        return float(scipy.stats.norm.cdf(x, centres, stds).mean())

    low, high = min(y, centres.min()) - 12 * stds.max(), max(y, centres.max()) + 12 * stds.max()
    left = scipy.integrate.quad(lambda x: below(x) ** 2, low, y, limit=400, epsabs=1e-11)[0]
    right = scipy.integrate.quad(lambda x: (1 - below(x)) ** 2, y, high, limit=400, epsabs=1e-11)[0]
    return float(left + right)


def test_crps_against_integration() -> None:
    means, variances, y = mixture(4, 5)
    found = metrics.mixture_crps.of_examples(means, variances, y)
    expected = [integrated_crps(means[:, i], variances[:, i], float(y[i])) for i in range(5)]
    assert found.tolist() == pytest.approx(expected, rel=1e-7)
    gaussian = metrics.gaussian_crps.of_examples(means[0], variances[0], y)
    expected = [integrated_crps(means[:1, i], variances[:1, i], float(y[i])) for i in range(5)]
    assert gaussian.tolist() == pytest.approx(expected, rel=1e-7)
    assert metrics.gaussian_crps(means[0], variances[0], y) == pytest.approx(sum(expected) / 5, rel=1e-7)


def test_crps_of_one_draw_and_of_equal_draws_is_the_gaussian_one() -> None:
    means, variances, y = mixture(1, 30, 2)
    expected = metrics.gaussian_crps(means[0], variances[0], y)
    assert metrics.mixture_crps(means, variances, y) == pytest.approx(expected, rel=1e-12)
    same = means.expand(6, 30, 2), variances.expand(6, 30, 2)
    assert metrics.mixture_crps(*same, y) == pytest.approx(expected, rel=1e-12)


def test_crps_without_noise_is_that_of_the_sample() -> None:
    means, _, y = mixture(7, 12)
    means[3] = means[2]  # a tie
    values = [
        (means[:, i] - y[i]).abs().mean() - 0.5 * (means[:, None, i] - means[None, :, i]).abs().mean()
        for i in range(12)
    ]
    found = metrics.mixture_crps(means, torch.zeros(12), y)
    assert found == pytest.approx(float(torch.stack(values).mean()), rel=1e-12)
    # A point prediction: the absolute error.
    absolute = float((means[0] - y).abs().mean())
    assert metrics.gaussian_crps(means[0], torch.zeros(12), y) == pytest.approx(absolute, rel=1e-12)


def test_crps_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    means, variances, y = mixture(5, 33)
    whole = metrics.mixture_crps.of_examples(means, variances, y)
    monkeypatch.setattr("bayeswell.metrics.regression._AT_ONCE", 35)
    assert metrics.mixture_crps.of_examples(means, variances, y).tolist() == pytest.approx(whole.tolist(), rel=1e-13)


def test_mixture_nll_against_scipy() -> None:
    means, variances, y = mixture(6, 20, 2)
    # Outputs of one draw belong together: the density is a mean of products.
    densities = scipy.stats.norm.pdf(y.numpy(), means.numpy(), variances.sqrt().numpy()).prod(-1)
    assert metrics.mixture_nll(means, variances, y) == pytest.approx(-np.log(densities.mean(0)).mean(), rel=1e-11)
    assert metrics.expected_gaussian_nll(means, variances, y) == pytest.approx(-np.log(densities).mean(), rel=1e-11)
    # One draw is a Gaussian; variances may be shared by all draws.
    single = metrics.gaussian_nll(means[0], variances[0], y)
    assert metrics.mixture_nll(means[:1], variances[:1], y) == pytest.approx(single, rel=1e-12)
    shared, expanded = variances[0], variances[:1].expand(6, 20, 2)
    assert metrics.mixture_nll(means, shared, y) == pytest.approx(metrics.mixture_nll(means, expanded, y), rel=1e-13)


def test_mixture_nll_far_from_every_draw_is_finite() -> None:
    found = metrics.mixture_nll(torch.zeros(3, 1), torch.full((1,), 1e-6), torch.tensor([50.0]))
    assert found == pytest.approx(0.5 * (2500 / 1e-6 + math.log(2 * math.pi * 1e-6)), rel=1e-6)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 3), st.integers(0, 99))
def test_nll_of_the_mixture_is_never_above_the_mean_nll(draws: int, examples: int, outputs: int, seed: int) -> None:
    means, variances, y = mixture(draws, examples, outputs, seed=seed)
    expected = metrics.expected_gaussian_nll(means, variances, y)
    assert metrics.mixture_nll(means, variances, y) <= expected + 1e-12 * (1 + abs(expected))


def test_coverage_and_calibration_of_exact_gaussians() -> None:
    mean, count = normal(20_000, scale=3.0), 20_000
    variance = normal(count, seed=2).square() + 0.3
    y = mean + variance.sqrt() * normal(count, seed=3)
    pit = metrics.gaussian_pit(mean, variance, y)
    for level in (0.5, 0.9, 0.95):
        found = metrics.interval_coverage(pit, level)
        # Four standard errors: fails once in 16,000 seeds.
        assert abs(found.value - level) < 4 * math.sqrt(level * (1 - level) / count)
        assert found.error == pytest.approx(math.sqrt(level * (1 - level) / count), rel=0.02)
        by_hand = ((y - mean).abs() <= scipy.stats.norm.ppf((1 + level) / 2) * variance.sqrt()).double().mean()
        assert found.value == pytest.approx(float(by_hand), abs=1e-12)
    assert metrics.calibration_error(pit) < 4 * 0.5 / math.sqrt(count)
    # Stds half as large as they should be: P(|z| < 1.96 / 2) = 0.673.
    narrow = metrics.gaussian_pit(mean, variance / 4, y)
    assert metrics.interval_coverage(narrow, 0.95) == pytest.approx(
        2 * scipy.stats.norm.cdf(1.95996 / 2) - 1, abs=0.014
    )
    levels = np.arange(1, 20) / 20
    exact = np.abs(scipy.stats.norm.cdf(scipy.stats.norm.ppf(levels) / 2) - levels).mean()
    assert metrics.calibration_error(narrow) == pytest.approx(exact, abs=0.008)


def test_pit_of_a_mixture() -> None:
    means, variances, _ = mixture(5, 4000)
    which = torch.randint(5, (4000,), generator=make_generator(8))
    rows = torch.arange(4000)
    y = means[which, rows] + variances[which, rows].sqrt() * normal(4000, seed=9)
    pit = metrics.mixture_pit(means, variances, y)
    slow = scipy.stats.norm.cdf(float(y[3]), means[:, 3].numpy(), variances[:, 3].sqrt().numpy()).mean()
    assert float(pit[3]) == pytest.approx(slow)
    # Targets from the mixture itself: its PIT is uniform, the Gaussian's of one draw is not.
    assert scipy.stats.kstest(pit.numpy(), "uniform").pvalue > 1e-4
    assert metrics.calibration_error(pit) < 0.02
    assert metrics.calibration_error(metrics.gaussian_pit(means[0], variances[0], y)) > 0.1


def test_calibration_error_sees_predictions_that_are_all_too_high() -> None:
    pit = torch.linspace(0, 0.5, 1001)
    assert metrics.interval_coverage(pit, 0.5) == pytest.approx(0.5, abs=0.002)  # central intervals see nothing
    exact = sum(abs(min(1.0, 2 * q / 20) - q / 20) for q in range(1, 20)) / 19
    assert metrics.calibration_error(pit) == pytest.approx(exact, abs=0.002)


def test_standard_errors_against_the_bootstrap() -> None:
    mean = normal(700)
    variance = normal(700, seed=2).square() + 0.3
    # Too sure, and too high.
    y = mean - 0.6 + 2 * variance.sqrt() * normal(700, seed=3)
    found = metrics.rmse(mean, y)
    direct = bootstrap(lambda errors: errors.square().mean(-1).sqrt(), found.value, (mean - y,))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)
    pit, levels = metrics.gaussian_pit(mean, variance, y), torch.arange(1, 20).double() / 20

    def distance(pit: Tensor) -> Tensor:
        """From the levels to the shares of targets below them."""
        below = torch.stack([(pit <= level).double().mean(-1) for level in levels], -1)
        return (below - levels).abs().mean(-1)

    found = metrics.calibration_error(pit)
    direct = bootstrap(distance, found.value, (pit,))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)
    for per_example, metric in (
        (metrics.gaussian_crps.of_examples, metrics.gaussian_crps),
        (metrics.gaussian_nll.of_examples, metrics.gaussian_nll),
    ):
        values = per_example(mean, variance, y)
        found = metrics.estimate_mean(values)
        assert found.value == pytest.approx(metric(mean, variance, y), rel=1e-13)
        direct = bootstrap(lambda values: values.mean(-1), metric(mean, variance, y), (values,))
        assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)


def test_a_perfect_prediction() -> None:
    assert metrics.rmse(torch.ones(3), torch.ones(3)) == metrics.Estimate(0.0, 0.0)
    assert metrics.rmse(torch.ones(1), torch.zeros(1)) == metrics.Estimate(1.0, None)


def test_shapes_are_never_broadcast() -> None:
    means, variances, y = mixture(4, 6)
    expected = metrics.mixture_nll(means, variances, y)
    assert metrics.mixture_nll(means[..., None], variances, y) == pytest.approx(expected)
    assert metrics.mixture_nll(means, variances[..., None], y[:, None]) == pytest.approx(expected)
    with pytest.raises(DataError, match=r"means: shape \(6, 4\); targets of shape \(6,\)"):
        metrics.mixture_crps(means.T, variances, y)
    with pytest.raises(DataError, match=r"variances: shape \(4,\); 4 draws .* ask for \(4, 6\), or \(6,\)"):
        metrics.mixture_crps(means, variances[:, 0], y)
    # As many draws as examples: (4,) is of the examples.
    square, shared = means[:, :4], variances[0, :4]
    direct = metrics.mixture_nll(square, shared.expand(4, 4), y[:4])
    assert metrics.mixture_nll(square, shared, y[:4]) == pytest.approx(direct)


def test_bad_input_is_one_line() -> None:
    means, _, y = mixture(4, 6)
    with pytest.raises(DataError, match="smallest variance is 0; it must be above 0"):
        metrics.mixture_nll(means, torch.zeros(6), y)
    with pytest.raises(DataError, match=r"smallest variance is -0\.1; it must be at least 0"):
        metrics.gaussian_crps(y, torch.full((6,), -0.1), y)
    with pytest.raises(DataError, match=r"pit: numbers from -0.2 to 1.1; they must be in \[0, 1\]"):
        metrics.calibration_error(torch.tensor([-0.2, 1.1]))
    with pytest.raises(SettingError, match=r"level = 95; it must be a number in \(0, 1\)"):
        metrics.interval_coverage(torch.tensor([0.2]), 95)
    with pytest.raises(DataError, match="no levels"):
        metrics.calibration_error(torch.tensor([0.2]), levels=[])
    with pytest.raises(DataError, match="targets: a list; it must be a tensor"):
        metrics.rmse(y, y.tolist())  # type: ignore[arg-type]
