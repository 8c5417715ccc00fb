"""Compiled formulas over long flat vectors, each with a fallback in plain torch: noise, and draw + KL + gradients."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import plain

__all__ = ["available", "draw_and_kl", "in_transform", "normals"]


class Terms(Protocol):
    """A Gaussian prior: ``core.protocols.GaussianTerms``."""

    @property
    def inverse_variances(self) -> Tensor: ...
    @property
    def by_site(self) -> bool: ...
    @property
    def log_std_sum(self) -> Tensor: ...
    @property
    def center(self) -> Tensor | None: ...


def available() -> bool:
    """Return whether the compiled formulas are used."""
    return False


def in_transform() -> bool:
    """Return whether code is being compiled, or runs inside a torch.func transform or forward-mode differentiation."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return inside or torch.compiler.is_compiling()


def normals(key: int, size: int) -> Tensor:
    """Return (size,) float32 N(0, 1) numbers of a key; compiled or not they are the same to rounding."""
    return plain.normals(key, size)


def draw_and_kl(
    mean: Tensor, spread: Tensor, noise: Tensor | None, terms: Terms, *, log_std: bool, ends: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Return draws w = m + s eps and KL(q || p) of q = prod_i N(m_i, s_i^2) from a factorized Gaussian prior.

    KL = sum [h ((m - z)^2 + s^2) / 2 - log s] + sum [log p - 1/2] with h = 1 / p^2 for prior stds p and centers z.

    Args:
        mean: (P,).
        spread: (P,) log stds, or stds.
        noise: (D, P) or (P,), with the draws in the same shape; None for no draws.
        terms: the prior.
        log_std: whether ``spread`` is the log of the stds.
        ends: (sites,) int64, the index after the last weight of each site.
    """
    inverse_variances = terms.inverse_variances
    if terms.by_site:
        sizes = ends.diff(prepend=ends.new_zeros(1))
        inverse_variances = inverse_variances.repeat_interleave(sizes, output_size=mean.shape[-1])
    weights, kl = plain.draw_and_kl(mean, spread, noise, inverse_variances, terms.center, log_std)
    return weights, kl + terms.log_std_sum - 0.5 * mean.shape[-1]
