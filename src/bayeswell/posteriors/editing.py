"""Functions over posteriors: set or scale their stds, count their parameters."""

from __future__ import annotations

import math
from functools import singledispatch

import torch
from torch import Tensor

from ..core.errors import Unsupported
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
    """Give each weight this standard deviation (P,); 0 becomes the smallest number of its dtype."""
    raise Unsupported(f"posterior '{posterior.part.name}' has no std for each weight; use mean_field")


@set_std.register
@torch.no_grad()
def _(posterior: MeanFieldPosterior, std: Tensor) -> None:
    posterior.log_std.copy_(std.clamp_min(torch.finfo(posterior.log_std.dtype).tiny).log())


@set_std.register
@torch.no_grad()
def _(posterior: SoftplusPosterior, std: Tensor) -> None:
    posterior.rho.copy_(softplus_inverse(std.to(posterior.rho)))


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
    raise Unsupported(f"posterior '{posterior.part.name}' has no stds that could be scaled")


Scalable = (
    MeanFieldPosterior | LowRankPosterior | SharedStdPosterior | FullPosterior | KTiedPosterior | MatrixNormalPosterior
)


@scale_std.register
@torch.no_grad()
def _(posterior: Scalable, factor: float) -> None:
    for name, parameter in posterior.named_parameters():
        if "log_" in name:
            # k-tied stds and the scales of matrix normals are products of two factors.
            share = 0.5 if name == "log_factors" or name.startswith("scales.") else 1.0
            parameter.add_(share * math.log(factor))


@scale_std.register
def _(posterior: SoftplusPosterior, factor: float) -> None:
    set_std(posterior, factor * posterior.std().detach())


@scale_std.register
def _(posterior: Mixture, factor: float) -> None:
    for component in posterior.each():
        scale_std(component, factor)


def num_variational_params(posterior: Posterior) -> int:
    """Return how many free numbers q has, means among them; a triangular matrix counts its triangle."""
    if isinstance(posterior, Empirical):
        return posterior.weights.numel()
    total = sum(parameter.numel() for parameter in posterior.parameters())
    for name, parameter in posterior.named_parameters():
        if name.endswith("lower"):
            total -= len(parameter) * (len(parameter) + 1) // 2
    return total
