"""Convolution with derivatives of every order by convolutions: against torch's own, and where it gives way to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.estimators import variational_laplace
from bayeswell.layers import convolve, shape_of
from bayeswell.random import make_generator
from nets import lift

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(2, 3, 3), (2, 2, 6)),
    "1d, stride 2 that leaves a rest": (lambda: nn.Conv1d(2, 2, 3, stride=2), (2, 2, 8)),
    "1d, no bias, dilation": (lambda: nn.Conv1d(1, 2, 2, dilation=3, bias=False), (2, 1, 7)),
    "1d, a channel each": (lambda: nn.Conv1d(3, 6, 2, groups=3), (2, 3, 4)),
    "2d": (lambda: nn.Conv2d(2, 2, 2), (1, 2, 3, 4)),
    "2d, all at once": (
        lambda: nn.Conv2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (2, 4, 4, 3),
    ),
    "2d, no bias, padding": (lambda: nn.Conv2d(2, 1, 3, padding=1, bias=False), (2, 2, 3, 3)),
    "2d, points": (lambda: nn.Conv2d(3, 2, 1, stride=2), (2, 3, 3, 3)),
    "3d": (lambda: nn.Conv3d(2, 2, (1, 2, 2), stride=(1, 2, 1), padding=(0, 1, 0), groups=2), (1, 2, 2, 3, 3)),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    """Generic numbers in double precision."""
    return torch.randn(shape, generator=make_generator(seed), dtype=torch.float64)


def layer_and_input(name: str) -> tuple[Any, Tensor]:
    """In double precision."""
    torch.manual_seed(7)
    make, shape = LAYERS[name]
    return make().double(), numbers(shape, 1).requires_grad_()


def convolved(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As the layer is shaped."""
    shape = shape_of(layer)
    assert shape is not None
    return convolve(x, weight, bias, shape)


