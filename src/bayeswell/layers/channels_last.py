"""Convolution of images, differentiated twice with the channels last in memory.

A penalty on gradients needs of each convolution y = C(x, w) eight more, with x' = X(y', w) and w' = W(x, y') as in
``convolution``: the two of its backward pass; towards the gradients v of x' and u of w'

    of y': C(v, w) + C(x, u),    of x: X(y', u),    of w: W(v, y');

and the two of the last backward pass. oneDNN's kernels on the CPU are faster where the channels of a position lie
together, and x, y' and v come in several of the nine, so each is laid out anew once. Results are laid out as x was: a
network that looks at shapes alone may be given images with channels last, and then nothing is laid out anew.

Where an image has few positions, and the processor no AVX-512, W is a matrix product over the patches of x, a few
examples at a time: oneDNN would spend more time on layouts, most where w is large. w itself is laid out once for all
nine. A kernel of far more numbers than the images stays as it is: to lay out its gradients, which are wanted in the
order of the parameters, would take longer than is gained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .convolution import Shape, convolve
from .one_dnn import WITH_AVX512, is_float32_on_cpu

_LAST = torch.channels_last
_backward = torch.ops.aten.convolution_backward

_LEAST_CHANNELS = 64
"""From here on both sides; with fewer the gain was lost on the layouts (AVX2, oneDNN 3)."""
_MOST_WEIGHTS = 4
"""In a kernel, for each number of the images: with more it stays as it is."""
_MULTIPLIES_PATCHES = not WITH_AVX512
"""Whether the weights' gradient may be a matrix product; with AVX-512 oneDNN's own is faster (measured on AMD's)."""
_MOST_POSITIONS = 256
"""Of an image, for it."""
_MOST_NUMBERS = 2**19
"""In the patches of a few examples, which stay in the caches; or as many as w has, which is read for each few."""
_LEAST_EXAMPLE = 32_768
"""Numbers of one example from which its transpose is a copy of its own, in blocks, which is faster."""

_KNOWN = ("torch.nn.", f"{__name__.split('.')[0]}.models.")
"""Where classes are from that keep layouts."""


def gains_channels_last(x: Tensor, weight: Tensor, shape: Shape) -> bool:
    """Whether ``convolve_channels_last`` computes this convolution and is the faster way."""
    return (
        x.dim() == 4
        and is_float32_on_cpu(x)
        and weight.dtype == torch.float32
        and shape.groups == 1
        and (_is_wide(*weight.shape[:2]) or _is_last(x))
        and x.numel() > 0
    )


def keeps_layouts(net: nn.Module) -> bool:
    """Whether the network is known to look at the shapes of its tensors alone, and never at how they lie in memory.

    Where channels are last a ``view`` may be refused that was possible before. Layers of torch and the networks of this
    package do not depend on it; of other code nothing is known.
    """
    return not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)  # put there by hand
        or not type(module).__module__.startswith(_KNOWN)
        for module in net.modules()
    )


def is_for_channels_last(net: nn.Module, inputs: Any) -> bool:
    """Whether these are images for a network that may be given them with channels last, and gains by it."""
    if not isinstance(inputs, Tensor) or inputs.dim() != 4 or not is_float32_on_cpu(inputs):
        return False
    return next(_wide_convolutions(net), None) is not None and keeps_layouts(net)


def with_channels_last(net: nn.Module, inputs: Any) -> Any:
    """The inputs, laid out with channels last if these are images for a network that gains by it."""
    return inputs.contiguous(memory_format=_LAST) if is_for_channels_last(net, inputs) else inputs


def wide_kernels(net: nn.Module) -> list[str]:
    """The names of weights of wide convolutions that lie otherwise with channels last than without."""
    return [
        f"{name}.weight".removeprefix(".")
        for name, module in _wide_convolutions(net)
        if module.groups == 1 and math.prod(module.kernel_size) > 1
    ]


def _wide_convolutions(net: nn.Module) -> Iterator[tuple[str, nn.Conv2d]]:
    for name, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Conv2d) and _is_wide(module.out_channels, module.in_channels):
            yield name, module


