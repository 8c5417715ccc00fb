"""Convolution of images, differentiated twice with the channels last in memory.

A penalty on gradients needs of each convolution y = C(x, w) eight more, with x' = X(y', w) and w' = W(x, y') as in
``convolution``: the two of its backward pass; towards the gradients v of x' and u of w'

    of y': C(v, w) + C(x, u),    of x: X(y', u),    of w: W(v, y');

and the two of the last backward pass. oneDNN's kernels on the CPU are faster where the channels of a position lie
together, and x, y' and v come in several of the nine, so each is laid out anew once, and results are laid out as the
network expects them. Where an image has few positions and w is large, W is one matrix product over the patches of x:
oneDNN would spend most of its time on the layout of w'.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .convolution import Shape

_LAST = torch.channels_last
_backward = torch.ops.aten.convolution_backward

_LEAST_CHANNELS = 64
"""From here on both sides; with fewer the gain was lost on the layouts (AVX2, oneDNN 3)."""
_MOST_POSITIONS = 64
"""Of an image, for the weights' gradient as a matrix product."""
_LEAST_EXAMPLE = 32_768
"""Numbers of one example from which its transpose is a copy of its own, in blocks, which is faster."""


def gains_channels_last(x: Tensor, weight: Tensor, shape: Shape) -> bool:
    """Whether ``convolve_channels_last`` computes this convolution and is the faster way."""
    return (
        x.dim() == 4
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and shape.groups == 1
        and min(weight.shape[:2]) >= _LEAST_CHANNELS
        and x.numel() > 0
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
    )


def convolve_channels_last(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """C(x, w) + bias for a batch x, to be differentiated at most twice."""
    result: Tensor = _Convolve.apply(x, weight, bias, shape)
    return result


class _Convolve(torch.autograd.Function):
    """C(x, w) + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
        laid_out = _laid_out(x)
        # x itself is kept for the graph alone: its gradient comes by way of the layout.
        ctx.save_for_backward(x, weight, laid_out)
        ctx.shape = shape
        return _convolved(laid_out, weight, bias, shape).contiguous()

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, laid_out = ctx.saved_tensors
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        of_x = of_weight = None
        if to_x or to_weight:
            of_x, of_weight = _Gradients.apply(of_y, x, weight, laid_out, (to_x, to_weight), ctx.shape)
        return of_x, of_weight, of_y.sum((0, 2, 3)) if to_bias else None, None


class _Gradients(torch.autograd.Function):
    """(y', x, w) -> X(y', w) and W(x, y'), as far as they are wanted."""

    @staticmethod
    def forward(
        ctx: Any, of_y: Tensor, x: Tensor, weight: Tensor, laid_out: Tensor, wanted: tuple[bool, bool], shape: Shape
    ) -> tuple[Tensor | None, Tensor | None]:
        of_y = _laid_out(of_y)
        ctx.save_for_backward(of_y, laid_out, weight)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        to_x, to_weight = wanted
        return (
            _towards_input(of_y, laid_out, weight, shape).contiguous() if to_x else None,
            _towards_weight(laid_out, of_y, weight, shape) if to_weight else None,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, u: Tensor | None) -> tuple[Tensor | None, ...]:
        of_y, x, weight = ctx.saved_tensors
        to_y, to_x, to_weight = ctx.needs_input_grad[:3]
        by_y = by_x = by_weight = None
        if v is not None:
            v = _laid_out(v)
            by_y = _convolved(v, weight, None, ctx.shape) if to_y else None
            by_weight = _towards_weight(v, of_y, weight, ctx.shape) if to_weight else None
        if u is not None:
            by_x = _towards_input(of_y, x, u, ctx.shape).contiguous() if to_x else None
            if to_y:
                other = _convolved(x, u, None, ctx.shape)
                by_y = other if by_y is None else by_y.add_(other)
        return None if by_y is None else by_y.contiguous(), by_x, by_weight, None, None, None


def _laid_out(x: Tensor) -> Tensor:
    """x with channels last in memory."""
    if x[0].numel() < _LEAST_EXAMPLE or not x.is_contiguous():
        return x.contiguous(memory_format=_LAST)
    result = torch.empty_like(x, memory_format=_LAST)
    for target, example in zip(result.permute(0, 2, 3, 1).flatten(1, 2), x.flatten(2), strict=True):
        target.copy_(example.T)
    return result


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    return torch.convolution(x, weight, bias, shape.stride, shape.padding, shape.dilation, False, [0, 0], 1)


def _towards_input(of_y: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """X(y', w); of x its shape and layout alone."""
    return _gradient(of_y, x, weight, shape, 0)


def _towards_weight(x: Tensor, of_y: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """W(x, y'); of w its shape alone."""
    if math.prod(of_y.shape[2:]) > _MOST_POSITIONS or any(step != 1 for step in shape.dilation):
        return _gradient(of_y, x, weight, shape, 1)
    channels, (height, width) = x.shape[1], weight.shape[2:]
    down, across = shape.padding
    patches = F.pad(x.permute(0, 2, 3, 1), (0, 0, across, across, down, down))
    patches = patches.unfold(1, height, shape.stride[0]).unfold(2, width, shape.stride[1])
    rows = patches.permute(0, 1, 2, 4, 5, 3).reshape(-1, height * width * channels)
    product = of_y.permute(0, 2, 3, 1).flatten(0, 2).T @ rows
    return product.view(-1, height, width, channels).permute(0, 3, 1, 2).contiguous()


def _gradient(of_y: Tensor, x: Tensor, weight: Tensor, shape: Shape, wanted: int) -> Tensor:
    mask = [wanted == 0, wanted == 1, False]
    how = (shape.stride, shape.padding, shape.dilation, False, [0, 0], 1)
    result: Tensor = _backward(of_y, x, weight, None, *how, mask)[wanted]
    return result
