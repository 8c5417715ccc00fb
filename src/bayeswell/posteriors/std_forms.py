"""What a standard deviation is made of, number by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

FAR_BELOW = -15.0
"""Below this softplus(rho) equals exp(rho) to float32's (and nearly float64's) last digit."""


def softplus_inverse(std: Tensor) -> Tensor:
    """rho with softplus(rho) = std, stable for tiny and for large std."""
    return std + torch.log(-torch.expm1(-std))


def log_softplus(rho: Tensor) -> Tensor:
    """log(softplus(rho)); far below zero it is rho."""
    far = rho - 0.5 * rho.clamp_max(FAR_BELOW).exp()
    return torch.where(rho < FAR_BELOW, far, F.softplus(rho.clamp_min(FAR_BELOW)).log())


@dataclass(frozen=True)
class StdForm:
    """std and log std as functions of one number s, and their slopes d std / ds and d log std / ds.

    ``native`` is what the compiled formulas know the form by; -1 if they do not.
    """

    native: int
    std: Callable[[Tensor], Tensor]
    log_std: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    log_slope: Callable[[Tensor], Tensor]


def _floored(std: Tensor) -> Tensor:
    """The floor keeps the logarithm finite where a std underflows."""
    return std.clamp_min(torch.finfo(std.dtype).tiny)


def _softplus_log_slope(rho: Tensor) -> Tensor:
    near = rho.clamp_min(FAR_BELOW)
    return torch.where(rho < FAR_BELOW, 1 - 0.5 * rho.clamp_max(FAR_BELOW).exp(), near.sigmoid() / F.softplus(near))


FROM_LOG_STD = StdForm(0, torch.exp, lambda s: s, torch.exp, torch.ones_like)
FROM_RHO = StdForm(-1, F.softplus, log_softplus, torch.sigmoid, _softplus_log_slope)
AS_IT_IS = StdForm(
    1,
    lambda s: s,
    lambda s: _floored(s).log(),
    torch.ones_like,
    lambda s: torch.where(s < torch.finfo(s.dtype).tiny, torch.zeros_like(s), 1 / _floored(s)),
)
