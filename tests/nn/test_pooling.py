"""Max pooling by slices against torch's kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.nn import bayesian
from bayeswell.nn.pooling import SlicedMaxPool2d, use_sliced_pooling


@pytest.mark.parametrize("shape", [(2, 3, 8, 6), (2, 3, 7, 9), (3, 5, 4), (1, 1, 2, 3)])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...]) -> None:
    net, plain = nn.Sequential(nn.MaxPool2d(2)), nn.MaxPool2d(2)
    use_sliced_pooling(net)
    x = torch.randn(shape)
    x.view(-1)[3] = float("nan")
    with torch.no_grad():
        torch.testing.assert_close(net(x), plain(x), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(torch.vmap(net)(x[None]), plain(x)[None], rtol=0, atol=0, equal_nan=True)
    x = torch.randn(shape, requires_grad=True)
    assert torch.equal(*(torch.autograd.grad(layer(x).square().sum(), x)[0] for layer in (net, plain)))


def test_only_plain_two_by_two_pooling_is_replaced() -> None:
    layers = [
        nn.MaxPool2d(2),
        nn.MaxPool2d((2, 2), 2),
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, 1),
        nn.MaxPool2d(2, ceil_mode=True),
    ]
    model = bayesian(nn.Sequential(*layers, nn.Linear(2, 2)))
    assert [type(layer) is SlicedMaxPool2d for layer in model.net[:5]] == [True, True, False, False, False]
    assert type(layers[0]) is nn.MaxPool2d
