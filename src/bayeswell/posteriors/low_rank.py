"""Diagonal plus low-rank Gaussian over the whole network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import LowRankMultivariateNormal

from ..errors import SettingError, require_count
from ..tree import Layout, Site
from ..types import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior
from .start import check_initial_std, initial_std_vector


class LowRankPosterior(Posterior):
    """Trainable state: ``mean``, ``log_std`` (of the diagonal part) and ``loading`` (P, rank).

    The low-rank factor is F = std * loading, row by row: a pure number to train, so that one learning rate fits
    it and log_std alike whatever the scale of the weights.
    """

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor, rank: int) -> None:
        super().__init__()
        self.layout, self.rank = layout, rank
        self.noise_size = layout.size + rank
        self.mean = nn.Parameter(means.detach().clone())
        self.log_std = nn.Parameter(stds.log())
        # Small random columns: at zero, or equal to each other, no gradient would tell them apart.
        self.loading = nn.Parameter(0.1 * torch.randn_like(stds[:, None].expand(-1, rank)))

    @property
    def factor(self) -> Tensor:
        """(P, rank): F."""
        return self.log_std.exp()[:, None] * self.loading

    @torch.no_grad()
    def set_factor(self, factor: Tensor) -> None:
        """Put F at the given numbers; the diagonal part stays."""
        self.loading.copy_(factor.to(self.loading) / self.log_std.exp()[:, None])

    def _distribution(self) -> LowRankMultivariateNormal:
        return LowRankMultivariateNormal(self.mean, self.factor, (2 * self.log_std).exp(), validate_args=False)

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): sqrt(std^2 + row sums of factor^2)."""
        return ((2 * self.log_std).exp() + self.factor.square().sum(-1)).sqrt()

    def sample(self, noise: Tensor) -> Tensor:
        """w = mean + std * noise_1 + factor @ noise_2."""
        diagonal, columns = noise[:, : self.layout.size], noise[:, self.layout.size :]
        return torch.addcmul(self.mean, self.log_std.exp(), diagonal) + columns @ self.factor.T

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w), by the Woodbury identity."""
        value: Tensor = self._distribution().log_prob(weights)
        return value

    def entropy(self) -> Tensor:
        """P/2 log(2 pi e) + sum log std + log det(I + F' D^-1 F) / 2."""
        value: Tensor = self._distribution().entropy()
        return value

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"low_rank(rank={self.rank}, joint)"


@dataclass(frozen=True)
class LowRank:
    """Sigma = diag(std^2) + F F' with ``rank`` columns over all Bayesian weights together.

    The family of SWAG's and HWA's eq. (5), here trained by gradient. ``initial_std`` None means exp(-3) times
    the prior std; F starts at a tenth of that, at random.
    """

    rank: int = 2
    initial_std: float | None = None

    name: ClassVar[str] = "low_rank"
    paper: ClassVar[str] = "Ong et al. 2018; HWA, eq. (5)"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        require_count("low_rank", "rank", self.rank)
        check_initial_std("low_rank", self.initial_std)

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        if self.rank > layout.size:
            raise SettingError(f"low_rank: rank = {self.rank} exceeds the number of Bayesian weights ({layout.size})")
        return LowRankPosterior(layout, means, initial_std_vector(self.initial_std, prior), self.rank)
