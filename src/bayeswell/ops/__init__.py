"""Compiled formulas over long flat vectors, each with a fallback in plain torch: noise, and draw + KL + gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import plain
from .gaussian import DrawAndKL
from .library import load

__all__ = ["available", "draw_and_kl", "in_transform", "normals"]


def available() -> bool:
    """Return whether the compiled formulas are used."""
    return load() is not None


def in_transform() -> bool:
    """Return whether code is being compiled, or runs inside a torch.func transform or forward-mode differentiation."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return inside or torch.compiler.is_compiling()


def normals(key: int, size: int) -> Tensor:
    """Return (size,) float32 N(0, 1) numbers of a 64-bit key; compiled or not they are the same to rounding."""
    library = load()
    if library is None:
        return plain.normals(key, size)
    out = torch.empty(size, dtype=torch.float32, device="cpu")
    library.bayeswell_normals(key % (1 << 64), out.data_ptr(), size, torch.get_num_threads())
    return out


def draw_and_kl(
    mean: Tensor, spread: Tensor, noise: Tensor | None, terms: Any, *, log_std: bool, ends: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Return draws w = m + s eps and KL(q || p) of q = prod_i N(m_i, s_i^2) from a factorized Gaussian prior.

    KL = sum [log p - log s + h ((m - z)^2 + s^2) / 2 - 1/2] with h = 1 / p^2 for prior stds p and centers z.

    Args:
        mean: (P,).
        spread: (P,) log stds, or stds.
        noise: (D, P) or (P,), with the draws in the same shape; None for no draws.
        terms: the prior, a ``core.protocols.GaussianTerms``.
        log_std: whether ``spread`` is the log of the stds.
        ends: (sites,) int64, the index after the last weight of each site.
    """
    h, center = terms.inverse_variances, terms.center
    site_ends = ends if terms.by_site else None
    arguments = (mean, spread, noise, h, site_ends, center, terms.log_std_sum, log_std)
    learned = any(tensor is not None and tensor.requires_grad for tensor in (h, center, terms.log_std_sum))
    if in_transform() or learned:
        weights, kl = plain.draw_and_kl(*arguments)
        return (None if noise is None else weights), kl
    weights, kl = DrawAndKL.apply(*arguments)
    return weights, kl
