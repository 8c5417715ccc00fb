"""Counts: y ~ Poisson(exp(f))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..random import random_signs
from .counts import LOG_MEAN_LIMIT, bounded_exp, poisson_cdf, require_counts
from .matching import at_least_float32, match_shape, sum_per_example


@dataclass(eq=False)
class Poisson(nn.Module):
    """Counts 0, 1, 2, ...: p(y given f) = rate^y exp(-rate) / y!, with rate = exp(f).

    Outputs are log rates (S,), (S, C) or more axes, independent given the outputs; targets are whole numbers (of any
    dtype) of the same shape, (S,) and (S, 1) being interchangeable. NLL in nats with its normaliser log y!, summed over
    the outputs of an example. Mean and variance are both the rate: where counts vary more than that, use
    'negative_binomial'. A known exposure t is an offset log t that the network adds to its output.

    Above f = 40 (a rate of 2e17) exp is continued as a straight line, so that a network that starts far off has a
    finite loss and a gradient that leads it back.
    """

    name: ClassVar[str] = "poisson"
    paper: ClassVar[str] = "Nelder & Wedderburn 1972"
    is_discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__init__()

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse anything but whole numbers from 0, and wrong shapes."""
        require_counts(self.name, targets, outputs)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of exp(f) - y f + log y!."""
        log_rate = at_least_float32(outputs)
        counts = match_shape(self.name, targets, log_rate.shape).to(log_rate.dtype)
        return sum_per_example(bounded_exp(log_rate) - counts * log_rate + torch.lgamma(counts + 1))

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Counts drawn from Poisson(exp(f)), as real numbers."""
        return torch.poisson(at_least_float32(outputs).clamp(max=LOG_MEAN_LIMIT).exp(), generator=generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = exp(f / 2) z, z random signs: E[u u'] = diag(exp(f)), the Hessian, whatever the targets."""
        root = self.curvature_diagonal(outputs).sqrt()
        return root * random_signs(root.shape, like=root, generator=generator)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """exp(f): the Hessian of the NLL, which is diagonal."""
        # Not below exp(-80): the derivative of a root is infinite at 0.
        return at_least_float32(outputs).clamp(-2 * LOG_MEAN_LIMIT, LOG_MEAN_LIMIT).exp()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= k) = Q(k + 1, rate), the regularised upper incomplete gamma function; 0 for k < 0."""
        return poisson_cdf(bounded_exp(at_least_float32(outputs)), values)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The rate, twice."""
        rate = bounded_exp(at_least_float32(outputs))
        return rate, rate
