"""Starts drawn anew from the network's own initialisation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting.redrawing import looks_trained, redrawn

X, Y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


class Own(nn.Module):
    """A tensor of its own, an initialisation of its own, a constant, a frozen tensor and a module that redraws."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(0.3 + 0.7 * torch.rand(400))
        self.small = nn.Linear(60, 50)
        nn.init.normal_(self.small.weight, std=0.004)
        nn.init.constant_(self.small.bias, 0.25)
        self.frozen = nn.Linear(30, 20)
        self.frozen.requires_grad_(requires_grad=False)
        self.usual = nn.Linear(100, 80)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


def test_each_tensor_is_drawn_from_what_it_came_from() -> None:
    torch.manual_seed(1)
    net = Own()
    net.norm.running_mean.fill_(3.0)
    again = redrawn(net)
    # torch's own: uniform within 1/sqrt(100), with the std 0.1/sqrt(3) (standard error of a uniform's: 0.6%).
    assert float(again.usual.weight.detach().abs().max()) <= 0.1
    assert float(again.usual.weight.detach().std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.03)
    # No module draws these on their scale: the same numbers in other places.
    for given, own in ((net.token, again.token), (net.small.weight, again.small.weight)):
        assert not torch.equal(given, own)
        assert torch.equal(given.flatten().sort().values, own.flatten().sort().values)
    assert torch.equal(again.small.bias, net.small.bias)
    assert torch.equal(again.frozen.weight, net.frozen.weight)
    assert torch.equal(again.norm.weight, torch.ones(7))
    assert torch.equal(again.norm.running_mean, torch.zeros(7))
    # Independent of the given weights: |correlation| of 8,000 pairs is below 4.5 standard errors (1e-5).
    both = torch.stack([net.usual.weight.flatten(), again.usual.weight.flatten()]).detach()
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4.5 / math.sqrt(8000)


def test_the_given_network_and_the_prior_are_left_alone() -> None:
    torch.manual_seed(2)
    net = nn.Linear(30, 20)
    before = net.weight.detach().clone()
    model = bw.bayesian(net, "delta", bw.Normal(0.2, centre="network"), means="redrawn")
    assert torch.equal(net.weight, before)
    centre = model.layout.unflatten(model.prior.centre)["weight"]
    assert torch.equal(centre, before)  # one target for all chains, wherever they start
    assert not torch.equal(model.layout.unflatten(model.posterior.mean_vector())["weight"], before)


def _starts(net: nn.Module, **settings: object) -> list[Tensor]:
    """Where the members are after a step too small to see."""
    result = bw.fit(net, (X, Y), "map", epochs=1, batch_size=60, lr=1e-9, members=3, progress=False, **settings)
    return [result.model.posterior.weights[index] for index in range(3)]


def test_members_start_dispersed_and_the_first_from_the_network() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
    given = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    first, second, third = _starts(net)
    torch.testing.assert_close(first, given, atol=1e-6, rtol=0)
    bound = 1 / math.sqrt(30)
    for other in (second, third):
        head = other[150:240]  # the second weight matrix: uniform within 1/sqrt(30), where it is looked at
        assert bound * 0.9 < float(head.abs().max()) <= bound + 1e-6
        assert float((other - given).abs().mean()) > 0.1
    assert float((second - third).abs().mean()) > 0.1
    for start in _starts(net, means="network"):
        torch.testing.assert_close(start, given, atol=1e-6, rtol=0)
    assert all(float((start - given).abs().mean()) > 0.1 for start in _starts(net, means="redrawn"))
    again = _starts(net)
    assert all(torch.equal(one, other) for one, other in zip(again, (first, second, third), strict=True))


def _matrix(rank_one: float) -> nn.Module:
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 20))
    for layer in (net[0], net[2]):
        assert isinstance(layer, nn.Linear)
        rows, columns = (torch.nn.functional.normalize(torch.randn(n), dim=0) for n in layer.weight.shape)
        layer.weight.data += rank_one * torch.outer(rows, columns)
    return net


def test_trained_weights_are_told_from_drawn_ones() -> None:
    assert looks_trained(_matrix(0.0)) is None
    # sigma_1 of an m x n matrix of independent entries is near (sqrt m + sqrt n) std. 5 added along one direction:
    # std^2 = 1 / (3 n) + 25 / (m n), so 5.1 / 2.02 = 2.5 for the first matrix and 5.1 / 2.28 = 2.2 for the second.
    ratio = looks_trained(_matrix(5.0))
    assert ratio is not None
    assert 2.0 < ratio < 2.8
    data = (torch.randn(40, 40), torch.arange(40) % 20)
    with pytest.warns(bw.BayeswellWarning, match=r"look trained .* first of 2 members .* means='network'"):
        bw.fit(_matrix(5.0), data, "map", epochs=1, members=2, progress=False)


def test_the_start_must_be_known() -> None:
    with pytest.raises(bw.SettingError, match=r"map: means = 'redrwn'; did you mean 'redrawn'"):
        bw.fit(nn.Linear(4, 3), (X, Y), "map", means="redrwn")
