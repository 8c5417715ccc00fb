"""Convolutions with derivatives of every order by convolutions, against torch's double backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.random import make_generator
from bayeswell.nn import convolve, shape_of

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(2, 3, 3), (2, 2, 6)),
    "1d, stride with a remainder": (lambda: nn.Conv1d(2, 2, 3, stride=2), (2, 2, 8)),
    "1d, no bias, dilation": (lambda: nn.Conv1d(1, 2, 2, dilation=3, bias=False), (2, 1, 7)),
    "1d, depthwise": (lambda: nn.Conv1d(3, 6, 2, groups=3), (2, 3, 4)),
    "2d": (lambda: nn.Conv2d(2, 2, 2), (1, 2, 3, 4)),
    "2d, everything": (
        lambda: nn.Conv2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (2, 4, 4, 3),
    ),
    "2d, pointwise": (lambda: nn.Conv2d(3, 2, 1, stride=2), (2, 3, 3, 3)),
    "3d": (lambda: nn.Conv3d(2, 2, (1, 2, 2), stride=(1, 2, 1), padding=(0, 1, 0), groups=2), (1, 2, 2, 3, 3)),
}


def numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=make_generator(seed), dtype=torch.float64)


def layer_and_input(name: str) -> tuple[Any, Tensor]:
    make, shape = LAYERS[name]
    return make().double(), numbers(shape, 1).requires_grad_()


def convolved(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    shape = shape_of(layer)
    assert shape is not None
    return convolve(x, weight, bias, shape)


def check_second_derivatives(layer: Any, given: Sequence[Tensor]) -> None:
    wanted = [tensor for tensor in given if tensor.requires_grad]
    results = []
    for convolution in (lambda *g: convolved(layer, *g), lambda x, w, b=None: layer._conv_forward(x, w, b)):
        y = convolution(*given)
        upstream = numbers(tuple(y.shape), 2).requires_grad_()
        first = torch.autograd.grad(y, wanted, upstream, create_graph=True)
        along = torch.stack([(slope * numbers(tuple(slope.shape), 3 + i)).sum() for i, slope in enumerate(first)]).sum()
        second = torch.autograd.grad(along, [*wanted, upstream], materialize_grads=True)
        results.append((y, *first, *second))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_are_those_of_torch(name: str) -> None:
    layer, x = layer_and_input(name)
    given = (x, *layer.parameters())
    check_second_derivatives(layer, given)
    assert torch.autograd.gradgradcheck(lambda *g: convolved(layer, *g), given, fast_mode=True)


def test_derivatives_with_frozen_inputs() -> None:
    layer, x = layer_and_input("2d, everything")
    everything = (x, *layer.parameters())
    for frozen in range(3):
        check_second_derivatives(layer, [t.detach().requires_grad_(i != frozen) for i, t in enumerate(everything)])


def test_third_derivatives() -> None:
    layer, x = layer_and_input("2d, everything")
    direction = numbers(tuple(layer.weight.shape), 3)

    def third(convolution: Callable[..., Tensor]) -> Tensor:
        y = convolution(x, layer.weight, layer.bias).tanh().sum()
        for wanted, towards in [(layer.weight, direction), (layer.weight, direction), (x, None)]:
            (slope,) = torch.autograd.grad(y, wanted, create_graph=True)
            y = slope.sum() if towards is None else (slope * towards).sum()
        return y

    expected = third(layer._conv_forward)
    torch.testing.assert_close(third(lambda *g: convolved(layer, *g)), expected, rtol=1e-10, atol=1e-12)
    assert abs(float(expected.detach())) > 1e-3


class Standardized(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight - weight.mean(), bias)


def test_other_layers_have_no_shape() -> None:
    others = [
        nn.Linear(3, 2),
        nn.ConvTranspose2d(2, 2, 3),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 2, 3, padding="same"),
        Standardized(2, 2, 3),
    ]
    assert all(shape_of(layer) is None for layer in others)
