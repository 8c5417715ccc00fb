"""Matrix normal: correlated rows and correlated columns of every weight matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from ..errors import SettingError, require_count
from ..tree import Layout, Site
from ..types import ENTROPY, LOG_PROB, WEIGHT_SAMPLE, Covariance, Posterior, Prior
from ..types.posterior import rows_of
from .full import cholesky, triangle
from .start import check_initial_std, initial_std_vector


class _MatrixScale(nn.Module):
    """Cholesky factors A (rows) and B (columns) of one site: W = M + A E B'."""

    def __init__(self, rows: int, columns: int, std: Tensor) -> None:
        super().__init__()
        log_scale = 0.5 * std.log()
        self.row_log_diagonal = nn.Parameter(log_scale.expand(rows).clone())
        self.row_lower = nn.Parameter(std.new_zeros(rows, rows))
        self.column_log_diagonal = nn.Parameter(log_scale.expand(columns).clone())
        self.column_lower = nn.Parameter(std.new_zeros(columns, columns))

    def factors(self) -> tuple[Tensor, Tensor]:
        rows = cholesky(self.row_log_diagonal, self.row_lower)
        return rows, cholesky(self.column_log_diagonal, self.column_lower)

    def half_log_det(self) -> Tensor:
        rows, columns = self.row_log_diagonal, self.column_log_diagonal
        return columns.numel() * rows.sum() + rows.numel() * columns.sum()


