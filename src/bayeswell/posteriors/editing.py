"""Functions over posteriors: set or scale their stds, count their parameters, describe a site."""

from __future__ import annotations

import math
from functools import singledispatch

import torch
from torch import Tensor

from ..core.errors import Unsupported
from ..core.layout import Site
from ..core.protocols import Posterior
from .empirical import Empirical
from .full import FullPosterior
from .k_tied import KTiedPosterior
from .low_rank import LowRankPosterior
from .matrix_normal import MatrixNormalPosterior
from .mean_field import MeanFieldPosterior, SoftplusPosterior, softplus_inverse
from .mixture import Mixture
from .shared_std import SharedStdPosterior


@singledispatch
def set_std(posterior: Posterior, std: Tensor) -> None:
    """Give each weight this standard deviation (P,)."""
    raise Unsupported(f"posterior '{posterior.part.name}' has no std for each weight; use mean_field")


@set_std.register
@torch.no_grad()
def _(posterior: MeanFieldPosterior, std: Tensor) -> None:
    posterior.log_std.copy_(std.log())


@set_std.register
@torch.no_grad()
def _(posterior: SoftplusPosterior, std: Tensor) -> None:
    posterior.rho.copy_(softplus_inverse(std))


def can_set_std(posterior: Posterior) -> bool:
    """Return whether ``set_std`` works."""
    return set_std.dispatch(type(posterior)) is not set_std.dispatch(Posterior)


def set_covariance(posterior: Posterior, variances: Tensor, factor: Tensor) -> None:
    """Make the covariance diag(variances) + F F' with F = ``factor`` (P, k); the mean stays."""
    if not isinstance(posterior, LowRankPosterior):
        raise Unsupported(f"posterior '{posterior.part.name}' has no low-rank covariance; use low_rank")
    posterior.set_covariance(variances, factor)


def num_columns(posterior: Posterior) -> int:
    """Return how many columns the factor in ``set_covariance`` may have; 0 if there is none."""
    return posterior.rank if isinstance(posterior, LowRankPosterior) else 0


@singledispatch
def scale_std(posterior: Posterior, factor: float) -> None:
    """Multiply every deviation from the mean by a factor above 0."""
    raise Unsupported(f"posterior '{posterior.part.name}' has no spread that could be scaled")


@scale_std.register
@torch.no_grad()
def _(posterior: MeanFieldPosterior | LowRankPosterior, factor: float) -> None:
    posterior.log_std.add_(math.log(factor))


@scale_std.register
def _(posterior: SoftplusPosterior, factor: float) -> None:
    set_std(posterior, factor * posterior.std().detach())


@scale_std.register
@torch.no_grad()
def _(posterior: SharedStdPosterior, factor: float) -> None:
    posterior.shared_log_std.add_(math.log(factor))


@scale_std.register
@torch.no_grad()
def _(posterior: FullPosterior, factor: float) -> None:
    posterior.log_diagonal.add_(math.log(factor))


@scale_std.register
@torch.no_grad()
def _(posterior: KTiedPosterior | MatrixNormalPosterior, factor: float) -> None:
    """Add half of log(factor) to each side of a product, and all of it to other log stds."""
    for name, parameter in posterior.named_parameters():
        if name == "log_factors" or name.endswith("log_diagonal"):
            parameter.add_(0.5 * math.log(factor))
        elif name == "log_std":
            parameter.add_(math.log(factor))


@scale_std.register
def _(posterior: Mixture, factor: float) -> None:
    """Scale each component around its own mean."""
    for component in posterior.each():
        scale_std(component, factor)


@singledispatch
def num_variational_params(posterior: Posterior) -> int:
    """Return how many free numbers q has, means among them; a triangular matrix counts its triangle."""
    return sum(parameter.numel() for parameter in posterior.parameters())


@num_variational_params.register
def _(posterior: FullPosterior) -> int:
    return 2 * posterior.layout.size + _strict_triangle(posterior.layout.size)


@num_variational_params.register
def _(posterior: MatrixNormalPosterior) -> int:
    triangles = {name: _strict_triangle(len(p)) for name, p in posterior.named_parameters() if name.endswith("lower")}
    return sum(triangles.get(name, parameter.numel()) for name, parameter in posterior.named_parameters())


@num_variational_params.register
def _(posterior: Empirical) -> int:
    return posterior.weights.numel()


@num_variational_params.register
def _(posterior: Mixture) -> int:
    return sum(num_variational_params(component) for component in posterior.each())


def _strict_triangle(size: int) -> int:
    return size * (size - 1) // 2


def explain(posterior: Posterior, site: Site) -> str:
    """Return how this site is represented, in a few words."""
    match posterior:
        case KTiedPosterior() if site.name in posterior.tied and site.matrix_shape:
            return f"k_tied(rank={posterior.rank}, {site.matrix_shape[0]}x{site.matrix_shape[1]})"
        case MatrixNormalPosterior() if site.matrix_shape:
            return f"matrix_normal({site.matrix_shape[0]}x{site.matrix_shape[1]})"
        case KTiedPosterior() | MatrixNormalPosterior() | MeanFieldPosterior():
            return "mean_field"
        case SoftplusPosterior():
            return "mean_field(rho)"
        case LowRankPosterior():
            return f"low_rank(rank={posterior.rank})"
        case Empirical():
            return f"empirical({posterior.num_networks} networks)"
        case Mixture():
            return f"mixture of {len(posterior.components)}"
    return posterior.part.name