def convolve_channels_last(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """C(x, w) + bias for a batch x, to be differentiated at most twice."""
    if weight.numel() >= _MOST_WEIGHTS * x.numel():
        usual = convolve(x.contiguous(), weight, bias, shape)
        return usual.contiguous(memory_format=_LAST) if _is_last(x) else usual
    result: Tensor = _Convolve.apply(x, weight, bias, shape)
    return result


class _Convolve(torch.autograd.Function):
    """C(x, w) + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
        laid_out, kernel = _laid_out(x), weight.contiguous(memory_format=_LAST)
        # x and w themselves are kept for the graph alone: their gradients come by way of the layout.
        ctx.save_for_backward(x, weight, laid_out, kernel)
        ctx.shape = shape
        return _as_before(_convolved(laid_out, kernel, bias, shape), _is_last(x))

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *laid_out = ctx.saved_tensors
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        of_x = of_weight = None
        if to_x or to_weight:
            of_x, of_weight = _Gradients.apply(of_y, x, weight, *laid_out, (to_x, to_weight), ctx.shape)
        return of_x, of_weight, of_y.sum((0, 2, 3)) if to_bias else None, None


class _Gradients(torch.autograd.Function):
    """(y', x, w) -> X(y', w) and W(x, y'), as far as they are wanted."""

    @staticmethod
    def forward(
        ctx: Any, of_y: Tensor, x: Tensor, weight: Tensor, laid_out: Tensor, kernel: Tensor, wanted: tuple[bool, bool],
        shape: Shape,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        of_y = _laid_out(of_y)
        ctx.save_for_backward(of_y, laid_out, kernel)
        ctx.shape, ctx.last = shape, _is_last(x)
        ctx.set_materialize_grads(False)
        to_x, to_weight = wanted
        return (
            _as_before(_towards_input(of_y, laid_out, kernel, shape), ctx.last) if to_x else None,
            _towards_weight(laid_out, of_y, kernel, shape) if to_weight else None,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, u: Tensor | None) -> tuple[Tensor | None, ...]:
        of_y, x, kernel = ctx.saved_tensors
        to_y, to_x, to_weight = ctx.needs_input_grad[:3]
        by_y = by_x = by_weight = None
        if v is not None:
            v = _laid_out(v)
            by_y = _convolved(v, kernel, None, ctx.shape) if to_y else None
            by_weight = _towards_weight(v, of_y, kernel, ctx.shape) if to_weight else None
        if u is not None:
            u = u.contiguous(memory_format=_LAST)
            by_x = _as_before(_towards_input(of_y, x, u, ctx.shape), ctx.last) if to_x else None
            if to_y:
                other = _convolved(x, u, None, ctx.shape)
                by_y = other if by_y is None else by_y.add_(other)
        by_y = None if by_y is None else _as_before(by_y, ctx.last)
        return by_y, by_x, by_weight, None, None, None, None


def _is_wide(*channels: int) -> bool:
    return min(channels) >= _LEAST_CHANNELS


def _is_last(x: Tensor) -> bool:
    """Whether channels are last in memory, and nowhere else at the same time."""
    return x.is_contiguous(memory_format=_LAST) and not x.is_contiguous()


def _as_before(x: Tensor, last: bool) -> Tensor:
    return x if last else x.contiguous()


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
    few = math.prod(of_y.shape[2:]) <= _MOST_POSITIONS
    if not (_MULTIPLIES_PATCHES and few) or any(step != 1 for step in shape.dilation):
        return _gradient(of_y, x, weight, shape, 1)
    (outputs, channels), (height, width), (down, across) = weight.shape[:2], weight.shape[2:], shape.padding
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, across, across, down, down))
    patches = padded.unfold(1, height, shape.stride[0]).unfold(2, width, shape.stride[1]).permute(0, 1, 2, 4, 5, 3)
    product = x.new_zeros(outputs, height * width * channels)
    at_once = max(1, max(_MOST_NUMBERS, weight.numel()) // patches[0].numel())
    for rows, of_rows in zip(patches.split(at_once), of_y.permute(0, 2, 3, 1).split(at_once), strict=True):
        product.addmm_(of_rows.flatten(0, 2).T, rows.reshape(-1, product.shape[1]))
    return product.view(outputs, height, width, channels).permute(0, 3, 1, 2).contiguous()


def _gradient(of_y: Tensor, x: Tensor, weight: Tensor, shape: Shape, wanted: int) -> Tensor:
    mask = [wanted == 0, wanted == 1, False]
    how = (shape.stride, shape.padding, shape.dilation, False, [0, 0], 1)
    result: Tensor = _backward(of_y, x, weight, None, *how, mask)[wanted]
    return result