@each_layer
def test_values_and_gradients_are_those_of_the_layer(name: str) -> None:
    layer, x = layer_and_input(name)
    expected = layer(x)
    found = convolved(layer, x, layer.weight, layer.bias)
    assert torch.equal(found, expected)
    inputs = [x, *layer.parameters()]
    upstream = numbers(tuple(expected.shape), 2)
    for one, other in zip(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def check_derivatives(layer: Any, given: Sequence[Tensor]) -> None:
    """The first by finite differences, the second against those of torch's own convolution.

    These are far nearer than finite differences come, so one direction shows any number of them that is wrong; along
    some directions finite differences are taken too, also where nothing comes from above.
    """

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return convolved(layer, x, weight, bias)

    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    wanted = [tensor for tensor in given if tensor.requires_grad]
    results = []
    for convolution in (run, lambda x, weight, bias=None: layer._conv_forward(x, weight, bias)):
        y = convolution(*given)
        upstream = numbers(tuple(y.shape), 2).requires_grad_()
        first = torch.autograd.grad(y, wanted, upstream, create_graph=True)
        along = sum((slope * numbers(tuple(slope.shape), 3 + i)).sum() for i, slope in enumerate(first))
        results.append(torch.autograd.grad(along, [*wanted, upstream], materialize_grads=True))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert bool((results[1][-1] != 0).all())


@each_layer
def test_derivatives_of_first_and_second_order(name: str) -> None:
    layer, x = layer_and_input(name)
    check_derivatives(layer, (x, *layer.parameters()))


@pytest.mark.parametrize("name", ["1d, no bias, dilation", "2d, all at once"])
def test_derivatives_where_some_inputs_need_none(name: str) -> None:
    """Data, a frozen weight, a frozen bias: what is left is right, in both orders."""
    layer, x = layer_and_input(name)
    everything = (x, *layer.parameters())
    for frozen in range(len(everything)):
        given = [tensor.detach().requires_grad_(i != frozen) for i, tensor in enumerate(everything)]
        check_derivatives(layer, given)
    with torch.no_grad():
        assert not convolved(layer, *everything, *[None] * (layer.bias is None)).requires_grad


def test_third_derivatives() -> None:
    layer, x = layer_and_input("2d, all at once")
    direction = numbers(tuple(layer.weight.shape), 3)

    def third(convolution: Callable[..., Tensor]) -> Tensor:
        y = convolution(x, layer.weight, layer.bias).tanh().sum()
        for wanted, towards in [(layer.weight, direction), (layer.weight, direction), (x, None)]:
            (slope,) = torch.autograd.grad(y, wanted, create_graph=True)
            y = slope.sum() if towards is None else (slope * towards).sum()
        return y

    found, expected = third(lambda *given: convolved(layer, *given)), third(layer._conv_forward)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert abs(expected.item()) > 1e-3


class Standardised(nn.Conv2d):
    """A convolution with another weight than its own, and the forward of its class."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight - weight.mean(), bias)


def test_shapes_that_are_not_known() -> None:
    for layer in (
        nn.Linear(3, 2),
        nn.ConvTranspose2d(2, 2, 3),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding="valid"),
        Standardised(2, 2, 3),
    ):
        assert shape_of(layer) is None
    assert shape_of(nn.Conv2d(4, 2, (3, 2), (2, 1), (1, 2), (1, 3), 2)) == ([2, 1], [1, 2], [1, 3], 2)


# ---------------------------------------------------------------------------------------------------------
# Variational Laplace, which needs the second derivatives.


class Pooled(nn.Module):
    """A convolution, softplus and the mean over positions, then a dense layer."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dense = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.softplus(layer(x))
        return self.dense(x.flatten(2).mean(-1))


class Unbatched(Pooled):
    """Calls its layers with one example at a time."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = []
        for example in x:
            for layer in self.layers:
                example = F.softplus(layer(example))
            hidden.append(example.flatten(1).mean(-1))
        return self.dense(torch.stack(hidden))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    # ... inputs, and whether a convolution is taken
    "groups and stride": (
        lambda: Pooled(nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, groups=2, bias=False)),
        (6, 2, 7, 5),
        True,
    ),
    "sequences": (lambda: Pooled(nn.Conv1d(2, 4, 3, dilation=2)), (6, 2, 9), True),
    "volumes": (lambda: Pooled(nn.Conv3d(1, 4, 2, stride=(1, 2, 1))), (4, 1, 3, 4, 3), True),
    "circular": (lambda: Pooled(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")), (6, 2, 5, 5), False),
    "same": (lambda: Pooled(nn.Conv2d(2, 4, 3, padding="same")), (6, 2, 5, 5), False),
    "unbatched": (lambda: Unbatched(nn.Conv2d(2, 4, 3)), (5, 2, 5, 5), False),
    "its own weight": (lambda: Pooled(Standardised(2, 4, 3)), (5, 2, 5, 5), False),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("curvature", ["fisher_labels", "fisher_reparameterised", "hessian"])
@pytest.mark.filterwarnings("ignore:variational_laplace with curvature 'hessian'")
def test_variational_laplace_is_as_with_torchs_own_convolution(
    network: str, curvature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shape, taken = NETWORKS[network]
    torch.manual_seed(11)
    how = {"name": "variational_laplace", "curvature": curvature}
    model = lift(make().double(), {"name": "mean_field", "initial_std": 0.13}, estimator=how)
    inputs, targets = numbers(shape, 13), torch.arange(shape[0]) % 3
    objective = bw.ELBO("categorical", dataset_size=70)
    used: list[int] = []

    def noted(*given: Any) -> Tensor:
        used.append(1)
        return convolve(*given)

    def step() -> list[Tensor]:
        model.zero_grad()
        total = objective(model, inputs, targets, generator=make_generator(17)).total
        total.backward()
        return [total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    monkeypatch.setattr(variational_laplace, "convolve", noted)
    found = step()
    assert bool(used) == taken
    monkeypatch.setattr(variational_laplace, "shape_of", lambda layer: None)
    used.clear()
    expected = step()
    assert not used
    assert len(found) == len(expected) == 1 + len(list(model.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert float(other.abs().max()) > 0
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
