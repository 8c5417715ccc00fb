"""Counts that vary more than Poisson's: a Poisson rate that is itself gamma distributed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError, require_positive
from ..random import random_signs
from .counts import LOG_MEAN_LIMIT, bounded_exp, poisson_cdf, require_counts
from .incomplete_beta import incomplete_beta
from .matching import at_least_float32, match_shape, sum_per_example
from .noise import LOG_LIMIT, in_double, learned_log, log_of, require_noise


_AS_POISSON = 1e-9


@dataclass(eq=False)
class NegativeBinomial(nn.Module):
    """Counts with mean exp(f) and variance mean + dispersion * mean^2.

    y ~ Poisson(g mean) with g ~ Gamma of mean 1 and variance ``dispersion`` a, so that with r = 1 / a

        p(y given f) = Gamma(y + r) / (Gamma(r) y!) (r / (r + mean))^r (mean / (r + mean))^y,

    which is scipy's nbinom(r, r / (r + mean)) and torch's NegativeBinomial(r, logits=f - log r). As a goes to 0 it is
    'poisson'. ``noise`` says whether the dispersion is ``known`` or ``learned`` (one trainable ``log_dispersion`` that
    starts at log ``dispersion``; clamped to +-20). Outputs are log means (S,), (S, C) or more axes; targets are whole
    numbers of the same shape, (S,) and (S, 1) being interchangeable. NLL in nats with its normaliser, summed over the
    outputs of an example.
    """

    noise: str = "learned"
    dispersion: float = 1.0

    name: ClassVar[str] = "negative_binomial"
    paper: ClassVar[str] = "Lawless 1987"
    is_discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__init__()
        require_noise(self.name, self.noise)
        require_positive(self.name, "dispersion", self.dispersion)
        if abs(math.log(self.dispersion)) > LOG_LIMIT:
            low, high = math.exp(-LOG_LIMIT), math.exp(LOG_LIMIT)
            raise SettingError(
                f"{self.name}: dispersion = {self.dispersion!r}; it must lie in {low:.1g} to {high:.1g} (with less it "
                "is 'poisson')"
            )
        self.log_dispersion: nn.Parameter | None = None
        if self.noise == "learned":
            self.log_dispersion = learned_log(self.name, "dispersion", self.dispersion)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse anything but whole numbers from 0, and wrong shapes."""
        require_counts(self.name, targets, outputs)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of log[Gamma(r) y! / Gamma(y + r)] + r softplus(s) + y softplus(-s), with s = f - log r.

        softplus(s) = log(1 + mean / r) and softplus(-s) = log(1 + r / mean): finite for any f.
        """
        log_mean = at_least_float32(outputs)
        counts = match_shape(self.name, targets, log_mean.shape)
        # In float64: for a small dispersion r is large, and all of these are differences of large numbers.
        s, log_r = self._relative(in_double(log_mean))
        y, r = counts.to(s.dtype), log_r.exp()
        coefficient = torch.lgamma(y + 1) + torch.lgamma(r) - torch.lgamma(y + r)
        return sum_per_example(coefficient + r * F.softplus(s) + y * F.softplus(-s)).to(log_mean.dtype)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Poisson counts whose rates are drawn first, mean * Gamma(r) / r; as real numbers."""
        log_mean = at_least_float32(outputs)
        r = self._relative(log_mean)[1].exp()
        factor = torch._standard_gamma(r.expand_as(log_mean).contiguous(), generator=generator) / r
        most = math.exp(LOG_MEAN_LIMIT)
        rate = (log_mean.clamp(max=LOG_MEAN_LIMIT).exp() * factor).clamp(max=most)
        return torch.poisson(rate, generator=generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt(mean r / (mean + r)) z, z random signs: E[u u'] = the expected Hessian.

        The Hessian itself, (y + r) mean r / (mean + r)^2, depends on the targets; its expectation over them is this.
        """
        root = self.curvature_diagonal(outputs).sqrt()
        return root * random_signs(root.shape, like=root, generator=generator)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """mean r / (mean + r) = mean / (1 + dispersion mean): the expected Hessian of the NLL, which is diagonal."""
        log_mean = at_least_float32(outputs)
        # Not below exp(-80): the derivative of a root is infinite at 0.
        s, log_r = self._relative(log_mean.clamp_min(-2 * LOG_MEAN_LIMIT))
        return (log_r + F.logsigmoid(s)).exp()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= k) = I_x(r, k + 1) with x = r / (r + mean); 0 for k < 0."""
        log_mean = at_least_float32(outputs)
        s, log_r = self._relative(in_double(log_mean))
        counts = values.to(s.dtype).floor()
        r, mean_share = log_r.exp(), torch.sigmoid(s)
        found = incomplete_beta(r, counts.clamp_min(0) + 1, torch.sigmoid(-s), mean_share)
        # Where a gamma factor is as good as 1 it is a Poisson count (their laws differ by less than mean / (mean + r)),
        # and the sums of the beta function would be long.
        found = torch.where(mean_share < _AS_POISSON, poisson_cdf(bounded_exp(in_double(log_mean)), counts), found)
        return torch.where(counts < 0, 0.0, found).to(log_mean.dtype)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """exp(f), and exp(f) + dispersion * exp(2 f)."""
        log_mean = at_least_float32(outputs)
        mean, log_r = bounded_exp(log_mean), self._relative(log_mean)[1]
        return mean, mean + mean.square() * torch.exp(-log_r)

    def _relative(self, log_mean: Tensor) -> tuple[Tensor, Tensor]:
        """f - log r and log r, r = 1 / dispersion."""
        log_r = -log_of(self.log_dispersion, self.dispersion, log_mean)
        return log_mean - log_r, log_r
