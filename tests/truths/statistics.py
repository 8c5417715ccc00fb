"""Assertions whose tolerances come from standard errors, with a stated false-failure rate.

`samples` has S independent draws along its first axis, each of any shape (m numbers). Every function shares
`false_failure_rate` over all it compares (Bonferroni): one call on correct code fails at most that often. Let
z be the two-sided normal quantile at false_failure_rate / m (at 1e-6, 4.9 for m = 1, 6.1 for m = 1000).
"Detects" names twice the tolerance: a discrepancy that large is missed about as rarely as correct code fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy import special

from .arrays import Array, ArrayLike, float64

Law = Literal["gaussian", "any"]


def _checked(samples: ArrayLike, truth: ArrayLike | None, least: int = 100) -> tuple[Array, Array, float]:
    """Samples as S x m, truth as m (no broadcasting), and the rounding unit of the samples' own dtype."""
    values = float64(samples)
    if values.ndim < 1 or len(values) < least:
        raise ValueError(f"samples have shape {values.shape}: at least {least} draws along the first axis needed")
    expected = np.zeros(values.shape[1:]) if truth is None else float64(truth)
    if expected.shape != values.shape[1:]:
        raise ValueError(f"truth has shape {expected.shape}, one draw has shape {values.shape[1:]}")
    assert np.isfinite(values).all(), f"{np.sum(~np.isfinite(values))} samples are not finite"
    dtype = samples.dtype if isinstance(samples, torch.Tensor) else np.asarray(samples).dtype
    single = dtype in (torch.float32, np.dtype(np.float32))
    unit = float(np.finfo(np.float32 if single else np.float64).eps)
    return values.reshape(len(values), -1), expected.reshape(-1), 64 * unit


def _compare(name: str, found: Array, truth: Array, low: Array, high: Array, shape: tuple[int, ...]) -> None:
    """Fail unless low <= found <= high everywhere, naming the worst coordinate."""
    excess = np.maximum(found - high, low - found)
    if (excess <= 0).all():
        return
    worst = int(np.argmax(excess / np.maximum(high - low, 1e-300)))
    where = tuple(int(i) for i in np.unravel_index(worst, shape)) if shape else ()
    raise AssertionError(
        f"{name} is off at {np.sum(excess > 0)} of {found.size} coordinates; worst at {where}: "
        f"found {found[worst]:.6g}, truth {truth[worst]:.6g}, allowed [{low[worst]:.6g}, {high[worst]:.6g}]"
    )


def assert_mean_close(
    samples: ArrayLike, truth: ArrayLike, false_failure_rate: float = 1e-6, std: ArrayLike | None = None
) -> None:
    """The mean of the samples equals `truth`: a t-test per coordinate, a z-test if the true `std` is given.

    False failures: `false_failure_rate` per call; exact for Gaussian draws, else by the central limit.
    Detects: a shift above 2 z std / sqrt(S): 0.1 std at S = 10,000 and m = 1, 3.3 % of a mean of 3 std.
    """
    values, expected, rounding = _checked(samples, truth)
    count, coordinates = values.shape
    tail = false_failure_rate / (2 * coordinates)
    # Quantiles by the functions under `scipy.stats`, which itself takes longer than all the rest of a test.
    if std is None:
        tolerance = -special.stdtrit(count - 1, tail) * values.std(0, ddof=1) / np.sqrt(count)
    else:
        tolerance = -special.ndtri(tail) * np.broadcast_to(float64(std).reshape(-1), expected.shape) / np.sqrt(count)
    tolerance = tolerance + rounding * np.abs(values).max(0)
    low, high = expected - tolerance, expected + tolerance
    _compare("mean", values.mean(0), expected, low, high, np.shape(samples)[1:])


def assert_variance_close(
    samples: ArrayLike, truth: ArrayLike, false_failure_rate: float = 1e-6, law: Law = "gaussian"
) -> None:
    """The variance of the samples equals `truth`: nu (sample variance) / truth is chi-square with nu degrees.

    law "gaussian": nu = S - 1, the exact law. law "any": the nu that matches the standard error of the sample
    variance, nu = 2 S / (k - (S-3)/(S-1)) with k the sample kurtosis (fourth moment); asymptotic, for
    laws with light tails that are not two-point.
    False failures: `false_failure_rate` per call.
    Detects: a relative error above 2 z sqrt(2 / nu): for Gaussian draws and m <= 10, 10 % in variance (5 % in
    std) from S = 23,000, 3 % in variance from S = 260,000.
    """
    values, expected, rounding = _checked(samples, truth)
    count, coordinates = values.shape
    found = values.var(0, ddof=1)
    degrees = np.full(coordinates, count - 1.0)
    if law == "any":
        centred = values - values.mean(0)
        kurtosis = (centred**4).mean(0) / np.maximum((centred**2).mean(0) ** 2, 1e-300)
        degrees = 2 * count / np.maximum(kurtosis - (count - 3) / (count - 1), 2 / count)
    tail = false_failure_rate / (2 * coordinates)
    slack = rounding * np.abs(values).max(0) ** 2
    low = expected * 2 * special.gammaincinv(degrees / 2, tail) / degrees - slack
    high = expected * special.chdtri(degrees, tail) / degrees + slack
    _compare("variance", found, expected, low, high, np.shape(samples)[1:])


