"""Full-covariance Gaussian, for small networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_integer
from ..core.layout import Layout
from ..core.protocols import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, PosteriorPart, Prior
from .factorized import check_initial_std, initial_stds


def cholesky_factor(log_diagonal: Tensor, lower: Tensor) -> Tensor:
    """Return L = diag(exp(log_diagonal)) (I + strict lower triangle of ``lower``).

    Entries below the diagonal are relative to that of their row, so one learning rate fits both.
    """
    unit = lower.tril(-1) + torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    return log_diagonal.exp()[:, None] * unit


def cholesky_params(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Invert ``cholesky_factor``."""
    diagonal = factor.diagonal()
    return diagonal.log(), (factor / diagonal[:, None]).tril(-1)


class FullPosterior(Posterior):
    """Trainable state: ``mean``, ``log_diagonal`` and ``lower`` (P, P), of which the strict lower triangle counts."""

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.part, self.layout, self.noise_size = part, layout, layout.size
        self.mean = nn.Parameter(mean.detach().clone())
        self.log_diagonal = nn.Parameter(std.log())
        self.lower = nn.Parameter(mean.new_zeros(layout.size, layout.size))

    def scale(self) -> Tensor:
        """(P, P): L with Cov[w] = L L'."""
        return cholesky_factor(self.log_diagonal, self.lower)

    def std(self) -> Tensor:
        # Not from L, whose squares may underflow.
        return self.log_diagonal.exp() * (1 + self.lower.tril(-1).square().sum(-1)).sqrt()

    def covariance(self) -> Covariance:
        return Covariance(torch.zeros_like(self.mean), self.scale())

    def rsample(self, noise: Tensor) -> Tensor:
        """w = mean + L noise."""
        return self.mean + noise @ self.scale().T

    def log_prob(self, weights: Tensor) -> Tensor:
        """log q(w) = -|L^-1 (w - mean)|^2 / 2 - sum log L_ii - P/2 log(2 pi)."""
        white: Tensor = torch.linalg.solve_triangular(self.scale(), (weights - self.mean).T, upper=False)
        constant = 0.5 * self.layout.size * math.log(2 * math.pi)
        return -0.5 * white.square().sum(0) - self.log_diagonal.sum() - constant

    def entropy(self) -> Tensor:
        """sum log L_ii + P/2 log(2 pi e)."""
        return self.log_diagonal.sum() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)


@dataclass(frozen=True)
class Full:
    """Sigma = L L' with a free Cholesky factor: exact on linear models, P^2 numbers.

    Args:
        initial_std: as in ``MeanField``.
        max_weights: larger networks are refused; 5,000 weights take 100 MB in float32 for L alone.
    """

    initial_std: float | None = None
    max_weights: int = 5000

    name: ClassVar[str] = "full"
    paper: ClassVar[str] = "Barber & Bishop 1998"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std(self.name, self.initial_std)
        check_integer(self.name, "max_weights", self.max_weights)

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        if layout.size > self.max_weights:
            raise SettingError(
                f"full: the network has {layout.size} Bayesian weights, above max_weights = {self.max_weights}; "
                "use low_rank, or choose fewer parameters with where="
            )
        return FullPosterior(self, layout, mean, initial_stds(self.initial_std, prior))
