"""The k-tied Normal: standard deviations of a weight matrix as a low-rank product."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import BayeswellWarning, SettingError, check_integer, check_number
from ..core.layout import Layout, Site
from ..core.protocols import ENTROPY, FACTORIZED, LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior
from .factorized import FactorizedPosterior, check_initial_std, initial_stds
from .mean_field import MeanFieldPosterior


class KTiedPosterior(FactorizedPosterior):
    """Trainable state: ``mean``, ``log_factors`` of the tied sites, and ``log_std`` of the others, if any.

    ``log_factors`` holds a (rows, rank), then b (rank, columns) of each tied matrix, all flat.
    """

    has_log_std = False
    log_std: nn.Parameter | None

    def __init__(
        self, part: KTied, layout: Layout, mean: Tensor, std: Tensor, generator: torch.Generator | None
    ) -> None:
        super().__init__(part, layout, mean)
        self.rank = part.rank
        self.tied = frozenset(site.name for site in layout.sites if part.ties(site))
        self._sites = [site for site in layout.sites if site.name in self.tied]
        self._sizes = [side * self.rank for site in self._sites for side in site.matrix_shape or ()]
        factors, free = [], []
        for site, stds in zip(layout.sites, std.split(layout.sizes), strict=True):
            if site.name in self.tied:
                center = 0.5 * (math.log(float(stds.mean()) / part.rank) - part.init_noise**2)
                size = sum(site.matrix_shape or ()) * part.rank
                noise = torch.randn(size, dtype=std.dtype, device=std.device, generator=generator)
                factors.append(center + part.init_noise * noise)
            else:
                free.append(stds.log())
        self.log_factors = nn.Parameter(torch.cat(factors))
        self.register_parameter("log_std", nn.Parameter(torch.cat(free)) if free else None)

    def factors(self) -> list[tuple[Site, Tensor, Tensor]]:
        """Return each tied site with u (rows, rank) and v (rank, columns)."""
        pieces = self.log_factors.exp().split(self._sizes)
        pairs = zip(self._sites, pieces[::2], pieces[1::2], strict=True)
        return [(site, u.view(-1, self.rank), v.view(self.rank, -1)) for site, u, v in pairs]

    def std_or_log_std(self) -> Tensor:
        """std_ij = sum_k u_ik v_kj with u = exp(a), v = exp(b) for tied sites, exp(log_std) for the others."""
        stds = {site.name: site.from_matrix(u @ v).reshape(-1) for site, u, v in self.factors()}
        free = [site for site in self.layout.sites if site.name not in self.tied]
        if self.log_std is not None:
            pieces = self.log_std.exp().split([site.size for site in free])
            stds |= {site.name: piece for site, piece in zip(free, pieces, strict=True)}
        return torch.cat([stds[site.name] for site in self.layout.sites])


@dataclass(frozen=True)
class KTied:
    """Stds of each weight matrix as a rank-k product of positive factors: about half the parameters of mean-field.

    std_ij = sum_k u_ik v_kj with u = exp(a), v = exp(b), optimized in log form; weights are independent. A matrix of
    m x n has k (m + n) std parameters instead of m n. Factors start as a, b ~ N((log(s/k) - t^2) / 2, t^2), so
    E[std] = s, the mean std that mean-field starts from. t > 0 breaks the symmetry between the components.

    The paper ties dense and recurrent matrices only; a convolution kernel is tied as the matrix (output channels) x
    (input channels x kernel area). Vectors, and matrices with a side below the rank, stay mean-field.

    Args:
        rank: k.
        tie: name patterns of the tied parameters.
        initial_std: s; None means as in ``MeanField``.
        init_noise: t, std of the initial log factors.
    """

    rank: int = 2
    tie: str | tuple[str, ...] = "*"
    initial_std: float | None = None
    init_noise: float = 0.1

    name: ClassVar[str] = "k_tied"
    paper: ClassVar[str] = "Swiatkowski et al. 2020"
    provides: ClassVar[frozenset[str]] = frozenset({FACTORIZED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_integer(self.name, "rank", self.rank)
        check_number(self.name, "init_noise", self.init_noise, 0, above=True)
        check_initial_std(self.name, self.initial_std)
        object.__setattr__(self, "tie", self.tie if isinstance(self.tie, str) else tuple(self.tie))

    def ties(self, site: Site) -> bool:
        """Return whether the stds of this site are a product."""
        shape = site.matrix_shape
        return shape is not None and min(shape) >= self.rank and site.matches(self.tie)

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        matrices = [site for site in layout.sites if site.matrix_shape is not None]
        if self.tie != "*" and not any(site.matches(self.tie) for site in matrices):
            names = [site.name for site in matrices]
            raise SettingError(f"k_tied: tie = {self.tie!r} matches no weight matrix; the network has {names}")
        stds = initial_stds(self.initial_std, prior)
        if not any(self.ties(site) for site in layout.sites):
            message = f"k_tied: no chosen matrix has both sides of at least rank = {self.rank}; all stds are mean-field"
            warnings.warn(message, BayeswellWarning, stacklevel=2)
            return MeanFieldPosterior(self, layout, mean, stds)
        return KTiedPosterior(self, layout, mean, stds, generator)
