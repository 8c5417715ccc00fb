"""Products of matrices of many rows, differentiated as often as one likes.

y = x w' has the gradients x' = y' w and w' = y'' x (a sum of outer products over the rows), each a product of the same
two kinds. With AVX-512 and several threads oneDNN's convolutions can multiply twice as fast as the library that torch
has for matrices (MKL on a processor of AMD's; `python -m benchmarks.layouts`): rows are then the positions of one image
with channels last, and the weight is a kernel of one position.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .one_dnn import WITH_AVX512, is_float32_on_cpu

_CONVOLVES = WITH_AVX512
"""With AVX2 alone a product with the weight takes as long, the sum of outer products two to three times as long."""
_LEAST_ROWS = 1024
_LEAST_WIDTH = 32
"""Of rows on both sides."""
_MOST_WEIGHTS = 512
"""In a weight, for each row. With less to multiply, laying the weight out costs what is gained."""
_ANY = (0, 0)

_backward = torch.ops.aten.convolution_backward


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` of rows (N, I) with a weight (O, I)."""
    return _Linear.apply(x, weight, bias) if _gains(x, weight, len(weight)) else F.linear(x, weight, bias)


def outer_sum(left: Tensor, right: Tensor) -> Tensor:
    """left' right, for (N, O) and (N, I): (O, I)."""
    return _OuterSum.apply(left, right) if _gains(left, right, right.shape[1]) else left.T @ right


def _gains(rows: Tensor, other: Tensor, width: int) -> bool:
    """Whether rows that become, or meet, others of so many numbers are multiplied faster by a convolution."""
    own = rows.shape[1]
    return (
        _CONVOLVES
        and len(rows) >= max(_LEAST_ROWS, own * width / _MOST_WEIGHTS)
        and min(own, width) >= _LEAST_WIDTH
        and is_float32_on_cpu(rows)
        and other.dtype == torch.float32
        and torch.get_num_threads() > 1
    )


def _as_image(rows: Tensor) -> Tensor:
    """(N, C) as (1, C, N, 1) with channels last in memory."""
    return rows.contiguous()[None, :, None].permute(0, 3, 1, 2)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(_as_image(x), weight[:, :, None, None], bias)[0, :, :, 0].T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            linear(gradient, weight.T, None) if for_x else None,
            outer_sum(gradient, x) if for_weight else None,
            gradient.sum(0) if for_bias else None,
        )


class _OuterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        kernel = left.new_empty(()).expand(left.shape[1], right.shape[1], 1, 1)
        of, by = _as_image(left), _as_image(right)
        found: Tensor = _backward(of, by, kernel, None, (1, 1), _ANY, (1, 1), False, _ANY, 1, (False, True, False))[1]
        return found[:, :, 0, 0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        for_left, for_right = ctx.needs_input_grad
        return (
            linear(right, gradient, None) if for_left else None,
            linear(left, gradient.T, None) if for_right else None,
        )
