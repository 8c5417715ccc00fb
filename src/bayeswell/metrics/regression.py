"""Scores of real-valued predictions (S,) or (S, C) against targets; means over examples and outputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import DataError
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


def interval_coverage(pit: Array, below: Array | None = None, *, level: float) -> Estimate:
    """Share of targets inside the central interval, which leaves (1 - level) / 2 on each side.

    ``pit`` is P(Y <= y) of each target, ``below`` P(Y < y) of counts: then the interval includes both its ends and has
    at least ``level``.
    """
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


def _as_pit(pit: Array) -> Tensor:
    values = as_numbers("pit", pit)
    if float(values.min()) < 0 or float(values.max()) > 1:
        raise DataError(f"pit must lie in [0, 1], got {float(values.min()):g} to {float(values.max()):g}")
    return values