def _product_quantiles(correlation: Array, degrees: float, z: float) -> tuple[Array, Array]:
    """Lower and upper quantiles, in standard errors, of the sample covariance of a Gaussian pair.

    It is a chi^2 - b chi'^2 over nu with a, b = (1 +- rho) / 2; Cornish-Fisher to second order in 1/sqrt(nu).
    """
    a, b = (1 + correlation) / 2, (correlation - 1) / 2
    spread = a**2 + b**2
    skew = 8 * (a**3 + b**3) / (2 * spread) ** 1.5 / np.sqrt(degrees)
    excess = 12 * (a**4 + b**4) / spread**2 / degrees

    def quantile(q: float) -> Array:
        correction = excess * (q**3 - 3 * q) / 24 - skew**2 * (2 * q**3 - 5 * q) / 36
        return q + skew * (q**2 - 1) / 6 + correction

    return quantile(-z), quantile(z)


def assert_covariance_close(
    samples: ArrayLike, truth: ArrayLike, false_failure_rate: float = 1e-6, law: Law = "gaussian"
) -> None:
    """The covariance of the samples, each draw flattened to m numbers, equals `truth` (m x m) in every entry.

    law "gaussian" (jointly): Var(s_ij) = (t_ii t_jj + t_ij^2) / (S - 1) from the truth t, corrected for skew
    and kurtosis. law "any": Var(s_ij) = t_ii t_jj (E[z_i^2 z_j^2] - E[z_i z_j]^2) / S, z the samples
    standardised; asymptotic (failures up to twice the stated rate at S = 20,000).
    False failures: `false_failure_rate` per call, over the m (m + 1) / 2 entries.
    Detects (Gaussian): an error in t_ij above 2 z sqrt((t_ii t_jj + t_ij^2) / S): a correlation of 0.1 where
    the truth says 0 from S = 13,000 (m <= 10).
    """
    values, _, rounding = _checked(samples, None)
    expected = float64(truth)
    count, size = values.shape
    if expected.shape != (size, size):
        raise ValueError(f"truth has shape {expected.shape}, needs {(size, size)}")
    centred = values - values.mean(0)
    found = centred.T @ centred / (count - 1)
    z = -float(special.ndtri(false_failure_rate / (size * (size + 1))))
    variances = np.outer(np.diag(expected), np.diag(expected))
    if law == "gaussian":
        error = np.sqrt((variances + expected**2) / (count - 1))
        correlation = np.divide(expected, np.sqrt(variances), out=np.zeros_like(expected), where=variances > 0)
        lower, upper = _product_quantiles(correlation, count - 1.0, z)
    else:
        # Shape from the samples, scale from the truth: a low sample variance must not narrow its own limits.
        spread = centred.std(0)
        z_scores = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
        fourth, second = (z_scores**2).T @ (z_scores**2) / count, z_scores.T @ z_scores / count
        error = np.sqrt(variances * np.maximum(fourth - second**2, 0) / count)
        lower, upper = np.full_like(error, -z), np.full_like(error, z)
    scale = np.abs(values).max(0)
    slack = rounding * np.outer(scale, scale)
    low, high = expected + lower * error - slack, expected + upper * error + slack
    flat_low, flat_high = low.reshape(-1), high.reshape(-1)
    _compare("covariance", found.reshape(-1), expected.reshape(-1), flat_low, flat_high, (size, size))


def assert_distribution_close(
    samples: ArrayLike, cdf: Callable[[Array], Array], false_failure_rate: float = 1e-6
) -> None:
    """Each coordinate has the continuous law `cdf` (elementwise on S x ...): Kolmogorov-Smirnov, DKW bound.

    P(sup |F_S - F| > e) <= 2 exp(-2 S e^2) (Dvoretzky-Kiefer-Wolfowitz with Massart's constant), for every S.
    False failures: at most `false_failure_rate` per call.
    Detects: a law more than 2 e away in sup distance, e = sqrt(log(2 m / rate) / (2 S)): 0.054 at S = 10,000,
    m = 1 (a normal shifted by 0.14 std, or its std 25 % too large). Sees shape; the rest see moments better.
    """
    values, _, _ = _checked(samples, None)
    count, coordinates = values.shape
    ordered = np.sort(float64(samples), axis=0)
    levels = float64(cdf(ordered)).reshape(count, -1)
    steps = np.arange(count + 1)[:, None] / count
    distance = np.maximum(steps[1:] - levels, levels - steps[:-1]).max(0)
    allowed = np.sqrt(np.log(2 * coordinates / false_failure_rate) / (2 * count))
    bound = np.full_like(distance, allowed)
    zero = np.zeros_like(distance)
    _compare("distribution function", distance, zero, zero - 1, bound, np.shape(samples)[1:])
