"""Convergence of Markov chains from draws (chains, draws, ...), for each quantity (...).

For networks the quantities should be function values, such as predicted probabilities: weights have symmetries. Vehtari
et al. 2021, "Rank-normalization, folding, and localization"; Geyer 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from ..core.errors import DataError
from .estimates import Array, as_numbers, as_tensor

R_HAT_LIMIT = 1.01
"""Vehtari et al.: above it the chains have not mixed, if there are enough draws."""
FALSE_ALARMS = 0.01
"""Probability that the worst R-hat of independent draws exceeds its limit."""


@dataclass(frozen=True)
class ChainReport:
    """The worst R-hat and the median bulk ESS over all quantities that move, with their limits; NaN if none moves.

    ``ess_limit`` is 100 effective draws a chain (Vehtari et al.), or a quarter of the draws where that is less.
    ``r_hat_limit`` is the largest R-hat that chance explains, at least 1.01.
    """

    r_hat: float
    r_hat_limit: float
    median_ess: float
    ess_limit: float


def chain_report(draws: Array) -> ChainReport:
    """Return R-hat and bulk ESS of draws (chains, draws, ...), summarized over the quantities."""
    hats, sizes = r_hat(draws).reshape(-1), ess(draws).reshape(-1)
    moving = ~hats.isnan()
    hat = median = math.nan
    if bool(moving.any()):
        hat, median = float(hats[moving].max()), float(sizes[moving].median())
    chains, count = as_tensor("draws", draws).shape[:2]
    ess_limit = chains * min(100.0, count / 4)
    share = min(1.0, median / (chains * count)) if median >= ess_limit else 1.0
    return ChainReport(hat, _r_hat_limit(chains, count, share, int(moving.sum())), median, ess_limit)


def _r_hat_limit(chains: int, draws: int, share: float, quantities: int) -> float:
    """For m half chains of n draws that agree and n_e effective draws, R-hat^2 is (n-1)/n + F / n_e.

    F has m - 1 and m (n_e - 1) degrees of freedom. The worst of Q quantities, each tested for location and spread,
    exceeds the quantile 1 - 0.01 / 2Q in less than one case of a hundred (Bonferroni).
    """
    halves, count = 2 * chains, draws // 2
    effective = max(2.0, count * share)
    ratio = _f_quantile(FALSE_ALARMS / (2 * max(1, quantities)), halves - 1, halves * (effective - 1))
    return max(R_HAT_LIMIT, math.sqrt((count - 1) / count + ratio / effective))


def r_hat(draws: Array) -> Tensor:
    """(chains, draws, ...) -> (...): the spread of all chains together over that of each alone; 1 if they agree.

    sqrt(((n-1)/n W + B/n) / W) of split chains of n draws, W the mean variance within them, B/n the variance of their
    means: the larger one for the normal scores of the draws (location) and of their distance from the median (spread).
    Infinite if no chain moves but they differ; NaN if all draws are equal.
    """
    return _by_quantity(draws, _rank_r_hat)


def ess(draws: Array) -> Tensor:
    """(chains, draws, ...) -> (...): the number S / tau of independent draws that estimate a mean as well.

    tau = 1 + 2 sum_t rho_t with Geyer's initial monotone sequence, rho_t the autocorrelation of split chains in which
    disagreement of the chains counts as correlation (Vehtari et al. 2021, equation 10). This is the bulk ESS, of the
    normal scores of the draws. At most S log10(S); NaN if all draws are equal.
    """
    return _by_quantity(draws, lambda split: _ess(_normal_scores(split)))


def _by_quantity(draws: Array, function: Callable[[Tensor], Tensor]) -> Tensor:
    values = as_numbers("draws", draws)
    if values.dim() < 2 or values.shape[1] < 4:
        raise DataError(f"draws: shape {tuple(values.shape)}; it must be (chains, draws, ...) with at least 4 draws")
    columns = values.reshape(*values.shape[:2], -1).movedim(-1, 0)
    half = values.shape[1] // 2  # split chains: one that drifts disagrees with itself
    split = torch.cat([columns[..., :half], columns[..., -half:]], -2)
    blocks = split.split(max(1, 2**22 // split[0].numel()))  # bounds the memory
    return torch.cat([function(block) for block in blocks]).reshape(values.shape[2:])


def _normal_scores(split: Tensor) -> Tensor:
    """Phi^-1((rank - 3/8) / (S + 1/4)) over all chains of a quantity; ties share their mean rank."""
    flat = split.flatten(1).contiguous()
    ordered = flat.sort(-1).values
    ranks = 0.5 * (1 + torch.searchsorted(ordered, flat) + torch.searchsorted(ordered, flat, right=True))
    scores: Tensor = torch.special.ndtri((ranks - 0.375) / (flat.shape[-1] + 0.25))
    return scores.reshape(split.shape)


def _plain_r_hat(split: Tensor) -> Tensor:
    within, between = _variances(split)
    ratio: Tensor = 1 - 1 / split.shape[-1] + between / within
    return ratio.sqrt()


def _rank_r_hat(split: Tensor) -> Tensor:
    ordered = split.flatten(1).sort(-1).values
    middle = ordered.shape[-1] // 2  # split chains have an even number of draws together
    median = ordered[:, middle - 1 : middle + 1].mean(-1)
    folded = (split - median[:, None, None]).abs()
    location, spread = (_plain_r_hat(_normal_scores(values)) for values in (split, folded))
    # The folded draws may be constant (two values, equally often) where the draws are not.
    return torch.where(spread > location, spread, location)


def _ess(split: Tensor) -> Tensor:
    within, between = _variances(split)
    chains, count = split.shape[-2:]
    total = (count - 1) / count * within + between
    covariance = _autocovariance(split).mean(-2)
    correlation = 1 - (within[:, None] - covariance) / total[:, None]
    # Geyer: sums of neighbors are positive and fall for a reversible chain; what comes after is noise.
    pairs = correlation[:, : count - count % 2].unflatten(-1, (-1, 2)).sum(-1)
    kept = (pairs > 0).cumprod(-1) * pairs.cummin(-1).values
    size = chains * count
    times: Tensor = (2 * kept.sum(-1) - 1).clamp_min(1 / math.log10(size))
    return size / times


def _variances(split: Tensor) -> tuple[Tensor, Tensor]:
    # W and B/n of each quantity. Less its first draw, a chain that never moves has variance zero exactly.
    within = (split - split[..., :1]).var(-1).mean(-1)
    shifted = split - split[:, :1, :1]
    return within, shifted.mean(-1).var(-1)


def _autocovariance(split: Tensor) -> Tensor:
    """sum_i (x_i - m)(x_(i+t) - m) / (n - 1) for every lag t, by a zero-padded Fourier transform."""
    count = split.shape[-1]
    centered = split - split[..., :1]
    centered = centered - centered.mean(-1, keepdim=True)
    spectrum = torch.fft.rfft(centered, n=2 * count)
    sums: Tensor = torch.fft.irfft(spectrum.abs().square(), n=2 * count)[..., :count]
    return sums / (count - 1)


def _f_quantile(tail: float, above: float, below: float) -> float:
    """Approximate x with P(F > x) = tail, by Paulson's cube-root normal approximation (1942)."""
    z = NormalDist().inv_cdf(1 - tail)
    a, b = 2 / (9 * below), 2 / (9 * above)
    first = (1 - a) ** 2 - a * z * z
    if first <= 0:
        return math.inf
    middle = (1 - a) * (1 - b)
    root = middle**2 - first * ((1 - b) ** 2 - b * z * z)
    return ((middle + math.sqrt(root)) / first) ** 3
