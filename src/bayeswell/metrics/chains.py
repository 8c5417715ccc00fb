"""Whether several chains agree and how many independent draws they are worth.

Everything here takes draws (chains, draws, ...) and answers for each quantity (...). For networks the quantities
should be function values, such as predicted probabilities: weights have symmetries that chains need not agree on.
Vehtari et al. 2021, "Rank-normalization, folding, and localization"; Geyer 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import DataError
from .fisher import fisher_quantile

R_HAT_LIMIT = 1.01
"""Vehtari et al.: above it the chains have not mixed, given draws enough; ``r_hat_limit`` for fewer."""

ESS_PER_CHAIN = 50
"""Vehtari et al.: as many effective draws for each split chain are enough, however many draws there are."""

ESS_SHARE = 0.25
"""With fewer draws: what share of them must be effective."""

FALSE_ALARMS = 0.01
"""The chance that the worst R-hat of independent draws is above its limit."""

_CANNOT_TELL = 2.0
"""Two halves of one chain that do not overlap at all have a rank-normalised R-hat of little more."""

_AT_ONCE = 2**22
"""How many numbers are worked on together: bounds the memory, whatever the number of quantities."""


@dataclass(frozen=True)
class ChainReport:
    """R-hat and ESS over all quantities: the worst of each, and the median ESS.

    The worst of many estimates is far from 1 by chance alone: of 640 quantities of 100 independent draws the largest
    R-hat is 1.1, the smallest ESS 10. So R-hat is held against the largest that chance explains (``r_hat_limit``), and
    what must be large enough is ``typical_ess``, the median (``ess_limit``).

    ``constant`` counts the quantities whose draws are all equal, which say nothing and are left out; where all are
    (chains that never moved), the numbers are NaN. ``converged`` is the flag for machines, ``warnings`` the same for
    people.
    """

    r_hat: float
    ess: float
    chains: int
    draws: int
    quantities: int
    constant: int
    typical_ess: float = math.nan

    @property
    def ess_limit(self) -> float:
        """100 effective draws a chain, or a quarter of the draws where that is less."""
        return min(2 * self.chains * ESS_PER_CHAIN, ESS_SHARE * self.chains * self.draws)

    @property
    def r_hat_limit(self) -> float:
        """The largest R-hat that chance explains, 1.01 at least.

        Of m half chains of n draws that agree, n_e of them effective, R-hat^2 is (n-1)/n + F / n_e with F of Fisher's
        distribution of m - 1 and m (n_e - 1) degrees of freedom; of Q quantities, each looked at twice (location and
        spread), the worst is above the quantile 1 - 0.01 / 2Q in less than one case of a hundred (Bonferroni). The
        draws count as far as they are effective, unless these are too few: then that is what is wrong.
        """
        halves, count = 2 * self.chains, self.draws // 2
        share = min(1.0, self.typical_ess / (self.chains * self.draws)) if self.typical_ess >= self.ess_limit else 1.0
        effective = max(2.0, count * share)
        looks = 2 * max(1, self.quantities - self.constant)
        ratio = fisher_quantile(FALSE_ALARMS / looks, halves - 1, halves * (effective - 1))
        return max(R_HAT_LIMIT, math.sqrt((count - 1) / count + ratio / effective))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that is wrong; empty if all is well."""
        if self.constant == self.quantities:
            return ("the draws are all equal: the chains never moved",)
        found, limit = [], self.r_hat_limit
        remedy = "train longer, or more chains (members)"
        if not self.r_hat <= limit:
            found.append(f"the chains have not mixed: R-hat {self.r_hat:.3f} > {limit:.3g}; {remedy}")
        elif limit >= _CANNOT_TELL:
            note = f"whether the chains have mixed cannot be told from {self.draws} draws in each"
            found.append(f"{note} (R-hat up to {limit:.1f} is chance); keep more draws: {remedy}")
        if not self.typical_ess >= self.ess_limit:
            kept = f"{self.chains * self.draws} draws of {'one chain' if self.chains == 1 else f'{self.chains} chains'}"
            numbers = f"ESS {self.typical_ess:.1f} < {self.ess_limit:.0f} for {kept}"
            found.append(f"too few effective draws: {numbers}; {remedy}")
        return tuple(found)

    @property
    def converged(self) -> bool:
        """Whether there is nothing to warn of."""
        return not self.warnings


def chain_report(draws: Tensor) -> ChainReport:
    """The worst R-hat and bulk ESS, and the median ESS, over the quantities of draws (chains, draws, ...)."""
    hats, sizes = r_hat(draws).reshape(-1), ess(draws).reshape(-1)
    constant = hats.isnan()
    if bool(constant.all()):
        worst_hat = worst_size = typical = math.nan
    else:
        moving = sizes[~constant]
        worst_hat, worst_size, typical = float(hats[~constant].max()), float(moving.min()), float(moving.median())
    counts = (draws.shape[0], draws.shape[1], hats.numel(), int(constant.sum()))
    return ChainReport(worst_hat, worst_size, *counts, typical)


def r_hat(draws: Tensor, *, rank_normalised: bool = True) -> Tensor:
    """(chains, draws, ...) -> (...): how much wider all chains together are than each alone; 1 if they agree.

    sqrt(((n-1)/n W + B/n) / W) of split chains of n draws, W the mean variance within them, B/n the variance of their
    means. Rank-normalised it is the larger one for the normal scores of the draws (location) and of their distance
    from the median (spread), defined for heavy tails too. Infinite if no chain moves but they differ; NaN if all
    draws are equal.
    """
    return _by_quantity(draws, _rank_r_hat if rank_normalised else _plain_r_hat)


