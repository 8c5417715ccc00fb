"""New initializations of a network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.random import make_generator
from bayeswell.nn import bayesian, reinitialized
from bayeswell.priors import Normal


class Custom(nn.Module):
    """A custom tensor, a custom initialization, a constant, a frozen layer and a layer that torch draws."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(0.3 + 0.7 * torch.rand(400))
        self.small = nn.Linear(60, 50)
        nn.init.normal_(self.small.weight, std=0.004)
        nn.init.constant_(self.small.bias, 0.25)
        self.frozen = nn.Linear(30, 20).requires_grad_(False)
        self.usual = nn.Linear(100, 80)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


def test_each_tensor_is_drawn_from_its_initialization() -> None:
    net = Custom()
    net.norm.running_mean.fill_(3.0)
    again = reinitialized(net, make_generator(1))
    # torch's: uniform within 1/sqrt(100), with the std 0.1/sqrt(3) (standard error of a uniform's: 0.6%).
    assert float(again.usual.weight.detach().abs().max()) <= 0.1
    assert float(again.usual.weight.detach().std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.03)
    # No module draws these on their scale: the same numbers in other places.
    for given, own in ((net.token, again.token), (net.small.weight, again.small.weight)):
        assert not torch.equal(given, own)
        assert torch.equal(given.flatten().sort().values, own.flatten().sort().values)
    assert torch.equal(again.small.bias, net.small.bias)
    assert torch.equal(again.frozen.weight, net.frozen.weight)
    assert torch.equal(again.norm.running_mean, torch.zeros(7))
    # Independent of the given weights: |correlation| of 8,000 pairs is below 4.5 standard errors (failure rate 1e-5).
    both = torch.stack([net.usual.weight.flatten(), again.usual.weight.flatten()]).detach()
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4.5 / math.sqrt(8000)


def test_generator_decides_and_the_global_stream_stays() -> None:
    net = Custom()
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    first, again, other = (reinitialized(net, make_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.token, other.token)
    assert not torch.equal(first.usual.weight, other.usual.weight)


def test_prior_stays_around_the_given_network() -> None:
    net = nn.Linear(30, 20)
    before = net.weight.detach().clone()
    model = bayesian(net, "delta", Normal(0.2, center="network"), init="reinit", generator=make_generator(1))
    assert torch.equal(net.weight, before)
    assert torch.equal(model.layout.unflatten(model.prior.center())["weight"], before)
    assert not torch.equal(model.layout.unflatten(model.posterior.mean)["weight"], before)


def test_frozen_other_parameters_are_not_drawn() -> None:
    net = nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 3))
    for other_params in ("trained", "frozen"):
        model = bayesian(net, "delta", where="1", init="reinit", other_params=other_params, generator=make_generator(1))
        assert torch.equal(model.net[0].weight, net[0].weight) == (other_params == "frozen")
