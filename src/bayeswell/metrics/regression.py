"""Scores of real-valued predictions (S,) or (S, C) against targets.

A prediction is a Gaussian (mean and variance of y), or the mixture over posterior draws of N(mean_d, variance_d), from
``means`` (D, S, ...) and ``variances``: those of the noise, one for each draw (D, S, ...) or shared by all (S, ...).
NLLs are of the outputs together, in nats per example; CRPS and coverage are means over the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import DataError, require_between
from .checks import require_numbers, require_tensor
from .estimates import Estimate, MeanScore, from_influence, mean_of

CALIBRATION_LEVELS = tuple(number / 20 for number in range(1, 20))
"""0.05, 0.10, ..., 0.95."""

_AT_ONCE = 2**21
"""How many numbers the CRPS of a mixture works on together: bounds its memory."""


def rmse(predictions: Tensor, targets: Tensor) -> Estimate:
    """sqrt(mean (y - prediction)^2), over examples and outputs.

    Its standard error over examples: that of the mean square over 2 rmse (delta method).
    """
    values, truth = _match("predictions", predictions, targets)
    square = mean_of((truth - values).square())
    root = math.sqrt(square.value)
    if root == 0 or square.error is None:
        return Estimate(root, square.error)
    return Estimate(root, square.error / (2 * root))


def r2(predictions: Tensor, targets: Tensor) -> Estimate:
    """1 - sum (y - prediction)^2 / sum (y - mean y)^2 of each output, averaged over the outputs: as in scikit-learn.

    1 is perfect, 0 the mean of these targets. Of an output that never changes it is 1 if it is predicted exactly, else
    0. Its standard error over examples is by the delta method, the mean of the targets taken as known.
    """
    values, truth = _match("predictions", predictions, targets)
    wrong, spread = ((truth - other).square().flatten(1) if truth.dim() > 1 else (truth - other).square()[:, None]
                     for other in (values, truth.mean(0)))  # fmt: skip
    residual, total = wrong.mean(0), spread.mean(0)
    constant = total == 0
    ratio = torch.where(constant, (residual > 0).double(), residual / torch.where(constant, 1.0, total))
    influence = (ratio * spread - wrong) / torch.where(constant, math.inf, total)
    return from_influence(float(1 - ratio.mean()), influence)


@MeanScore
def gaussian_nll(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """-log N(y; mean, variance) in nats per example, with its normaliser, summed over the outputs.

    With the mean and variance of a posterior predictive this scores the Gaussian of the same two moments,
    not the mixture itself (``mixture_nll``).
    """
    centre, spread, truth = _gaussian(mean, variance, targets)
    return -_log_density(centre, spread, truth)


@MeanScore
def mixture_nll(means: Tensor, variances: Tensor, targets: Tensor) -> Tensor:
    """-log mean_d prod_c N(y_c; mean_dc, variance_dc) in nats per example: the NLL of the posterior predictive.

    Never above ``expected_gaussian_nll`` (Jensen).
    """
    logs = _draw_log_densities(means, variances, targets)
    return math.log(len(logs)) - logs.logsumexp(0)


@MeanScore
def expected_gaussian_nll(means: Tensor, variances: Tensor, targets: Tensor) -> Tensor:
    """-mean_d log N(y; mean_d, variance_d) in nats per example: the likelihood term of the ELBO."""
    return -_draw_log_densities(means, variances, targets).mean(0)


@MeanScore
def gaussian_crps(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """Continuous ranked probability score of a Gaussian, in the units of y: the mean over examples and outputs.

    int (F(x) - 1[x >= y])^2 dx = std (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)), z = (y - mean) / std (Gneiting &
    Raftery 2007). A variance of 0 gives |y - mean|.
    """
    centre, spread, truth = _gaussian(mean, variance, targets, zero_allowed=True)
    return _expected_distance(truth - centre, spread) - (spread / math.pi).sqrt()


@MeanScore
def mixture_crps(means: Tensor, variances: Tensor, targets: Tensor) -> Tensor:
    """CRPS of the mixture over draws, in the units of y: the mean over examples and outputs.

    E|Y - y| - E|Y - Y'| / 2 with Y, Y' from the mixture, in closed form for Gaussians (Grimit et al. 2006). Variances
    of 0 are allowed: the draws are then samples of y itself. The mixture of these D draws is scored as it stands; more
    draws score lower on average, by a term in 1/D. Costs D^2 / 2 terms for each target.
    """
    centres, spreads, truth = _mixture(means, variances, targets, zero_allowed=True)
    draws = len(centres)
    parts = []
    blocks = (tensor.reshape(draws, -1).split(max(1, _AT_ONCE // draws), 1) for tensor in (centres, spreads))
    for centre, spread in zip(*blocks, strict=True):
        # Each draw against itself, whose means agree, and twice against each later one.
        pairs = (4 * spread / math.pi).sqrt().sum(0)
        for d in range(draws - 1):
            pairs += 2 * _expected_distance(centre[d] - centre[d + 1 :], spread[d] + spread[d + 1 :]).sum(0)
        parts.append(pairs / (2 * draws**2))
    return _expected_distance(truth - centres, spreads).mean(0) - torch.cat(parts).reshape(truth.shape)


@MeanScore
def sample_crps(samples: Tensor, targets: Tensor) -> Tensor:
    """CRPS from targets (M, S, ...) drawn from any prediction, M at least 2: the mean over examples and outputs.

    mean_i |Y_i - y| - sum_{i<j} |Y_i - Y_j| / (M (M - 1)), which is right on average for any M (Ferro 2014).
    """
    truth = require_numbers("targets", targets)
    drawn = require_numbers("samples", samples)
    if len(drawn) < 2 or tuple(drawn.shape[1:]) not in _alike(tuple(truth.shape)):
        raise DataError(
            f"samples: shape {tuple(drawn.shape)}; targets of shape {tuple(truth.shape)} ask for (M, "
            f"*{tuple(truth.shape)}), M at least 2"
        )
    count = len(drawn)
    ordered = drawn.reshape(count, *truth.shape).sort(0).values
    ranks = torch.arange(1, count + 1, dtype=torch.float64).reshape(-1, *[1] * truth.dim())
    pairs = ((2 * ranks - count - 1) * ordered).sum(0) / (count * (count - 1))
    return (ordered - truth).abs().mean(0) - pairs


def gaussian_pit(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """P(Y <= y) under the Gaussian, with the targets' shape: uniform on [0, 1] if predictions are calibrated.

    The probability integral transform (Dawid 1984), from which coverage and calibration error follow.
    """
    centre, spread, truth = _gaussian(mean, variance, targets)
    result: Tensor = torch.special.ndtr((truth - centre) / spread.sqrt())
    return result


def mixture_pit(means: Tensor, variances: Tensor, targets: Tensor) -> Tensor:
    """P(Y <= y) under the mixture over draws, with the targets' shape."""
    centres, spreads, truth = _mixture(means, variances, targets)
    result: Tensor = torch.special.ndtr((truth - centres) / spreads.sqrt()).mean(0)
    return result


