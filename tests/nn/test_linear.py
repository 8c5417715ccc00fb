"""Layers that are linear in their weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from bayeswell.nn import bayesian, find_linear_layers
from networks import Recurrent, Repeated, Tied, Transformer

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4), 0),
    "linear over a sequence": (lambda: nn.Linear(4, 3, bias=False), (5, 2, 4), 0),
    "1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (5, 4, 7), 1),
    "2d, circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (5, 2, 6, 6), 2),
    "2d, same": (lambda: nn.Conv2d(2, 3, 3, padding="same", dilation=2), (5, 2, 6, 6), 2),
    "3d": (lambda: nn.Conv3d(1, 2, 2, stride=2), (5, 1, 4, 4, 4), 3),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (5, 4, 3, 3), 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_op_is_the_layer_and_linear_in_weight_and_bias(name: str) -> None:
    make, shape, spatial_dims = LAYERS[name]
    net, x = make(), torch.randn(shape)
    (layer,) = find_linear_layers(net, {"weight", "bias"}, set()).values()
    assert layer.spatial_dims == spatial_dims
    assert torch.equal(layer.op(x, net.weight, net.bias), net(x))
    first, second = torch.randn_like(net.weight), torch.randn_like(net.weight)
    together = layer.op(x, first + 2 * second, None)
    torch.testing.assert_close(together, layer.op(x, first, None) + 2 * layer.op(x, second, None), rtol=1e-4, atol=1e-4)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def test_layers_that_compute_something_else_are_left_out() -> None:
    replaced = nn.Linear(4, 4)
    replaced.forward = lambda x: x  # type: ignore[method-assign]
    net = nn.Sequential(Doubled(4, 4), replaced, parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    names = {name for name, _ in net.named_parameters()}
    assert set(find_linear_layers(net, names, set())) == {"3"}


def test_shared_and_fused_weights_are_left_out() -> None:
    assert set(bayesian(Tied(), "delta").linear_layers) == {"middle"}
    assert set(bayesian(Repeated(), "delta").linear_layers) == {"out"}
    assert set(bayesian(Recurrent(), "delta").linear_layers) == {"out"}
    found = set(bayesian(Transformer(), "delta").linear_layers)
    assert found == {"out", *(f"encoder.layers.{i}.linear{j}" for i in (0, 1) for j in (1, 2))}


def test_deterministic_biases_are_not_part_of_the_layer() -> None:
    layers = bayesian(nn.Linear(4, 3), "delta", where="weight").linear_layers
    assert layers[""].weight == "weight"
    assert layers[""].bias is None
