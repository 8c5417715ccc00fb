"""Convolution with channels last in memory: torch's outputs and derivatives, and where it is and is not used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.estimators import variational_laplace
from bayeswell.layers import (
    channels_last,
    convolve_channels_last,
    gains_channels_last,
    keeps_layouts,
    shape_of,
    with_channels_last,
)
from bayeswell.types import Step
from nets import lift

LAYERS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    # settings of Conv2d(64, 72), size of an image
    "3x3": ({"kernel_size": 3, "padding": 1}, (6, 5)),
    "without bias": ({"kernel_size": 3, "padding": 1, "bias": False}, (6, 5)),
    "strided": ({"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 0)}, (7, 9)),
    "1x1 strided": ({"kernel_size": 1, "stride": 2}, (6, 6)),
    "dilated": ({"kernel_size": 3, "padding": 2, "dilation": (2, 1)}, (7, 6)),
    "one position": ({"kernel_size": 3}, (3, 3)),
    "many positions": ({"kernel_size": 3, "padding": 1}, (32, 17)),
    "padding that is not read": ({"kernel_size": 2, "stride": 3, "padding": 1}, (6, 7)),
}


def derivatives(convolution: Any, given: list[Tensor]) -> list[Tensor]:
    """Outputs, gradients of a generic function, and gradients of a generic penalty on those."""
    y = convolution(*given)
    first = torch.autograd.grad((0.7 * y).sin().sum() + y.square().mean(), given, create_graph=True)
    penalty = sum((number + 0.7) * gradient.square().mean() for number, gradient in enumerate(first))
    return [y, *first, *torch.autograd.grad(penalty + y.square().mean(), given)]


@pytest.mark.parametrize(("images", "patches"), [(20, False), (20, True), (2, False)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_two_derivatives(
    name: str, last: bool, images: int, patches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against torch's own in float64, to the digits of float32; on whatever processor, in all ways."""
    monkeypatch.setattr(channels_last, "_MULTIPLIES_PATCHES", patches)
    settings, size = LAYERS[name]
    torch.manual_seed(5)
    layer = nn.Conv2d(64, 72, **settings)
    shape = shape_of(layer)
    assert shape is not None
    x = torch.randn(images, 64, *size)
    x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
    given = [x, *layer.parameters()]
    assert gains_channels_last(x, layer.weight, shape)
    found = derivatives(lambda x, w, b=None: convolve_channels_last(x, w, b, shape), given)
    double = [one.detach().double().requires_grad_() for one in given]
    expected = derivatives(lambda x, w, b=None: layer._conv_forward(x, w, b), double)
    for one, other in zip(found, expected, strict=True):
        scale = float(other.detach().abs().max())
        assert scale > 0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5 * scale)
    if not last:
        assert found[0].is_contiguous()
        assert found[1].is_contiguous()
    elif name == "3x3":
        assert found[0].is_contiguous(memory_format=torch.channels_last)


def test_a_penalty_on_some_gradients_of_which_some_are_wanted() -> None:
    torch.manual_seed(6)
    layer = nn.Conv2d(64, 64, 3, padding=1)
    shape = shape_of(layer)
    assert shape is not None
    x = torch.randn(3, 64, 4, 4, requires_grad=True)
    every = [x, layer.weight, layer.bias]
    for chosen in range(1, 8):
        penalised = [one for bit, one in enumerate(every) if chosen >> bit & 1]
        for wanted in every[:2]:
            results = []
            for forward in (layer, lambda x: convolve_channels_last(x, layer.weight, layer.bias, shape)):
                first = torch.autograd.grad(forward(x).sigmoid().sum(), penalised, create_graph=True)
                penalty = sum(gradient.square().mean() for gradient in first)
                results.append([*first, *torch.autograd.grad(penalty, [wanted])])
            for one, other in zip(*results, strict=True):
                scale = float(other.detach().abs().max())
                torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * scale)


