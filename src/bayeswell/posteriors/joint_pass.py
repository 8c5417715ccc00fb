"""The draw and the divergence of diagonal plus low-rank Gaussian weights: one pass over them for value and gradients.

With w = m + s (eps + L c) for noise eps (P,) and c (rank,), h = 1 / p^2 for prior stds p around z, and

    KL = k + sum [h ((m - z)^2 + s^2 (1 + |L_i|^2)) / 2 - log s] - log det(I + L'L) / 2,      k = sum [log p - 1/2],

upstream gradients g (of w) and u (of KL) give, with K = (I + L'L)^-1,

    d/dm      = g + u h (m - z)
    d/dlog s  = g s (eps + L c) + u (h s^2 (1 + |L_i|^2) - 1)
    d/dL      = (g s) c' + u (h s^2 L - L K).

Only m, log s, L and the noise (or its key) are kept from one to the other: nothing else is of their size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..native import low_rank_draw_and_kl, low_rank_slopes, takes, transformed
from ..random import KeyedNoise
from ..types import Prior
from .one_pass import GaussianPrior


def joint_draws_and_kl(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Tensor | KeyedNoise | None, prior: Prior,
    centred: GaussianPrior | None, constant: Tensor,
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """(D, P) draws (None without noise) and the KL with k = ``constant``, under a Gaussian prior.

    noise: (D, P + rank), that of the weights and then that of the columns; or its key, for one draw.
    centred: what the compiled formulas take of a prior around zero; None for any other.
    """
    size = len(mean)
    key: KeyedNoise | None = None
    diagonal: Tensor | None = None
    columns: Tensor | None = None
    if isinstance(noise, KeyedNoise) and _is_native(None, centred, mean, log_std, loading):
        key, columns = noise, noise.block(size, noise.size)[None]
    elif noise is not None:
        whole = noise.tensor() if isinstance(noise, KeyedNoise) else noise
        diagonal, columns = whole[:, :size], whole[:, size:]
    given = (mean, log_std, loading, diagonal, columns)
    if transformed():
        return _draws_and_kl(*given, prior, constant)
    weights, kl = _JointDrawsAndKL.apply(*given, key, prior, centred, constant)
    return weights, kl


def root_of(gram: Tensor) -> Tensor:
    """The Cholesky root of I + L'L, from L'L; of numbers that are not finite it is NaN, without a look at them."""
    root, info = torch.linalg.cholesky_ex(gram + torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
    return torch.where(info == 0, root, math.nan)


def _draws_and_kl(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Tensor | None, columns: Tensor | None, prior: Prior,
    constant: Tensor,
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """By torch's operations."""
    std = log_std.exp()
    weights = None
    if noise is not None and columns is not None:
        weights = torch.addcmul(mean, std, torch.addmm(noise, columns, loading.T))
    away = mean if prior.centre is None else mean - prior.centre
    assert prior.inverse_variance is not None
    second_moment = torch.addcmul(away.square(), std.square(), 1 + loading.square().sum(-1))
    cross_term = 0.5 * (prior.inverse_variance * second_moment).sum()
    log_volume = log_std.sum() + root_of(loading.T @ loading).diagonal().log().sum()
    return weights, cross_term - log_volume + constant


class _JointDrawsAndKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_std: Tensor, loading: Tensor, noise: Tensor | None, columns: Tensor | None,
        key: KeyedNoise | None, prior: Prior, centred: GaussianPrior | None, constant: Tensor,
    ) -> tuple[Tensor | None, Tensor]:  # fmt: skip
        given = (mean, log_std, loading, noise, columns)
        ctx.save_for_backward(*given)
        ctx.key, ctx.prior, ctx.centred, ctx.inverse = key, prior, centred, None
        ctx.set_materialize_grads(False)
        if not _is_native(noise, centred, *given):
            return _draws_and_kl(*given, prior, constant)
        assert centred is not None
        own = noise if key is None else key.key
        drawn, value, gram = low_rank_draw_and_kl(mean, log_std, loading, own, columns, centred.precision)
        root = root_of(gram)
        ctx.inverse = torch.cholesky_inverse(root).to(mean.dtype)
        value += constant.item() - root.diagonal().log().sum().item()
        return None if drawn is None else drawn[None], mean.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, log_std, loading, noise, columns = given = ctx.saved_tensors
        key: KeyedNoise | None = ctx.key
        centred: GaussianPrior | None = ctx.centred
        inverse: Tensor | None = ctx.inverse
        others = (None,) * 6
        if of_weights is None and of_kl is None:
            return None, None, None, *others
        # Where gradients are recorded here, a gradient is itself differentiated: torch has to see every operation.
        native = not torch.is_grad_enabled() and _is_native(noise, centred, *given, of_weights, of_kl)
        if native and inverse is not None:
            assert centred is not None
            own = noise if key is None else key.key
            formula = (mean, log_std, loading, own, columns, centred.precision, inverse, of_weights, of_kl)
            return *low_rank_slopes(*formula), *others
        if key is not None:
            noise = key.tensor()[:, : len(mean)]
        return *_slopes(mean, log_std, loading, noise, columns, ctx.prior, of_weights, of_kl), *others


def _slopes(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Tensor | None, columns: Tensor | None, prior: Prior,
    of_weights: Tensor | None, of_kl: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of mean, log_std and loading, by torch's operations."""
    std = log_std.exp()
    of_mean, of_log_std, of_loading = (torch.zeros_like(tensor) for tensor in (mean, log_std, loading))
    if of_weights is not None:
        assert noise is not None
        assert columns is not None
        flow = of_weights * std
        of_mean = of_weights.sum(0)
        of_log_std = (flow * torch.addmm(noise, columns, loading.T)).sum(0)
        of_loading = flow.T @ columns
    if of_kl is not None:
        assert prior.inverse_variance is not None
        scale = prior.inverse_variance * of_kl
        pull = scale * std.square()
        inverse = torch.cholesky_inverse(root_of(loading.T @ loading))
        of_mean = of_mean + scale * (mean if prior.centre is None else mean - prior.centre)
        of_log_std = of_log_std + pull * (1 + loading.square().sum(-1)) - of_kl
        of_loading = of_loading + pull[:, None] * loading - loading @ (of_kl * inverse)
    return of_mean, of_log_std, of_loading


def _is_native(noise: Tensor | None, centred: GaussianPrior | None, *tensors: Tensor | None) -> bool:
    """Whether the compiled formulas take these: one draw at most, a prior around zero."""
    if centred is None or (noise is not None and len(noise) > 1):
        return False
    return takes(*tensors, centred.precision.values)
