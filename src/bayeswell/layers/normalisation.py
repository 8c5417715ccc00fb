"""Batch normalisation whose second derivatives are a few passes over the batch.

torch makes the second derivative of BatchNorm of some twenty elementary operations, each a pass over the activations.
Written out, with means over a channel, r = 1 / sqrt(var + eps), z = (x - mean x) r and

    y = w z + b,    x' = P y' = w r (y' - mean y' - z mean(y' z)),    w' = sum y' z,    b' = sum y',

P is symmetric, so towards gradients v of x', s of w' and t of b' the gradient of y' is P v + s z + t, by the same
kernel as the backward pass. With p = mean(y' z), q = mean(v z) and K = mean(v y') - mean v mean y' - p q,

    of x: -w r^2 (q y' + p v + (K - 2 p q) z - q mean y' - p mean v) + s r (y' - mean y' - p z),
    of w: N r K                                                        (N numbers in a channel).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_backward = torch.ops.aten.native_batch_norm_backward


def is_plain_batch_norm(module: nn.Module) -> bool:
    """Whether ``batch_norm`` computes what the module does: one of torch's own three."""
    return isinstance(module, _KINDS) and type(module).forward is _BatchNorm.forward


def normalises_by_batch(module: _BatchNorm) -> bool:
    """Whether the module normalises by the statistics of the batch, and not by running ones."""
    return module.training or (module.running_mean is None and module.running_var is None)


def batch_norm(module: _BatchNorm, x: Tensor) -> Tensor:
    """What ``module(x)`` gives where it normalises by the batch, running statistics included."""
    module._check_input_dim(x)
    if x.numel() <= x.shape[1]:
        # torch's own word on a single number in a channel.
        return type(module).forward(module, x)
    mean = variance = None
    share = 0.0 if module.momentum is None else module.momentum
    if module.training and module.track_running_stats:
        mean, variance, batches = module.running_mean, module.running_var, module.num_batches_tracked
        if batches is not None:
            batches.add_(1)
            if module.momentum is None:
                share = 1.0 / float(batches)
    result: Tensor = _Normalise.apply(x, module.weight, module.bias, mean, variance, share, module.eps)
    return result


class _Normalise(torch.autograd.Function):
    """y = w z + b; running statistics move by a share of the batch's."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
        running_variance: Tensor | None, share: float, eps: float,
    ) -> Tensor:  # fmt: skip
        y, mean, inverse_std = torch.native_batch_norm(
            x, weight, bias, running_mean, running_variance, True, share, eps
        )
        ctx.save_for_backward(x, weight, mean, inverse_std)
        ctx.eps = eps
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        found = _Gradients.apply(of_y, *ctx.saved_tensors, ctx.eps)
        wanted = ctx.needs_input_grad[:3]
        return *(one if needed else None for one, needed in zip(found, wanted, strict=True)), None, None, None, None


class _Gradients(torch.autograd.Function):
    """(y', x, w) -> x', w', b'."""

    @staticmethod
    def forward(
        ctx: Any, of_y: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, inverse_std: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        of_x, of_weight, of_bias = _projected(of_y, x, weight, mean, inverse_std, eps)
        ctx.save_for_backward(of_y, x, weight, mean, inverse_std, of_weight, of_bias)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        return of_x, of_weight, of_bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, s: Tensor | None, t: Tensor | None) -> tuple[Tensor | None, ...]:
        of_y, x, weight, mean, r, of_weight, of_bias = ctx.saved_tensors
        count = x.numel() // x.shape[1]
        wide = [1, -1] + [1] * (x.dim() - 2)
        p, mean_of_y = of_weight / count, of_bias / count
        by_y = by_weight = None
        # The gradient of x is a y' + b v + c x + d.
        a, c, d = torch.zeros_like(r), torch.zeros_like(r), torch.zeros_like(r)
        b = None
        if v is not None:
            by_y, along, total = _projected(v, x, weight, mean, r, ctx.eps)
            q, mean_v = along / count, total / count
            axes = [axis for axis in range(x.dim()) if axis != 1]
            k = (v * of_y).sum(axes) / count - mean_v * mean_of_y - p * q
            by_weight = count * r * k if ctx.needs_input_grad[2] else None
            scale = -r.square() if weight is None else -weight * r.square()
            a, b, c = scale * q, scale * p, scale * (k - 2 * p * q) * r
            d = -scale * (q * mean_of_y + p * mean_v)
        if s is not None:
            a, c, d = a + s * r, c - s * p * r.square(), d - s * r * mean_of_y
        d = d - c * mean
        if s is not None or t is not None:
            slope = torch.zeros_like(r) if s is None else s * r
            offset = -slope * mean if t is None else t - slope * mean
            linear = torch.addcmul(offset.view(wide), x, slope.view(wide))
            by_y = linear if by_y is None else by_y.add_(linear)
        by_x = None
        if ctx.needs_input_grad[1] and (v is not None or s is not None):
            by_x = torch.addcmul(d.view(wide), x, c.view(wide)).addcmul_(of_y, a.view(wide))
            if b is not None and v is not None:
                by_x.addcmul_(v, b.view(wide))
        return by_y, by_x, by_weight, None, None, None


def _projected(
    of_y: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, inverse_std: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """P y', sum y' z and sum y'."""
    given = (of_y, x, weight, None, None, mean, inverse_std, True, eps, [True, True, True])
    of_x, of_weight, of_bias = _backward(*given)
    return of_x, of_weight, of_bias
