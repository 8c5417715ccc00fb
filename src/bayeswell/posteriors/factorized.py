"""Initial stds, and independent Gaussian weights: what mean-field, shared-std and k-tied have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import check_number
from ..core.layout import Layout
from ..core.protocols import Covariance, Posterior, PosteriorPart, Prior
from ..core.random import standard_normal
from ..ops import draw_and_kl

STD_OVER_PRIOR_STD = math.exp(-3)
"""Variational Laplace, appendix: log std starts at log(prior std) - 3."""


def check_initial_std(owner: str, initial_std: float | None) -> None:
    if initial_std is not None:
        check_number(owner, "initial_std", initial_std, 0, above=True)


def initial_stds(initial_std: float | None, prior: Prior) -> Tensor:
    """Return (P,) stds: ``initial_std``, or exp(-3) times the prior's."""
    prior_std = prior.std().detach()
    return prior_std * STD_OVER_PRIOR_STD if initial_std is None else torch.full_like(prior_std, initial_std)


class FactorizedPosterior(Posterior):
    """q(w) = prod_i N(w_i; mean_i, std_i^2). A family defines ``std_or_log_std``."""

    has_log_std: ClassVar[bool] = True

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor) -> None:
        super().__init__()
        self.part, self.layout, self.noise_size = part, layout, layout.size
        self.mean = nn.Parameter(mean.detach().clone())

    def std_or_log_std(self) -> Tensor:
        """(P,): log stds if ``has_log_std``, else stds."""
        raise NotImplementedError

    def std(self) -> Tensor:
        return self.std_or_log_std().exp() if self.has_log_std else self.std_or_log_std()

    def _log_std(self) -> Tensor:
        values = self.std_or_log_std()
        return values if self.has_log_std else values.clamp_min(torch.finfo(values.dtype).tiny).log()

    def rsample(self, noise: Tensor) -> Tensor:
        """w = mean + std * noise."""
        return torch.addcmul(self.mean, self.std(), noise)

    def log_prob(self, weights: Tensor) -> Tensor:
        """log q(w) = -sum [log std + log(2 pi) / 2 + (w - mean)^2 / (2 std^2)]."""
        log_std = self._log_std()
        squares = ((weights - self.mean) * (-log_std).exp()).square().sum(-1)
        return -0.5 * squares - log_std.sum() - 0.5 * self.layout.size * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """sum log std + P/2 log(2 pi e)."""
        return self._log_std().sum() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    def rsample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Return draws and KL in one pass if the prior is Gaussian."""
        terms = prior.gaussian
        if terms is None:
            return super().rsample_and_kl(noise, prior)
        ends = self.layout.ends
        return draw_and_kl(self.mean, self.std_or_log_std(), noise, terms, log_std=self.has_log_std, ends=ends)

    def covariance(self) -> Covariance:
        return Covariance(self.std().square())

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Yield drawn networks; the stds are computed once."""
        with torch.no_grad():
            mean, std = self.mean.detach(), self.std()
        for _ in range(count):
            noise = standard_normal(mean.shape, like=mean, generator=generator)
            yield self.layout.unflatten(noise.mul_(std).add_(mean))
