"""Matrix normal: correlated rows and correlated columns of every weight matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_integer
from ..core.layout import Layout, Site
from ..core.protocols import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, PosteriorPart, Prior
from .factorized import check_initial_std, initial_stds
from .full import cholesky_factor


class MatrixScale(nn.Module):
    """Cholesky factors A (rows) and B (columns) of one site: W = M + A E B'."""

    def __init__(self, rows: int, columns: int, std: Tensor) -> None:
        super().__init__()
        log_scale = 0.5 * std.log()
        self.row_log_diagonal = nn.Parameter(log_scale.expand(rows).clone())
        self.row_lower = nn.Parameter(std.new_zeros(rows, rows))
        self.column_log_diagonal = nn.Parameter(log_scale.expand(columns).clone())
        self.column_lower = nn.Parameter(std.new_zeros(columns, columns))

    def factors(self) -> tuple[Tensor, Tensor]:
        rows = cholesky_factor(self.row_log_diagonal, self.row_lower)
        return rows, cholesky_factor(self.column_log_diagonal, self.column_lower)

    def half_log_det(self) -> Tensor:
        """log det of A x B: columns * sum log A_ii + rows * sum log B_jj."""
        rows, columns = self.row_log_diagonal, self.column_log_diagonal
        return len(columns) * rows.sum() + len(rows) * columns.sum()


class MatrixNormalPosterior(Posterior):
    """Trainable state: ``mean``, ``scales`` of the matrices, and ``log_std`` of everything else, if any."""

    log_std: nn.Parameter | None

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.part, self.layout, self.noise_size = part, layout, layout.size
        self.mean = nn.Parameter(mean.detach().clone())
        self.scales = nn.ModuleList()
        free = []
        for site, stds in zip(layout.sites, std.split(layout.sizes), strict=True):
            if site.matrix_shape is None:
                free.append(stds.log())
            else:
                self.scales.append(MatrixScale(*site.matrix_shape, stds.mean()))
        self.register_parameter("log_std", nn.Parameter(torch.cat(free)) if free else None)

    def pieces(self) -> Iterator[tuple[Site, slice, tuple[Tensor, Tensor] | None, Tensor]]:
        """Yield each site, its slice, A and B of a matrix (else None), and the stds of other sites (else empty)."""
        scales = (cast(MatrixScale, scale) for scale in self.scales)
        free = self.mean[:0] if self.log_std is None else self.log_std.exp()
        for site in self.layout.sites:
            matrix = site.matrix_shape is not None
            factors = next(scales).factors() if matrix else None
            stds, free = free.tensor_split([0 if matrix else site.size])
            yield site, self.layout.slices[site.name], factors, stds

    def std(self) -> Tensor:
        """sqrt((A A')_ii (B B')_jj) of matrices, exp(log_std) elsewhere."""
        stds = []
        for site, _, factors, std in self.pieces():
            if factors is not None:
                row_std, column_std = (factor.square().sum(-1).sqrt() for factor in factors)
                std = site.from_matrix(torch.outer(row_std, column_std)).reshape(-1)
            stds.append(std)
        return torch.cat(stds)

    def covariance(self) -> Covariance:
        variances, matrices = [], {}
        for site, _, factors, std in self.pieces():
            if factors is not None:
                matrices[site.name] = factors
                std = self.mean.new_zeros(site.size)
            variances.append(std.square())
        return Covariance(torch.cat(variances), matrices=matrices)

    def rsample(self, noise: Tensor) -> Tensor:
        """W = M + A E B' of matrices, mean + std * noise elsewhere."""
        offsets = []
        for site, part, factors, std in self.pieces():
            if factors is None:
                offsets.append(std * noise[:, part])
                continue
            rows, columns = factors
            white = site.to_matrix(noise[:, part].view(-1, *site.shape))
            offsets.append(site.from_matrix(rows @ white @ columns.T).reshape(len(noise), -1))
        return self.mean + torch.cat(offsets, dim=-1)

    def log_prob(self, weights: Tensor) -> Tensor:
        """log q(w): squares of the whitened weights, minus the log determinants."""
        squares = weights.new_zeros(len(weights))
        for site, part, factors, std in self.pieces():
            offset = weights[:, part] - self.mean[part]
            if factors is None:
                squares = squares + (offset / std).square().sum(-1)
                continue
            rows, columns = factors
            half = torch.linalg.solve_triangular(rows, site.to_matrix(offset.view(-1, *site.shape)), upper=False)
            white = torch.linalg.solve_triangular(columns, half.mT, upper=False)
            squares = squares + white.square().sum((-1, -2))
        return -0.5 * squares - self._half_log_det() - 0.5 * self.layout.size * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """Half the log determinant of the covariance + P/2 log(2 pi e)."""
        return self._half_log_det() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    def _half_log_det(self) -> Tensor:
        total = torch.stack([cast(MatrixScale, scale).half_log_det() for scale in self.scales]).sum()
        return total if self.log_std is None else total + self.log_std.sum()


@dataclass(frozen=True)
class MatrixNormal:
    """Each weight matrix W ~ MN(M, A A', B B') with full row and column covariances; the rest is mean-field.

    With diagonal A and B this is the k-tied Normal of rank 1. A convolution kernel is the matrix (output channels) x
    (input channels x kernel area).

    Args:
        initial_std: as in ``MeanField``.
        max_side: larger matrices are refused; the factors take rows^2 + columns^2 numbers.
    """

    initial_std: float | None = None
    max_side: int = 5000

    name: ClassVar[str] = "matrix_normal"
    paper: ClassVar[str] = "Louizos & Welling 2016"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std(self.name, self.initial_std)
        check_integer(self.name, "max_side", self.max_side)

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        shapes = {site.name: site.matrix_shape for site in layout.sites if site.matrix_shape}
        if not shapes:
            raise SettingError("matrix_normal: the network has no Bayesian weight matrix; use mean_field")
        for name, shape in shapes.items():
            if max(shape) > self.max_side:
                raise SettingError(
                    f"matrix_normal: '{name}' is {shape[0]}x{shape[1]}, above max_side = {self.max_side}; "
                    "use k_tied, or choose other parameters with where="
                )
        return MatrixNormalPosterior(self, layout, mean, initial_stds(self.initial_std, prior))