def interval_coverage(pit: Tensor, level: float, *, below: Tensor | None = None) -> Estimate:
    """The share of targets inside the central interval of this level, which leaves (1 - level) / 2 on each side.

    Calibrated predictions have ``level``. From ``gaussian_pit`` or ``mixture_pit``, P(Y <= y). Of counts ``below`` is
    P(Y < y): the interval goes from one quantile to the other, ends included, and has ``level`` at least.
    """
    require_between("interval_coverage", "level", level, 0, 1, open_low=True, open_high=True)
    if below is not None:
        side = (1 - level) / 2
        return mean_of(((_require_pit(pit) >= side) & (_require_pit(below) < 1 - side)).double())
    # In this form the edges of Gaussian intervals are the same on both sides.
    return mean_of(((_require_pit(pit) - 0.5).abs() <= level / 2).double())


def calibration_error(pit: Tensor, *, levels: Sequence[float] = CALIBRATION_LEVELS) -> Estimate:
    """The mean over levels q of |share of targets at or below their predicted q-quantile - q|; 0.05 to 0.95 by default.

    Kuleshov et al. 2018 with absolute instead of squared differences. Of quantiles, not of central intervals: those
    do not notice predictions that are all too high (PIT uniform on [0, 1/2]).

    Its standard error over examples, by the delta method.
    """
    values = _require_pit(pit)
    if not levels:
        raise DataError("calibration_error: no levels; it takes at least one number in (0, 1)")
    total, influence = 0.0, torch.zeros_like(values)
    for level in levels:
        require_between("calibration_error", "level", level, 0, 1, open_low=True, open_high=True)
        excess = (values <= level).double() - level
        gap = float(excess.mean())
        total += abs(gap)
        influence += math.copysign(1, gap) * excess if gap else 0.0
    return from_influence(total / len(levels), influence / len(levels))


