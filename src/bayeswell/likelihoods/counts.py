"""Counts: Poisson, and the negative binomial for counts that vary more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import NegativeBinomial as TorchNegativeBinomial
from torch.distributions import Poisson as TorchPoisson
from torch.nn import functional as F

from ..core.errors import check_choice, check_number
from .common import DiagonalCurvature, as_float64, at_least_float32, learned_log, log_of
from .distribution import DistributionLikelihood

LOG_MEAN_LIMIT = 40.0
"""torch draws counts as int64, which ends at exp(43.7); squares of exp(40) are still float32 numbers."""


class CountLikelihood(DiagonalCurvature, DistributionLikelihood):
    """Counts 0, 1, 2, ... with the mean exp(f).

    Above f = 40 exp continues as a straight line, so that a network that starts far off has a finite loss and a
    gradient. A known exposure t is an offset log t that the network adds to its output.
    """

    is_discrete = True


@dataclass(eq=False)
class Poisson(CountLikelihood):
    """p(y | f) = rate^y exp(-rate) / y! with rate = exp(f); mean and variance are the rate."""

    name: ClassVar[str] = "poisson"
    paper: ClassVar[str] = "Nelder & Wedderburn 1972"

    def distribution(self, outputs: Tensor) -> Distribution:
        # In float64, where exp(f) does not underflow.
        return TorchPoisson(_bounded_exp(as_float64(outputs)), validate_args=False)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """exp(f): the Hessian, whatever the targets."""
        return at_least_float32(outputs).clamp(-2 * LOG_MEAN_LIMIT, LOG_MEAN_LIMIT).exp()

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        rate = _bounded_exp(at_least_float32(outputs))
        return rate, rate

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= k) = Q(k + 1, rate), the regularized upper incomplete gamma function; 0 for k < 0."""
        rate = _bounded_exp(at_least_float32(outputs))
        counts = values.to(rate.dtype).floor()
        found = torch.special.gammaincc(counts.clamp_min(0) + 1, rate.expand_as(counts))
        return torch.where(counts < 0, 0.0, found)


@dataclass(eq=False)
class NegativeBinomial(CountLikelihood):
    """Counts with mean exp(f) and variance mean + dispersion * mean^2.

    y ~ Poisson(g mean) with g ~ Gamma of mean 1 and variance ``dispersion``; with r = 1 / dispersion

        p(y | f) = Gamma(y + r) / (Gamma(r) y!) (r / (r + mean))^r (mean / (r + mean))^y.

    Args:
        noise: "learned" (a trainable ``log_dispersion`` that starts at log ``dispersion``) or "known".
        dispersion: as it goes to 0, the distribution becomes Poisson.
    """

    noise: str = "learned"
    dispersion: float = 1.0

    name: ClassVar[str] = "negative_binomial"
    paper: ClassVar[str] = "Lawless 1987"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "noise", self.noise, ("known", "learned"))
        check_number(self.name, "dispersion", self.dispersion, 1e-8, 1e8)
        learned = self.noise == "learned"
        self.log_dispersion = learned_log(self.name, "dispersion", self.dispersion) if learned else None

    def distribution(self, outputs: Tensor) -> Distribution:
        # In float64: for a small dispersion, log gamma functions of large numbers are subtracted.
        logits, log_r = self._logits_and_log_r(as_float64(outputs))
        return TorchNegativeBinomial(log_r.exp().expand_as(logits), logits=logits, validate_args=False)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """mean / (1 + dispersion mean): the expected Hessian, which is diagonal."""
        logits, log_r = self._logits_and_log_r(at_least_float32(outputs).clamp_min(-2 * LOG_MEAN_LIMIT))
        return (log_r + F.logsigmoid(logits)).exp()

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean = _bounded_exp(at_least_float32(outputs))
        return mean, mean + mean.square() * log_of(self.log_dispersion, self.dispersion, mean).exp()

    def _logits_and_log_r(self, log_mean: Tensor) -> tuple[Tensor, Tensor]:
        log_r = -log_of(self.log_dispersion, self.dispersion, log_mean)
        return log_mean - log_r, log_r


def _bounded_exp(log_mean: Tensor) -> Tensor:
    """exp(f) up to f = 40, above it the tangent."""
    return log_mean.clamp(max=LOG_MEAN_LIMIT).exp() * (1 + (log_mean - LOG_MEAN_LIMIT).clamp_min(0))