def ess(draws: Tensor, *, rank_normalised: bool = True) -> Tensor:
    """(chains, draws, ...) -> (...): the number of independent draws that estimate a mean as well.

    S / tau, tau = 1 + 2 sum_t rho_t with Geyer's initial monotone sequence, rho_t the autocorrelation of split chains
    in which disagreement of the chains counts as correlation (Vehtari et al. 2021, equation 10). Rank-normalised
    (bulk ESS) it is that of the normal scores. Held below S log10(S); NaN if all draws are equal.
    """
    return _by_quantity(draws, lambda split: _ess(_normal_scores(split) if rank_normalised else split))


def _by_quantity(draws: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The function of (columns, split chains, draws) for all quantities, some at a time."""
    columns = _require_draws(draws)
    size = max(1, _AT_ONCE // columns[0].numel())
    parts = [function(_split(block.double())) for block in columns.split(size)]
    return torch.cat(parts).reshape(draws.shape[2:])


def _require_draws(draws: Tensor) -> Tensor:
    """The draws as (quantities, chains, draws) on the CPU."""
    shape = tuple(draws.shape)
    if len(shape) < 2 or shape[0] < 1 or shape[1] < 4 or draws.numel() == 0:
        raise DataError(
            f"draws have shape {shape}; they must be (chains, draws, ...) with at least 4 draws in each chain"
        )
    values = draws.detach().cpu()
    if not values.is_floating_point():
        values = values.double()
    if not bool(values.isfinite().all()):
        place = tuple((~values.isfinite()).nonzero()[0].tolist())
        raise DataError(f"draws: NaN or inf at (chain, draw, ...) = {place}; every number must be finite")
    return values.reshape(*shape[:2], -1).movedim(-1, 0)


def _split(columns: Tensor) -> Tensor:
    """Each chain as two halves, so that a drifting chain disagrees with itself; an odd draw is left out."""
    half = columns.shape[-1] // 2
    return torch.cat([columns[..., :half], columns[..., -half:]], -2)


def _normal_scores(split: Tensor) -> Tensor:
    """Phi^-1((rank - 3/8) / (S + 1/4)) over all chains of a quantity; ties share their mean rank."""
    ordered, places = split.flatten(1).sort(-1)
    count = ordered.shape[-1]
    position = torch.arange(1, count + 1, dtype=torch.float64).expand_as(ordered)
    changes = ordered[:, 1:] != ordered[:, :-1]
    edge = changes.new_ones(len(ordered), 1)
    # The first and the last place of each run of equal values.
    first = torch.where(torch.cat([edge, changes], -1), position, 0.0).cummax(-1).values
    last = torch.where(torch.cat([changes, edge], -1), position, math.inf).flip(-1).cummin(-1).values.flip(-1)
    scores: Tensor = torch.special.ndtri((0.5 * (first + last) - 0.375) / (count + 0.25))
    return torch.empty_like(scores).scatter_(-1, places, scores).reshape(split.shape)


def _plain_r_hat(split: Tensor) -> Tensor:
    within, between = _variances(split)
    count = split.shape[-1]
    ratio: Tensor = (count - 1) / count + between / within
    return ratio.sqrt()


def _rank_r_hat(split: Tensor) -> Tensor:
    ordered = split.flatten(1).sort(-1).values
    count = ordered.shape[-1]
    median = 0.5 * (ordered[:, (count - 1) // 2] + ordered[:, count // 2])
    folded = (split - median[:, None, None]).abs()
    location, spread = (_plain_r_hat(_normal_scores(values)) for values in (split, folded))
    # The folded draws may all be equal (two values, equally often) where the draws themselves are not.
    return torch.where(spread > location, spread, location)


def _ess(split: Tensor) -> Tensor:
    within, between = _variances(split)
    chains, count = split.shape[-2:]
    total = (count - 1) / count * within + between
    covariance = _autocovariance(split).mean(-2)
    correlation = 1 - (within[:, None] - covariance) / total[:, None]
    # Geyer: sums of neighbours are positive and fall for a reversible chain; what comes after is noise.
    pairs = correlation[:, : count - count % 2].unflatten(-1, (-1, 2)).sum(-1)
    kept = (pairs > 0).cumprod(-1) * pairs.cummin(-1).values
    size = chains * count
    times: Tensor = (2 * kept.sum(-1) - 1).clamp_min(1 / math.log10(size))
    return size / times


def _variances(split: Tensor) -> tuple[Tensor, Tensor]:
    """W and B/n of each quantity."""
    # Less its first draw, a chain that never moves has variance zero exactly.
    within = (split - split[..., :1]).var(-1).mean(-1)
    shifted = split - split[:, :1, :1]
    return within, shifted.mean(-1).var(-1)


def _autocovariance(split: Tensor) -> Tensor:
    """sum_i (x_i - m)(x_(i+t) - m) / (n - 1) for every lag t, by a transform long enough not to wrap round."""
    count = split.shape[-1]
    centred = split - split[..., :1]
    centred = centred - centred.mean(-1, keepdim=True)
    spectrum = torch.fft.rfft(centred, n=2 * count)
    power = spectrum.real.square() + spectrum.imag.square()
    sums: Tensor = torch.fft.irfft(power, n=2 * count)[..., :count]
    return sums / (count - 1)
