"""Dense networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.lab.models import ACTIVATIONS
from bayeswell.lab.models.dense import MLP, Linear


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlp_computes_its_layers(activation: str) -> None:
    net = MLP(hidden=[5, 4], activation=activation).build((2, 3), 2)  # type: ignore[arg-type]
    x = torch.randn(7, 2, 3)
    state = net.state_dict()
    act = ACTIVATIONS[activation]()
    value = x.reshape(7, 6)
    for layer in ("dense1", "dense2"):
        value = act(nn.functional.linear(value, state[f"{layer}.weight"], state[f"{layer}.bias"]))
    expected = nn.functional.linear(value, state["dense3.weight"], state["dense3.bias"])
    torch.testing.assert_close(net(x), expected)


def test_the_network_of_the_papers_on_mnist() -> None:
    net = MLP(hidden=(400, 400)).build((1, 28, 28), 10)
    assert sum(parameter.numel() for parameter in net.parameters()) == 478_410


def test_linear_is_one_layer() -> None:
    net = Linear().build((3,), 2)
    assert [tuple(parameter.shape) for parameter in net.parameters()] == [(2, 3), (2,)]
