"""Convolution whose second derivatives are convolutions too.

torch's second derivative of a convolution is a convolution with a kernel as large as the image, many times slower.
Written as three bilinear maps,

    y = C(x, w),        x' = X(y', w)  (transposed),        w' = W(x, y'),

the derivative of each is made of the other two: of C: X(y', w) and W(x, y'); of X(y', w) towards v: C(v, w) and
W(v, y'); of W(x, y') towards u: X(y', u) and C(x, u). So every derivative of any order runs on the three kernels of
ordinary training.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_backward = torch.ops.aten.convolution_backward


class Shape(NamedTuple):
    """Settings of a convolution."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


def shape_of(layer: nn.Module) -> Shape | None:
    """Return the settings of an ordinary convolution; None for other layers, and for padding other than zeros."""
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return None
    # A subclass may do something to the weight before it convolves with it.
    if all(type(layer)._conv_forward is not kind._conv_forward for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return None
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    return Shape(list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Return C(x, w) + bias for a batch x; derivatives of every order are convolutions."""
    result: Tensor = _Convolve.apply(x, weight, bias, shape)
    return result


class _Convolve(torch.autograd.Function):
    """C(x, w) + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape = shape
        zeros = [0] * len(shape.stride)
        return torch.convolution(
            x, weight, bias, shape.stride, shape.padding, shape.dilation, False, zeros, shape.groups
        )

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        return (
            _TowardsInput.apply(of_y, weight, x.shape, ctx.shape) if to_x else None,
            _TowardsWeight.apply(x, of_y, weight.shape, ctx.shape) if to_weight else None,
            of_y.sum([axis for axis in range(of_y.dim()) if axis != 1]) if to_bias else None,
            None,
        )


class _TowardsInput(torch.autograd.Function):
    """X(y', w)."""

    @staticmethod
    def forward(ctx: Any, of_y: Tensor, weight: Tensor, x_shape: torch.Size, shape: Shape) -> Tensor:
        ctx.save_for_backward(of_y, weight)
        ctx.shape = shape
        return _gradient(of_y, of_y.new_empty(1).expand(x_shape), weight, shape, 0)

    @staticmethod
    def backward(ctx: Any, towards: Tensor) -> tuple[Tensor | None, ...]:
        of_y, weight = ctx.saved_tensors
        to_y, to_weight = ctx.needs_input_grad[:2]
        return (
            _Convolve.apply(towards, weight, None, ctx.shape) if to_y else None,
            _TowardsWeight.apply(towards, of_y, weight.shape, ctx.shape) if to_weight else None,
            None,
            None,
        )


class _TowardsWeight(torch.autograd.Function):
    """W(x, y')."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, of_y: Tensor, weight_shape: torch.Size, shape: Shape) -> Tensor:
        ctx.save_for_backward(x, of_y)
        ctx.shape = shape
        return _gradient(of_y, x, of_y.new_empty(1).expand(weight_shape), shape, 1)

    @staticmethod
    def backward(ctx: Any, towards: Tensor) -> tuple[Tensor | None, ...]:
        x, of_y = ctx.saved_tensors
        to_x, to_y = ctx.needs_input_grad[:2]
        return (
            _TowardsInput.apply(of_y, towards, x.shape, ctx.shape) if to_x else None,
            _Convolve.apply(x, towards, None, ctx.shape) if to_y else None,
            None,
            None,
        )


def _gradient(of_y: Tensor, x: Tensor, weight: Tensor, shape: Shape, wanted: int) -> Tensor:
    # The operand that is wanted, input (0) or weight (1), is read for its shape only.
    mask = [wanted == 0, wanted == 1, False]
    zeros = [0] * len(shape.stride)
    how = (shape.stride, shape.padding, shape.dilation, False, zeros, shape.groups)
    result: Tensor = _backward(of_y, x, weight, None, *how, mask)[wanted]
    return result