def _log_density(centre: Tensor, spread: Tensor, truth: Tensor) -> Tensor:
    """log N(y; centre, spread) summed over the outputs of each example: the first axis of the targets stays."""
    logs = -0.5 * ((truth - centre).square() / spread + spread.log() + math.log(2 * math.pi))
    extra = centre.dim() - truth.dim()
    return logs.flatten(1 + extra).sum(-1) if truth.dim() > 1 else logs


def _draw_log_densities(means: Tensor, variances: Tensor, targets: Tensor) -> Tensor:
    """(D, S)."""
    return _log_density(*_mixture(means, variances, targets))


def _expected_distance(gap: Tensor, variance: Tensor) -> Tensor:
    """E|N(gap, variance)| = 2 std phi(gap/std) + gap (2 Phi(gap/std) - 1)."""
    std = variance.sqrt()
    # Where the variance is 0 any std does, as the other branch is taken.
    z = gap / torch.where(std > 0, std, 1.0)
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return torch.where(std > 0, 2 * std * density + gap * torch.special.erf(z / math.sqrt(2)), gap.abs())


def _gaussian(
    mean: Tensor, variance: Tensor, targets: Tensor, *, zero_allowed: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    centre, truth = _match("mean", mean, targets)
    spread, _ = _match("variance", variance, targets)
    _require_variance(spread, zero_allowed)
    return centre, spread, truth


def _mixture(
    means: Tensor, variances: Tensor, targets: Tensor, *, zero_allowed: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Means and variances (D, *targets.shape), the latter expanded if all draws share them."""
    centres, truth = require_numbers("means", means), require_numbers("targets", targets)
    wanted = tuple(truth.shape)
    draws = len(centres)
    if tuple(centres.shape[1:]) not in _alike(wanted):
        raise DataError(f"means: shape {tuple(centres.shape)}; targets of shape {wanted} ask for (D, *{wanted})")
    spreads = require_numbers("variances", variances)
    given = tuple(spreads.shape)
    shared, own = given in _alike(wanted), given[:1] == (draws,) and given[1:] in _alike(wanted)
    if not (shared or own):
        raise DataError(
            f"variances: shape {given}; {draws} draws for targets of shape {wanted} ask for {(draws, *wanted)}, "
            f"or {wanted} if all draws share them"
        )
    _require_variance(spreads, zero_allowed)
    shape = (draws, *wanted)
    spreads = spreads.reshape(shape) if own else spreads.reshape(wanted).expand(shape)
    return centres.reshape(shape), spreads, truth


def _alike(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """(S,) and (S, 1) are the same thing."""
    return (shape, (*shape, 1), shape[:-1]) if len(shape) > 1 and shape[-1] == 1 else (shape, (*shape, 1))


def _match(what: str, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both as float64 on the CPU with one shape; never broadcast (S,) against (S, 1) to (S, S)."""
    given, wanted = (tuple(require_tensor(n, t).shape) for n, t in ((what, predictions), ("targets", targets)))
    if given not in _alike(wanted):
        raise DataError(f"{what}: shape {given}; the targets have shape {wanted}")
    values, truth = require_numbers(what, predictions), require_numbers("targets", targets)
    return values.reshape(wanted), truth


def _require_variance(variance: Tensor, zero_allowed: bool) -> None:
    smallest = float(variance.min())
    if not (smallest > 0 or (zero_allowed and smallest == 0)):
        allowed = "at least 0" if zero_allowed else "above 0"
        raise DataError(f"the smallest variance is {smallest:g}; it must be {allowed}")


def _require_pit(pit: Tensor) -> Tensor:
    values = require_numbers("pit", pit)
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise DataError(f"pit: numbers from {float(values.min()):g} to {float(values.max()):g}; they must be in [0, 1]")
    return values
