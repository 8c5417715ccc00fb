"""Diagonal plus low-rank Gaussian over the whole network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import SettingError, require_count
from ..native import takes
from ..random import KeyedNoise, is_counted
from ..tree import Layout, Site
from ..types import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, Prior
from .joint_pass import joint_draws_and_kl, root_of
from .low_rank_draws import counted_draws
from .one_pass import GaussianPrior
from .start import check_initial_std, initial_std_vector


class LowRankPosterior(Posterior):
    """Trainable state: ``mean``, ``log_std`` (of the diagonal part) and ``loading`` (P, rank).

    The low-rank factor is F = std * loading, row by row: a pure number to train, so that one learning rate fits
    it and log_std alike whatever the scale of the weights. The std along a column is sqrt(1 + its squared norm) times
    the diagonal's, so entries of a column that matters are near 1 / sqrt(P): they start and move at that scale
    (``rates``), or a network's width would decide how far one step of Adam opens a direction.
    """

    can_scale_stds = True
    takes_keys = True
    keys_from = 0  # its formulas make the noise of a block beside the draw: no slower, and a vector less

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor, rank: int) -> None:
        super().__init__()
        self.layout, self.rank = layout, rank
        self.noise_size = layout.size + rank
        self.settable_columns = rank
        self.mean = nn.Parameter(means.detach().clone())
        self.log_std = nn.Parameter(stds.log())
        unit = 1 / math.sqrt(layout.size)
        self.rates = {"loading": unit}
        # Random columns of norm 1: at zero, or equal to each other, no gradient would tell them apart.
        self.loading = nn.Parameter(unit * torch.randn_like(stds[:, None].expand(-1, rank)))

    @property
    def factor(self) -> Tensor:
        """(P, rank): F."""
        return self.log_std.exp()[:, None] * self.loading

    @torch.no_grad()
    def set_factor(self, factor: Tensor) -> None:
        """Put F at the given numbers; the diagonal part stays."""
        self.loading.copy_(factor.to(self.loading) / self.log_std.exp()[:, None])

    @torch.no_grad()
    def set_covariance(self, variances: Tensor, factor: Tensor) -> None:
        """log_std and F from the given numbers; where they are fewer than ``rank``, the other columns become zero."""
        columns = factor.shape[1]
        if columns > self.rank:
            raise SettingError(
                f"low_rank: a covariance of {columns} columns cannot be held by rank = {self.rank}; use posterior "
                f"low_rank with rank = {columns}"
            )
        std = variances.sqrt().to(self.log_std)
        self.log_std.copy_(std.clamp_min(torch.finfo(std.dtype).tiny).log())
        self.set_factor(nn.functional.pad(factor, (0, self.rank - columns)))

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """log_std + log(factor): F is std * loading and grows with it."""
        self.log_std.add_(math.log(factor))

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): sqrt(std^2 + row sums of F^2) = std sqrt(1 + row sums of loading^2)."""
        return self.log_std.exp() * (1 + self.loading.square().sum(-1)).sqrt()

    def covariance(self) -> Covariance:
        """diag(std^2) + F F'."""
        return Covariance((2 * self.log_std).exp(), self.factor)

    def sample(self, noise: Tensor) -> Tensor:
        """w = mean + std * noise_1 + F @ noise_2 = mean + std * (noise_1 + loading @ noise_2)."""
        diagonal, columns = noise[:, : self.layout.size], noise[:, self.layout.size :]
        return torch.addcmul(self.mean, self.log_std.exp(), diagonal + columns @ self.loading.T)

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """As ``sample`` draws them from the same generator; where they are compiled many at a time, as rows."""
        return self._drawn(count, generator, again=False)

    def passing_draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """The same in the same memory."""
        return self._drawn(count, generator, again=True)

    def _drawn(self, count: int, generator: torch.Generator | None, again: bool) -> Iterator[dict[str, Tensor]]:
        with torch.no_grad():
            mean, std, loading = self.mean.detach(), self.log_std.exp(), self.loading.detach()
        if not (is_counted(self.noise_size, mean) and takes(mean, std, loading)):
            return super().draws(count, generator)
        return map(self.layout.views, counted_draws(mean, std, loading, count, generator, again))

    def _cholesky(self) -> Tensor:
        """(rank, rank): the root of I + loading' loading = I + F' D^-1 F."""
        return root_of(self.loading.T @ self.loading)

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w), by the Woodbury identity in z = (w - mean) / std."""
        z = (weights - self.mean) / self.log_std.exp()
        root = self._cholesky()
        projected = torch.linalg.solve_triangular(root, (z @ self.loading).T, upper=False)
        squares = z.square().sum(-1) - projected.square().sum(0)
        constant = 0.5 * self.layout.size * math.log(2 * math.pi)
        value: Tensor = -0.5 * squares - self.log_std.sum() - root.diagonal().log().sum() - constant
        return value

    def entropy(self) -> Tensor:
        """P/2 log(2 pi e) + sum log std + log det(I + F' D^-1 F) / 2."""
        constant = 0.5 * self.layout.size * math.log(2 * math.pi * math.e)
        return self.log_std.sum() + self._cholesky().diagonal().log().sum() + constant

    def sample_and_kl(self, noise: Tensor | KeyedNoise | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """For a Gaussian prior: sum [log p - 1/2 + (m^2 + s^2 (1 + row sums of loading^2)) / (2 p^2)] - log dets."""
        log_std_sum = prior.log_std_sum
        if log_std_sum is None:
            return super().sample_and_kl(noise.tensor() if isinstance(noise, KeyedNoise) else noise, prior)
        constant = log_std_sum - 0.5 * self.layout.size
        given = (self.mean, self.log_std, self.loading, noise)
        return joint_draws_and_kl(*given, prior, GaussianPrior.of(prior, self.layout), constant)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"low_rank(rank={self.rank}, joint)"


@dataclass(frozen=True)
class LowRank:
    """Sigma = diag(std^2) + F F' with ``rank`` columns over all Bayesian weights together.

    The family of SWAG's and HWA's eq. (5), here trained by gradient. ``initial_std`` None means exp(-3) times
    the prior std; each column of F starts as wide as that, in a random direction.
    """

    rank: int = 2
    initial_std: float | None = None

    name: ClassVar[str] = "low_rank"
    paper: ClassVar[str] = "Ong et al. 2018; HWA, eq. (5)"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        require_count("low_rank", "rank", self.rank)
        check_initial_std("low_rank", self.initial_std)

    def numbers(self, layout: Layout) -> int:
        """How many numbers a posterior of this kind holds at least."""
        return layout.size * self.rank

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        if self.rank > layout.size:
            raise SettingError(f"low_rank: rank = {self.rank} exceeds the number of Bayesian weights ({layout.size})")
        return LowRankPosterior(layout, means, initial_std_vector(self.initial_std, prior), self.rank)