def test_where_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    def gains(layer: nn.Conv2d, x: Tensor) -> bool:
        shape = shape_of(layer)
        assert shape is not None
        return gains_channels_last(x, layer.weight, shape)

    images = torch.randn(12, 64, 5, 5)
    last = images.contiguous(memory_format=torch.channels_last)
    assert gains(nn.Conv2d(64, 64, 3), images)
    assert not gains(nn.Conv2d(64, 32, 3), images)
    assert gains(nn.Conv2d(64, 32, 3), last)
    assert not gains(nn.Conv2d(64, 64, 3, groups=2), images)
    assert not gains(nn.Conv2d(64, 64, 3).double(), images.double())
    assert not gains(nn.Conv2d(64, 64, 3), images[0])
    assert not gains(nn.Conv2d(64, 64, 3, device="meta"), images.to("meta"))
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not gains(nn.Conv2d(64, 64, 3), images)


class Viewing(nn.Module):
    """Puts its numbers in a row by ``view``, which images with channels last refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.dense = nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Linear(256, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.softplus(self.second(F.softplus(self.first(x))))
        result: Tensor = self.dense(hidden.view(len(x), -1))
        return result


def sequential() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Softplus(), nn.Conv2d(64, 64, 3), nn.Softplus(), nn.Flatten(),
        nn.Linear(256, 3),
    )  # fmt: skip


def test_which_networks_keep_layouts() -> None:
    images = torch.randn(2, 3, 6, 6)
    net = sequential()
    assert keeps_layouts(net)
    assert with_channels_last(net, images).is_contiguous(memory_format=torch.channels_last)
    assert not keeps_layouts(Viewing())
    assert with_channels_last(Viewing(), images) is images
    narrow = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    assert with_channels_last(narrow, images) is images
    for other in (images[0], images.double(), (images,), images.to("meta")):
        assert with_channels_last(net, other) is other
    net[0].register_forward_hook(lambda module, given, out: None)
    assert not keeps_layouts(net)
    resnet = bw.build_model({"name": "resnet18", "width": 64}, (3, 32, 32), 10)
    assert keeps_layouts(resnet)


@pytest.mark.parametrize("images", [12, 6])  # of 6 the second kernel is too large
@pytest.mark.parametrize("make", [sequential, Viewing])
@pytest.mark.parametrize("curvature", ["fisher_labels", "fisher_reparameterised", "hessian"])
@pytest.mark.filterwarnings("ignore:variational_laplace with curvature 'hessian'")
def test_a_step_is_that_of_the_other_layout(
    curvature: str, make: Any, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(7)
    how = {"name": "variational_laplace", "curvature": curvature}
    model = lift(make(), {"name": "mean_field", "initial_std": 0.13}, estimator=how)
    inputs, targets = torch.randn(images, 3, 6, 6), torch.arange(images) % 3
    objective = bw.ELBO("categorical", dataset_size=70)
    used: list[bool] = []

    def noted(x: Tensor, *given: Any) -> Tensor:
        used.append(x.is_contiguous())
        return convolve_channels_last(x, *given)

    def step() -> list[Tensor]:
        model.zero_grad()
        total = objective(model, inputs, targets, generator=bw.make_generator(17)).total
        total.backward()
        return [total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    monkeypatch.setattr(variational_laplace, "convolve_channels_last", noted)
    found = step()
    own = {"sequential": [False, False], "Viewing": [True]}[make.__name__]
    assert used == ([] if curvature == "hessian" else own)
    monkeypatch.setattr(variational_laplace, "gains_channels_last", lambda *given: False)
    monkeypatch.setattr(variational_laplace, "with_channels_last", lambda net, inputs: inputs)
    used.clear()
    expected = step()
    assert not used
    for one, other in zip(found, expected, strict=True):
        scale = float(other.abs().max())
        assert scale > 0
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * scale)


def test_outputs_that_are_images_come_in_the_usual_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Softplus(), nn.Conv2d(64, 64, 3))
    model = lift(net, estimator="variational_laplace")
    used: list[bool] = []

    def noted(*given: Any) -> Tensor:
        outputs = convolve_channels_last(*given)
        used.append(outputs.is_contiguous())
        return outputs

    monkeypatch.setattr(variational_laplace, "convolve_channels_last", noted)
    for images in (12, 2):  # of 2 both kernels are too large
        step = Step(torch.randn(images, 3, 6, 6), torch.zeros(images), bw.Categorical(), bw.make_generator(1))
        assert model.estimator.forward(model, None, step).is_contiguous()
    assert used == [False] * 4
