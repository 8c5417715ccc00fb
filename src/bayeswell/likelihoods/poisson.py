"""Counts: p(y | f) = Poisson(exp(f))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import Poisson as TorchPoisson

from .common import DiagonalCurvature, as_float64, at_least_float32
from .distribution import DistributionLikelihood

LOG_MEAN_LIMIT = 40.0
"""torch draws counts as int64, which ends at exp(43.7); squares of exp(40) are still float32 numbers."""


@dataclass(eq=False)
class Poisson(DiagonalCurvature, DistributionLikelihood):
    """Counts 0, 1, 2, ...: p(y | f) = rate^y exp(-rate) / y! with rate = exp(f), which is mean and variance.

    Above f = 40 exp continues as a straight line, so that a network that starts far off has a finite loss and a
    gradient. A known exposure t is an offset log t that the network adds to its output.
    """

    is_discrete = True

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


def _bounded_exp(log_mean: Tensor) -> Tensor:
    """exp(f) up to f = 40, above it the tangent."""
    return log_mean.clamp(max=LOG_MEAN_LIMIT).exp() * (1 + (log_mean - LOG_MEAN_LIMIT).clamp_min(0))
