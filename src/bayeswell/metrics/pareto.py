"""The tail of importance ratios: its generalised Pareto shape k-hat.

Zhang & Stephens 2009 fit the distribution; Vehtari et al. 2024 ("Pareto smoothed importance sampling") use its shape as
a diagnostic: with k below 0.5 the ratios have a finite variance, above 0.7 no practical number of draws will do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import DataError

_PRIOR_WEIGHT, _PRIOR_SHAPE = 10, 0.5
_ROUNDING = 1e-11


def fit_generalised_pareto(exceedances: Tensor) -> tuple[float, float]:
    """Shape k and scale sigma of exceedances x > 0 with P(X > x) = (1 + k x / sigma)^(-1/k).

    The posterior mean of Zhang & Stephens over b = -k / sigma on a grid, with their prior; then the shape is drawn
    towards 0.5 as by 10 more observations (Vehtari et al. 2024, appendix G), which steadies short tails.
    """
    x = exceedances.detach().double().cpu().sort().values
    count = len(x)
    if count < 5 or not bool((x.isfinite() & (x >= 0)).all()) or float(x[-1]) <= 0:
        raise DataError("generalised Pareto fit: give at least 5 finite exceedances, not all of them 0")
    grid = 30 + int(math.sqrt(count))
    # Ratios next to 0 in the lower quartile (ties at the threshold) must not blow up the grid.
    quartile = max(float(x[int(count / 4 + 0.5) - 1]), torch.finfo(torch.float64).tiny * 1e8)
    steps = torch.arange(1, grid + 1, dtype=torch.float64)
    b = 1 / x[-1] + (1 - (grid / (steps - 0.5)).sqrt()) / (3 * quartile)
    shapes = torch.log1p(-b[:, None] * x).mean(1)
    log_likelihood = count * ((-b / shapes).log() - shapes - 1)
    log_likelihood = torch.where(log_likelihood.isnan(), -math.inf, log_likelihood)
    best = (torch.softmax(log_likelihood, 0) * b).sum()
    shape = float(torch.log1p(-best * x).mean())
    scale = -shape / float(best)
    return (count * shape + _PRIOR_WEIGHT * _PRIOR_SHAPE) / (count + _PRIOR_WEIGHT), scale


def k_hat(log_ratios: Tensor) -> float:
    """The shape of the upper tail of importance ratios, given their logarithms (S,); -inf if its ratios are all equal.

    The tail is the largest min(S / 5, 3 sqrt(S)) ratios, measured from the largest one below it.
    """
    values = log_ratios.detach().double().cpu().sort().values
    count = len(values)
    if values.dim() != 1 or count < 25:
        raise DataError(f"k-hat: log ratios have shape {tuple(log_ratios.shape)}; they must be (S,) with S at least 25")
    if not bool(values.isfinite().all()):
        raise DataError("k-hat: a log ratio is NaN or infinite; every one must be finite")
    length = math.ceil(min(count / 5, 3 * math.sqrt(count)))
    # Differences that small are rounding of the log ratios themselves.
    if float(values[-1] - values[-length - 1]) <= _ROUNDING * (1 + float(values.abs().max())):
        return -math.inf
    # Relative to the largest: only the tail's shape counts, and exp cannot overflow.
    ratios = (values - values[-1]).exp()
    exceedances = ratios[-length:] - ratios[-length - 1]
    return fit_generalised_pareto(exceedances)[0]


def k_hat_limit(draws: int) -> float:
    """min(1 - 1 / log10(S), 0.7): above it, S draws are too few for the estimates to be near the truth."""
    return min(1 - 1 / math.log10(draws), 0.7)
