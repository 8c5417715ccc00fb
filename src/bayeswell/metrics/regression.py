"""Scores of real-valued predictions (S,) or (S, C) against targets; means over examples and outputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import DataError, check_number
from .estimates import Array, Estimate, MeanScore, as_numbers, estimate_mean, from_influence, matched

CALIBRATION_LEVELS = tuple(number / 20 for number in range(1, 20))
"""0.05, 0.10, ..., 0.95."""


def rmse(predictions: Array, targets: Array) -> Estimate:
    """sqrt(mean (y - prediction)^2). Standard error: that of the mean square over 2 rmse (delta method)."""
    values, truth = matched("predictions", predictions, "targets", targets)
    square = estimate_mean((truth - values).square())
    root = math.sqrt(square.value)
    return Estimate(root, square.se if square.se is None or root == 0 else square.se / (2 * root))


@MeanScore
def mae(predictions: Array, targets: Array) -> Tensor:
    """|y - prediction|."""
    values, truth = matched("predictions", predictions, "targets", targets)
    return (truth - values).abs()


def r2(predictions: Array, targets: Array) -> Estimate:
    """1 - sum (y - prediction)^2 / sum (y - mean y)^2 of each output, averaged over the outputs that vary.

    NaN if the targets are constant. The standard error treats the mean of the targets as known.
    """
    values, truth = (part.reshape(len(part), -1) for part in matched("predictions", predictions, "targets", targets))
    wrong, spread = (truth - values).square(), (truth - truth.mean(0)).square()
    varies = (truth != truth[:1]).any(0)
    if not bool(varies.any()):
        return Estimate(math.nan)
    wrong, spread = wrong[:, varies], spread[:, varies]
    ratio = wrong.mean(0) / spread.mean(0)
    return from_influence(float(1 - ratio.mean()), (ratio * spread - wrong) / spread.mean(0))


@MeanScore
def gaussian_nll(mean: Array, variance: Array, targets: Array) -> Tensor:
    """-log N(y; mean, variance) in nats per example, summed over the outputs."""
    center, spread, truth = _gaussian(mean, variance, targets)
    losses = 0.5 * ((truth - center).square() / spread + spread.log() + math.log(2 * math.pi))
    return losses.reshape(len(losses), -1).sum(1)


@MeanScore
def gaussian_crps(mean: Array, variance: Array, targets: Array) -> Tensor:
    """Continuous ranked probability score of a Gaussian, in the units of y.

    int (F(x) - 1[x >= y])^2 dx = std (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)), z = (y - mean) / std (Gneiting &
    Raftery 2007).
    """
    center, spread, truth = _gaussian(mean, variance, targets)
    std = spread.sqrt()
    z = (truth - center) / std
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return std * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


@MeanScore
def sample_crps(samples: Array, targets: Array) -> Tensor:
    """CRPS from M >= 2 targets (M, S, ...) drawn from any prediction, in the units of y.

    mean_i |Y_i - y| - sum_{i<j} |Y_i - Y_j| / (M (M - 1)), which is unbiased for any M (Ferro 2014).
    """
    drawn, truth = as_numbers("samples", samples), as_numbers("targets", targets)
    count = len(drawn)
    if count < 2 or drawn[0].numel() != truth.numel() or drawn.shape[1] != len(truth):
        raise DataError(f"samples: shape {tuple(drawn.shape)}; they must be (M, *{tuple(truth.shape)}), M at least 2")
    ordered = drawn.reshape(count, *truth.shape).sort(0).values
    ranks = torch.arange(1, count + 1, dtype=torch.float64).reshape(-1, *[1] * truth.dim())
    pairs = ((2 * ranks - count - 1) * ordered).sum(0) / (count * (count - 1))
    return (ordered - truth).abs().mean(0) - pairs


def gaussian_pit(mean: Array, variance: Array, targets: Array) -> Tensor:
    """P(Y <= y) under the Gaussian: uniform on [0, 1] if predictions are calibrated (Dawid 1984)."""
    center, spread, truth = _gaussian(mean, variance, targets)
    result: Tensor = torch.special.ndtr((truth - center) / spread.sqrt())
    return result


def interval_coverage(pit: Array, below: Array | None = None, *, level: float) -> Estimate:
    """Share of targets inside the central interval, which leaves (1 - level) / 2 on each side.

    Args:
        pit: P(Y <= y) of each target.
        below: for counts P(Y < y); the interval includes both its ends and has at least ``level``.
        level: what calibrated predictions have.
    """
    check_number("interval_coverage", "level", level, 0, 1, above=True)
    side = (1 - level) / 2
    return estimate_mean(((_as_pit(pit) >= side) & (_as_pit(pit if below is None else below) < 1 - side)).double())


@MeanScore
def interval_width(lower: Array, upper: Array) -> Tensor:
    """upper - lower, in the units of y."""
    low, high = matched("lower", lower, "upper", upper)
    return high - low


def calibration_error(pit: Array) -> Estimate:
    """Mean over levels q = 0.05 to 0.95 of |share of targets at or below their predicted q-quantile - q|.

    Kuleshov et al. 2018 with absolute instead of squared differences. Of quantiles, not of central intervals: those do
    not notice predictions that are all too high.
    """
    values = _as_pit(pit)
    total, influence = 0.0, torch.zeros_like(values)
    for level in CALIBRATION_LEVELS:
        excess = (values <= level).double() - level
        gap = excess.mean()
        total += float(gap.abs())
        influence += gap.sign() * excess
    return from_influence(total / len(CALIBRATION_LEVELS), influence / len(CALIBRATION_LEVELS))


def _gaussian(mean: Array, variance: Array, targets: Array) -> tuple[Tensor, Tensor, Tensor]:
    center, truth = matched("mean", mean, "targets", targets)
    spread, _ = matched("variance", variance, "targets", targets)
    if float(spread.min()) <= 0:
        raise DataError(f"variance must be above 0, got a minimum of {float(spread.min()):g}")
    return center, spread, truth


def _as_pit(pit: Array) -> Tensor:
    values = as_numbers("pit", pit)
    if float(values.min()) < 0 or float(values.max()) > 1:
        raise DataError(f"pit must lie in [0, 1], got {float(values.min()):g} to {float(values.max()):g}")
    return values
