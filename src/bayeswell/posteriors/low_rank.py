"""Diagonal plus low-rank Gaussian over the whole network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_integer
from ..core.layout import Layout
from ..core.protocols import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, PosteriorPart, Prior
from ..ops import draw_and_kl
from .factorized import check_initial_std, initial_stds
from .mean_field import MeanField, MeanFieldPosterior

MIN_VARIANCE = 1e-30
"""Floor of variances from moments (SWAG's code), which are stored as logs."""


class LowRankPosterior(Posterior):
    """Trainable state: ``mean``, ``log_std`` of the diagonal part, and ``directions`` (rank, P).

    The factor is F = std * L, row by row, with L = directions' / sqrt(P). Directions of entries near 1 make columns of
    L of norm near 1, so one learning rate fits them and ``log_std`` at any scale and number of weights.
    """

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor, std: Tensor, directions: Tensor) -> None:
        super().__init__()
        self.part, self.layout, self.rank = part, layout, len(directions)
        self.noise_size = layout.size + self.rank
        self.mean = nn.Parameter(mean.detach().clone())
        self.log_std = nn.Parameter(std.log())
        self.directions = nn.Parameter(directions)

    def factor(self) -> Tensor:
        """(P, rank): F."""
        return (self.log_std.exp() * self.directions / math.sqrt(self.layout.size)).T

    def std(self) -> Tensor:
        """std * sqrt(1 + row sums of L^2)."""
        row_sums = self.directions.square().sum(0) / self.layout.size
        return self.log_std.exp() * (1 + row_sums).sqrt()

    def covariance(self) -> Covariance:
        """diag(std^2) + F F'."""
        return Covariance((2 * self.log_std).exp(), self.factor())

    def _joint_noise(self, noise: Tensor) -> Tensor:
        # (D, P): noise_1 + L noise_2.
        diagonal, columns = noise.split([self.layout.size, self.rank], dim=-1)
        return torch.addmm(diagonal, columns / math.sqrt(self.layout.size), self.directions)

    def rsample(self, noise: Tensor) -> Tensor:
        """w = mean + std * (noise_1 + L noise_2)."""
        return torch.addcmul(self.mean, self.log_std.exp(), self._joint_noise(noise))

    def rsample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Add to the KL of the diagonal part: sum_i h_i std_i^2 |L_i|^2 / 2 - log det(I + L'L) / 2, h = 1 / p^2."""
        terms = prior.gaussian
        if terms is None:
            return super().rsample_and_kl(noise, prior)
        joint = None if noise is None else self._joint_noise(noise)
        weights, kl = draw_and_kl(self.mean, self.log_std, joint, terms, log_std=True, ends=self.layout.ends)
        h = self.layout.repeat_by_site(terms.inverse_variances) if terms.by_site else terms.inverse_variances
        scaled = (2 * self.log_std).exp() * (0.5 / self.layout.size * h)
        added = torch.stack([torch.dot(scaled * direction, direction) for direction in self.directions.unbind()])
        return weights, kl + added.sum() - self._cholesky().diagonal().log().sum()

    def _cholesky(self) -> Tensor:
        # (rank, rank): the root of I + L'L = I + F' D^-1 F; NaN if that is not finite.
        gram = self.directions @ self.directions.T / self.layout.size
        root, info = torch.linalg.cholesky_ex(gram + torch.eye(self.rank, dtype=gram.dtype, device=gram.device))
        return torch.where(info == 0, root, math.nan)

    def log_prob(self, weights: Tensor) -> Tensor:
        """log q(w), by the Woodbury identity in z = (w - mean) / std."""
        z = (weights - self.mean) * (-self.log_std).exp()
        root = self._cholesky()
        projected = self.directions @ z.T / math.sqrt(self.layout.size)
        squares = z.square().sum(-1) - torch.linalg.solve_triangular(root, projected, upper=False).square().sum(0)
        log_volume = self.log_std.sum() + root.diagonal().log().sum()
        constant = 0.5 * self.layout.size * math.log(2 * math.pi)
        log_prob: Tensor = -0.5 * squares - log_volume - constant
        return log_prob

    def entropy(self) -> Tensor:
        """P/2 log(2 pi e) + sum log std + log det(I + L'L) / 2."""
        constant = 0.5 * self.layout.size * math.log(2 * math.pi * math.e)
        return self.log_std.sum() + self._cholesky().diagonal().log().sum() + constant

    @torch.no_grad()
    def set_covariance(self, variances: Tensor, factor: Tensor) -> None:
        """Make the covariance diag(variances) + F F'; if F has fewer than ``rank`` columns, the others are zero."""
        missing = self.rank - factor.shape[1]
        if missing < 0:
            raise SettingError(f"low_rank: a factor of {factor.shape[1]} columns needs rank >= that, got {self.rank}")
        std = variances.sqrt().to(self.log_std)
        std = std.clamp_min(torch.finfo(std.dtype).tiny)
        self.log_std.copy_(std.log())
        scaled = factor.T.to(std) / std * math.sqrt(self.layout.size)
        self.directions.copy_(nn.functional.pad(scaled, (0, 0, 0, missing)))


def gaussian_posterior(
    layout: Layout, mean: Tensor, variances: Tensor, factor: Tensor | None = None
) -> MeanFieldPosterior | LowRankPosterior:
    """Return N(mean, diag(variances) + F F') in the dtype of ``mean``; ``factor`` is F (P, k)."""
    std = variances.clamp_min(MIN_VARIANCE).sqrt().to(mean.dtype).clamp_min(torch.finfo(mean.dtype).tiny)
    if factor is None:
        return MeanFieldPosterior(MeanField(), layout, mean, std)
    if factor.shape[1] > layout.size:
        # F F' = R' R with F' = Q R has fewer columns.
        factor = torch.linalg.qr(factor.T, mode="r").R.T
    directions = mean.new_zeros(factor.shape[1], layout.size)
    posterior = LowRankPosterior(LowRank(rank=factor.shape[1]), layout, mean, std, directions)
    posterior.set_covariance(std.square(), factor)
    return posterior


@dataclass(frozen=True)
class LowRank:
    """Sigma = diag(std^2) + F F' with ``rank`` columns over all Bayesian weights together.

    The family of SWAG and of HWA's eq. (5), trained by gradient. Each column of F starts in a random direction, as wide
    as the diagonal part.

    Args:
        rank: number of columns of F.
        initial_std: of the diagonal part; None means as in ``MeanField``.
    """

    rank: int = 2
    initial_std: float | None = None

    name: ClassVar[str] = "low_rank"
    paper: ClassVar[str] = "Ong et al. 2018; HWA, eq. (5)"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_integer(self.name, "rank", self.rank)
        check_initial_std(self.name, self.initial_std)

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        if self.rank > layout.size:
            raise SettingError(f"low_rank: rank = {self.rank} exceeds the number of Bayesian weights ({layout.size})")
        shape = (self.rank, layout.size)
        directions = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return LowRankPosterior(self, layout, mean, initial_stds(self.initial_std, prior), directions)
