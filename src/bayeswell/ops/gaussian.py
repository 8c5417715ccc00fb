"""The Gaussian draw with its KL as operators of torch: compiled on the CPU, in plain torch elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import load
from .plain import draw_and_kl as plain_draw_and_kl
from .plain import gradients as plain_gradients

_operators = torch.library.Library("bayeswell", "FRAGMENT")
_GAUSSIANS = "Tensor mean, Tensor spread, Tensor? noise, Tensor h, Tensor? ends, Tensor? center"
_operators.define(f"draw_and_kl({_GAUSSIANS}, Tensor log_std_sum, bool log_std) -> (Tensor, Tensor)")
_operators.define(
    f"draw_and_kl_gradients({_GAUSSIANS}, Tensor? of_weights, Tensor? of_kl, bool log_std) -> (Tensor, Tensor)"
)


def _is_supported(mean: Tensor, h: Tensor, ends: Tensor | None, *vectors: Tensor | None) -> bool:
    # Whether these are contiguous float32 tensors whose last axis has the length of ``mean``.
    if load() is None or mean.dim() != 1 or h.shape != (mean if ends is None else ends).shape:
        return False
    if h.dtype is not torch.float32 or not h.is_contiguous():
        return False
    size = len(mean)
    return all(v is None or (v.shape[-1] == size and v.is_contiguous() and v.dtype is torch.float32) for v in vectors)


def _addresses(*values: Tensor | bool | int | None) -> list[int | None]:
    return [value.data_ptr() if isinstance(value, Tensor) else value for value in values]


def _draw_and_kl(
    mean: Tensor,
    spread: Tensor,
    noise: Tensor | None,
    h: Tensor,
    ends: Tensor | None,
    center: Tensor | None,
    log_std_sum: Tensor,
    log_std: bool,
) -> tuple[Tensor, Tensor]:
    if not _is_supported(mean, h, ends, mean, spread, noise, center):
        return plain_draw_and_kl(mean, spread, noise, h, ends, center, log_std_sum, log_std)
    size, sites = len(mean), 0 if ends is None else len(ends)
    weights = mean.new_empty(0 if noise is None else noise.shape)
    addresses = _addresses(mean, spread, log_std, h, ends, sites, center, noise, weights)
    value = load().bayeswell_draw_and_kl(  # type: ignore[union-attr]
        *addresses, weights.numel() // max(size, 1), size, torch.get_num_threads()
    )
    return weights, mean.new_full((), value + float(log_std_sum) - 0.5 * size)


def _gradients(
    mean: Tensor,
    spread: Tensor,
    noise: Tensor | None,
    h: Tensor,
    ends: Tensor | None,
    center: Tensor | None,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
    log_std: bool,
) -> tuple[Tensor, Tensor]:
    of_weights = None if of_weights is None else of_weights.contiguous()
    vectors = (mean, spread, noise, center, of_weights)
    if not _is_supported(mean, h, ends, *vectors):
        return plain_gradients(mean, spread, noise, h, ends, center, of_weights, of_kl, log_std)
    size, sites = len(mean), 0 if ends is None else len(ends)
    of_mean, of_spread = torch.empty_like(mean), torch.empty_like(mean)
    addresses = _addresses(mean, spread, log_std, h, ends, sites, center, noise, of_weights)
    draws = 0 if of_weights is None else of_weights.numel() // max(size, 1)
    upstream = 0.0 if of_kl is None else float(of_kl)
    load().bayeswell_gradients(  # type: ignore[union-attr]
        *addresses, draws, upstream, of_mean.data_ptr(), of_spread.data_ptr(), size, torch.get_num_threads()
    )
    return of_mean, of_spread


_operators.impl("draw_and_kl", _draw_and_kl, "CPU")
_operators.impl("draw_and_kl_gradients", _gradients, "CPU")
# All other devices, and the meta tensors of tracing.
_operators.impl("draw_and_kl", plain_draw_and_kl, "CompositeExplicitAutograd")
_operators.impl("draw_and_kl_gradients", plain_gradients, "CompositeExplicitAutograd")


class DrawAndKL(torch.autograd.Function):
    """``draw_and_kl`` with gradients in one pass; not for torch.func transforms or forward mode."""

    # No setup_context, which only transforms need: with it, each call inspects the signature for 50 us.
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, Tensor]:
        *tensors, _, ctx.log_std = arguments
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        weights, kl = torch.ops.bayeswell.draw_and_kl(*arguments)
        return (None if tensors[2] is None else weights), kl

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        if of_weights is None and of_kl is None:
            return (None,) * 8
        # Gradients that are recorded are differentiated again: autograd has to see every operation.
        formula: Any = plain_gradients if torch.is_grad_enabled() else torch.ops.bayeswell.draw_and_kl_gradients
        of_mean, of_spread = formula(*ctx.saved_tensors, of_weights, of_kl, ctx.log_std)
        of_noise = None
        if ctx.needs_input_grad[2] and of_weights is not None:
            spread = ctx.saved_tensors[1]
            of_noise = of_weights * (spread.exp() if ctx.log_std else spread)
        return of_mean, of_spread, of_noise, *(None,) * 5
