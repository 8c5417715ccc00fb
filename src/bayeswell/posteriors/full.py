"""Full-covariance Gaussian, for small networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import SettingError, require_count
from ..tree import Layout, Site
from ..types import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, Prior
from .start import check_initial_std, initial_std_vector


def cholesky(log_diagonal: Tensor, lower: Tensor) -> Tensor:
    """A lower-triangular matrix with a positive diagonal from free parameters: L = diag(d) (I + strict lower part).

    Below the diagonal stand pure numbers, relative to the diagonal of their row, so that one learning rate fits both.
    """
    unit = lower.tril(-1) + torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    return log_diagonal.exp()[:, None] * unit


def cholesky_parameters(factor: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of ``cholesky``: log diagonal and relative lower part of a given factor."""
    diagonal = factor.diagonal()
    return diagonal.log(), (factor / diagonal[:, None]).tril(-1)


def triangle(size: int) -> int:
    """How many free numbers a lower-triangular matrix has; ``lower`` holds as many again, which count for nothing."""
    return size * (size + 1) // 2


class FullPosterior(Posterior):
    """Trainable state: ``mean``, ``log_diagonal`` and ``lower`` (its strict lower triangle counts)."""

    can_scale_stds = True

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.noise_size = layout.size
        self.mean = nn.Parameter(means.detach().clone())
        self.log_diagonal = nn.Parameter(stds.log())
        self.lower = nn.Parameter(means.new_zeros(layout.size, layout.size))

    @property
    def variational_parameters(self) -> int:
        """P means and P (P + 1) / 2 numbers of L."""
        return self.layout.size + triangle(self.layout.size)

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """log_diagonal + log(factor): all of L grows with its diagonal."""
        self.log_diagonal.add_(math.log(factor))

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): square roots of the covariance's diagonal."""
        return cholesky(self.log_diagonal, self.lower).square().sum(-1).sqrt()

    def covariance(self) -> Covariance:
        """L L', and nothing beside it."""
        return Covariance(torch.zeros_like(self.mean), cholesky(self.log_diagonal, self.lower))

    def sample(self, noise: Tensor) -> Tensor:
        """w = mean + L noise."""
        return self.mean + noise @ cholesky(self.log_diagonal, self.lower).T

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w) = -|L^-1 (w - mean)|^2 / 2 - sum log L_ii - P/2 log(2 pi)."""
        scale = cholesky(self.log_diagonal, self.lower)
        white: Tensor = torch.linalg.solve_triangular(scale, (weights - self.mean).T, upper=False)
        constant = 0.5 * self.layout.size * math.log(2 * math.pi)
        return -0.5 * white.square().sum(0) - self.log_diagonal.sum() - constant

    def entropy(self) -> Tensor:
        """sum log L_ii + P/2 log(2 pi e)."""
        return self.log_diagonal.sum() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return "full (joint)"


@dataclass(frozen=True)
class Full:
    """Sigma = L L' with a free Cholesky factor: exact on linear models, P^2 numbers, so for small networks.

    ``max_weights`` guards against an accident: 5,000 weights already take 100 MB in float32 for L alone.
    """

    initial_std: float | None = None
    max_weights: int = 5000

    name: ClassVar[str] = "full"
    paper: ClassVar[str] = "Barber & Bishop 1998"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std("full", self.initial_std)
        require_count("full", "max_weights", self.max_weights)

    def numbers(self, layout: Layout) -> int:
        """How many numbers a posterior of this kind holds at least."""
        return layout.size * (layout.size + 1) // 2

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        if layout.size > self.max_weights:
            raise SettingError(
                f"full: the network has {layout.size} Bayesian weights, above max_weights = {self.max_weights}; "
                "use low_rank, or choose fewer parameters with where="
            )
        return FullPosterior(layout, means, initial_std_vector(self.initial_std, prior))