class MatrixNormalPosterior(Posterior):
    """Trainable state: ``mean``, two Cholesky factors for each matrix, ``log_std`` for everything else, if any."""

    log_std: nn.Parameter | None
    log_std_speed = 2.0  # the log scales of a row and of a column add
    can_scale_stds = True

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.noise_size = layout.size
        self.mean = nn.Parameter(means.detach().clone())
        self.scales = nn.ModuleList()
        free = []
        for site in layout.sites:
            piece = stds[layout.slices[site.name]]
            if site.matrix_shape is None:
                free.append(piece.log())
            else:
                self.scales.append(_MatrixScale(*site.matrix_shape, piece.mean()))
        self.register_parameter("log_std", nn.Parameter(torch.cat(free)) if free else None)

    def _pieces(self) -> list[tuple[Site, slice, _MatrixScale | None, Tensor]]:
        """Each site with its slice, and either its matrix factors or its log stds (the other None or empty)."""
        found: list[tuple[Site, slice, _MatrixScale | None, Tensor]] = []
        scales, at = (cast(_MatrixScale, scale) for scale in self.scales), 0
        free = self.mean[:0] if self.log_std is None else self.log_std
        for site in self.layout.sites:
            part = self.layout.slices[site.name]
            if site.matrix_shape is not None:
                found.append((site, part, next(scales), free[:0]))
            else:
                found.append((site, part, None, free[at : at + site.size]))
                at += site.size
        return found

    @property
    def variational_parameters(self) -> int:
        """P means, the triangles of each matrix' rows and columns, a log std for each other weight."""
        sides = [side for site in self.layout.sites for side in site.matrix_shape or ()]
        return self.mean.numel() + sum(map(triangle, sides)) + (0 if self.log_std is None else self.log_std.numel())

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """Half of log(factor) to the rows and half to the columns of a matrix, all of it to the other log stds."""
        for scale in self.scales:
            matrix = cast(_MatrixScale, scale)
            matrix.row_log_diagonal.add_(0.5 * math.log(factor))
            matrix.column_log_diagonal.add_(0.5 * math.log(factor))
        if self.log_std is not None:
            self.log_std.add_(math.log(factor))

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): sqrt((A A')_ii (B B')_jj), and exp(log_std) elsewhere."""
        pieces = []
        for site, _, scale, log_std in self._pieces():
            if scale is None:
                pieces.append(log_std.exp())
                continue
            rows, columns = scale.factors()
            variance = torch.outer(rows.square().sum(-1), columns.square().sum(-1))
            pieces.append(site.from_matrix(variance.sqrt()).reshape(-1))
        return torch.cat(pieces)

    def covariance(self) -> Covariance:
        """A and B of each matrix, variances elsewhere."""
        pieces, matrices = [], {}
        for site, _, scale, log_std in self._pieces():
            if scale is not None:
                matrices[site.name] = scale.factors()
            pieces.append((2 * log_std).exp() if scale is None else self.mean.new_zeros(site.size))
        return Covariance(torch.cat(pieces), matrices=matrices)

    def sample(self, noise: Tensor) -> Tensor:
        """W = M + A E B' for each matrix, mean + std * noise elsewhere."""
        pieces = []
        for site, part, scale, log_std in self._pieces():
            if scale is None:
                pieces.append(log_std.exp() * noise[:, part])
                continue
            rows, columns = scale.factors()
            white = site.to_matrix(noise[:, part].view(-1, *site.shape))
            pieces.append(site.from_matrix(rows @ white @ columns.T).reshape(noise.shape[0], -1))
        return self.mean + torch.cat(pieces, dim=-1)

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w): squares of the whitened weights, minus the log determinants."""
        squares = weights.new_zeros(weights.shape[0])
        for site, part, scale, log_std in self._pieces():
            offset = weights[:, part] - self.mean[part]
            if scale is None:
                squares = squares + (offset / log_std.exp()).square().sum(-1)
                continue
            rows, columns = scale.factors()
            half = torch.linalg.solve_triangular(rows, site.to_matrix(offset.view(-1, *site.shape)), upper=False)
            white = torch.linalg.solve_triangular(columns, half.mT, upper=False)
            squares = squares + white.square().sum((-1, -2))
        return -0.5 * squares - self._half_log_det() - 0.5 * self.layout.size * math.log(2 * math.pi)

    def _half_log_det(self) -> Tensor:
        dets = [cast(_MatrixScale, scale).half_log_det() for scale in self.scales]
        total = torch.stack(dets).sum()
        return total if self.log_std is None else total + self.log_std.sum()

    def entropy(self) -> Tensor:
        """columns * sum log A_ii + rows * sum log B_jj + ... + P/2 log(2 pi e)."""
        return self._half_log_det() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    def rows_by_site(self, name: str, parameter: Tensor) -> list[tuple[str, int, int]]:
        """Each matrix has scales of its own; the other sites have rows of ``log_std``."""
        matrices = [site for site in self.layout.sites if site.matrix_shape is not None]
        if name.startswith("scales."):
            return [(matrices[int(name.split(".")[1])].name, 0, len(parameter))]
        if name == "log_std":
            return rows_of((site.name, site.size) for site in self.layout.sites if site.matrix_shape is None)
        return super().rows_by_site(name, parameter)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        if site.matrix_shape is None:
            return "mean_field (not a matrix)"
        return f"matrix_normal({site.matrix_shape[0]}x{site.matrix_shape[1]})"


@dataclass(frozen=True)
class MatrixNormal:
    """Each weight matrix W ~ MN(M, A A', B B') with full row and column covariances; the rest is mean-field.

    With diagonal A and B this is the k-tied Normal of rank 1. A convolution kernel is the matrix (output
    channels) x (input channels x kernel area). ``max_side`` guards against an accident: the factors take
    rows^2 + columns^2 numbers.
    """

    initial_std: float | None = None
    max_side: int = 5000

    name: ClassVar[str] = "matrix_normal"
    paper: ClassVar[str] = "Louizos & Welling 2016"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std("matrix_normal", self.initial_std)
        require_count("matrix_normal", "max_side", self.max_side)

    def numbers(self, layout: Layout) -> int:
        """How many numbers a posterior of this kind holds at least."""
        sides = [side for site in layout.sites for side in site.matrix_shape or ()]
        return sum(side * (side + 1) // 2 for side in sides)

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        matrices = [site for site in layout.sites if site.matrix_shape]
        if not matrices:
            raise SettingError("matrix_normal: the network has no Bayesian weight matrix; use mean_field")
        for site in matrices:
            if site.matrix_shape and max(site.matrix_shape) > self.max_side:
                raise SettingError(
                    f"matrix_normal: '{site.name}' is {site.matrix_shape[0]}x{site.matrix_shape[1]}, "
                    f"above max_side = {self.max_side}; use k_tied, or choose other parameters with where="
                )
        return MatrixNormalPosterior(layout, means, initial_std_vector(self.initial_std, prior))
