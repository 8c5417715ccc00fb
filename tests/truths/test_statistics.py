"""The assertions fail as rarely as they say on correct samples, and see planted errors of 3 to 10 %."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from .arrays import Array
from .statistics import (
    _product_quantiles,
    assert_covariance_close,
    assert_distribution_close,
    assert_mean_close,
    assert_variance_close,
)

FACTOR = np.array([[1.4, 0.0, 0.0], [0.5, 0.3, 0.0], [-0.9, 0.2, 2.0]])
COVARIANCE = FACTOR @ FACTOR.T
MEAN = np.array([1.1, -0.4, 3.0])


def gaussian(count: int, seed: int) -> Array:
    return MEAN + np.random.default_rng(seed).standard_normal((count, 3)) @ FACTOR.T


def flipped(count: int, seed: int) -> Array:
    """Pairs (e, r e) with a random sign r: each Gaussian, uncorrelated, not independent (flipout's law)."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal(count)
    return np.stack([noise, noise * generator.choice([-1.0, 1.0], count)], 1)


def uniform(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 2, (count, 2))


def failures(check: Callable[[int], None], trials: int) -> int:
    count = 0
    for seed in range(trials):
        try:
            check(seed)
        except AssertionError:
            count += 1
    return count


UNIFORM = stats.uniform(-1, 3)
"""Of `uniform`; scipy takes longer to make a distribution than to use it."""

RATE, TRIALS = 0.05, 1000
# Name: the check at the raised rate, and the least share of RATE it must use (a bound may use less).
CALIBRATION: dict[str, tuple[Callable[[int], None], float]] = {
    "mean": (lambda s: assert_mean_close(gaussian(300, s), MEAN, RATE), 0.7),
    "mean, known std": (
        lambda s: assert_mean_close(gaussian(300, s), MEAN, RATE, np.sqrt(np.diag(COVARIANCE))),
        0.7,
    ),
    "mean, uniform": (lambda s: assert_mean_close(uniform(300, s), [0.5, 0.5], RATE), 0.7),
    "variance": (lambda s: assert_variance_close(gaussian(300, s), np.diag(COVARIANCE), RATE), 0.7),
    "variance, any": (
        lambda s: assert_variance_close(gaussian(1000, s), np.diag(COVARIANCE), RATE, law="any"),
        0.7,
    ),
    "variance, uniform": (
        lambda s: assert_variance_close(uniform(1000, s), [0.75, 0.75], RATE, law="any"),
        0.7,
    ),
    "covariance": (lambda s: assert_covariance_close(gaussian(300, s), COVARIANCE, RATE), 0.5),
    "covariance, any": (lambda s: assert_covariance_close(flipped(1000, s), np.eye(2), RATE, law="any"), 0.5),
    "covariance, any, uniform": (
        lambda s: assert_covariance_close(uniform(1000, s)[:, :1], [[0.75]], RATE, law="any"),
        0.7,
    ),
    "covariance, any, gaussian": (
        lambda s: assert_covariance_close(gaussian(1000, s), COVARIANCE, RATE, law="any"),
        0.5,
    ),
    "distribution": (
        lambda s: assert_distribution_close(uniform(300, s), UNIFORM.cdf, RATE),
        0.3,
    ),
}


@pytest.mark.parametrize("name", CALIBRATION)
def test_false_failures_are_as_rare_as_stated(name: str) -> None:
    """At a rate raised to 5 %, failures in 1000 trials lie within binomial limits (1e-4 each side)."""
    check, least = CALIBRATION[name]
    found = failures(check, TRIALS)
    assert stats.binom.ppf(1e-4, TRIALS, least * RATE) <= found <= stats.binom.isf(1e-4, TRIALS, RATE)


def test_covariance_quantiles_far_in_the_tail() -> None:
    """The law of a sample variance is known exactly: Cornish-Fisher must match chi-square at rate 1e-8."""
    degrees, z = 2000.0, float(stats.norm.isf(0.5e-8))
    low, high = _product_quantiles(np.array(1.0), degrees, z)
    error = np.sqrt(2 / degrees)
    assert 1 + low * error == pytest.approx(stats.chi2.ppf(0.5e-8, degrees) / degrees, abs=2e-3 * z * error)
    assert 1 + high * error == pytest.approx(stats.chi2.isf(0.5e-8, degrees) / degrees, abs=2e-3 * z * error)
    low, high = _product_quantiles(np.array([-0.6, 0.0, 0.6]), degrees, z)
    np.testing.assert_allclose(low, -high[::-1])  # turning the sign of one variable swaps the tails


# Name: the check, correct samples that pass it at the default rate 1e-6, and wrong ones that must not.
PLANTED: dict[str, tuple[Callable[[Array], None], Array, Array]] = {
    "mean 3.3 % too large": (
        lambda x: assert_mean_close(x, MEAN),
        gaussian(100_000, 1),
        gaussian(100_000, 1) + 0.033 * MEAN * [1, 1, 0],
    ),
    "mean 10 % too small": (
        lambda x: assert_mean_close(x, MEAN, std=np.sqrt(np.diag(COVARIANCE))),
        gaussian(20_000, 2),
        gaussian(20_000, 2) - 0.1 * MEAN,
    ),
    "std 5 % too small": (
        lambda x: assert_variance_close(x, np.diag(COVARIANCE)),
        gaussian(25_000, 3),
        0.95 * gaussian(25_000, 3),
    ),
    "std 5 % too large, any law": (
        lambda x: assert_variance_close(x, np.diag(COVARIANCE), law="any"),
        gaussian(25_000, 4),
        1.05 * gaussian(25_000, 4),
    ),
    "variance 3 % too large": (
        lambda x: assert_variance_close(x, np.diag(COVARIANCE)),
        gaussian(260_000, 5),
        np.sqrt(1.03) * gaussian(260_000, 5),
    ),
    "correlation 0.1 lost": (
        lambda x: assert_covariance_close(x, np.eye(2)),
        np.random.default_rng(6).standard_normal((13_000, 2)),
        np.random.default_rng(6).standard_normal((13_000, 2)) @ np.linalg.cholesky([[1, 0.1], [0.1, 1]]).T,
    ),
    "covariance 5 % in std, any law": (
        lambda x: assert_covariance_close(x, COVARIANCE, law="any"),
        gaussian(25_000, 7),
        1.05 * gaussian(25_000, 7),
    ),
    "examples share the sign": (
        lambda x: assert_covariance_close(x, np.eye(2), law="any"),
        flipped(5_000, 8),
        np.repeat(flipped(5_000, 8)[:, :1], 2, 1),
    ),
    "uniform for a normal of the same moments": (
        lambda x: assert_distribution_close(x, stats.norm(0.5, np.sqrt(0.75)).cdf),
        np.random.default_rng(9).normal(0.5, np.sqrt(0.75), (10_000, 2)),
        uniform(10_000, 9),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_seen(name: str) -> None:
    check, correct, wrong = PLANTED[name]
    check(correct)
    with pytest.raises(AssertionError, match="is off at"):
        check(wrong)


def test_coordinates_share_the_rate() -> None:
    """A shift of 5.5 standard errors is too much among 4 coordinates (limit 5.2), not among 2000 (6.3)."""
    samples = np.random.default_rng(10).standard_normal((1000, 4))
    samples = (samples - samples.mean(0)) / samples.std(0)
    shift = 5.5 / np.sqrt(1000)
    with pytest.raises(AssertionError, match="mean is off at 4 of 4"):
        assert_mean_close(samples + shift, np.zeros(4))
    wide = np.tile(samples, (1, 500))
    assert_mean_close(wide + shift, np.zeros(2000))


def test_messages_name_the_worst_coordinate() -> None:
    samples = np.random.default_rng(11).standard_normal((1000, 2, 3))
    samples[:, 1, 2] += 0.7
    with pytest.raises(AssertionError, match=r"off at 1 of 6 coordinates; worst at \(1, 2\): found 0\.\d+, truth 0,"):
        assert_mean_close(samples, np.zeros((2, 3)))


def test_constant_coordinates_allow_rounding_only() -> None:
    constant = torch.full((200, 1), 1 / 3, dtype=torch.float32)
    assert_mean_close(constant, [1 / 3])
    assert_variance_close(constant, [0.0])
    assert_covariance_close(constant, [[0.0]])
    with pytest.raises(AssertionError):
        assert_mean_close(constant, [1 / 3 + 1e-4])
    with pytest.raises(AssertionError):
        assert_variance_close(constant + 1e-2 * torch.randn(200, 1, generator=torch.Generator()), [0.0])


def test_samples_that_cannot_be_judged_are_refused() -> None:
    samples = gaussian(1000, 12)
    with pytest.raises(ValueError, match="truth has shape"):
        assert_mean_close(samples, 1.0)  # no silent broadcasting
    with pytest.raises(ValueError, match="at least 100 draws"):
        assert_variance_close(samples[:50], np.diag(COVARIANCE))
    samples[3, 1] = np.nan
    for check in (assert_mean_close, assert_variance_close):
        with pytest.raises(AssertionError, match="1 samples are not finite"):
            check(samples, MEAN)
