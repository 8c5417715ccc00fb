"""Looking at the curvature changes no gradient that a step is taken with; nobody is told of heat he did not ask for."""

from __future__ import annotations

import warnings

import torch
from torch import nn

import bayeswell as bw
from bayeswell.random import make_generator
from bayeswell.samplers.fitted_chain import Dynamics
from bayeswell.samplers.fitting import FittedSampler
from bayeswell.samplers.plans import one_chain


def test_probes_leave_the_gradients_of_every_group() -> None:
    weights, noise = torch.tensor([1.0, -2.0, 0.5]).requires_grad_(), torch.tensor([0.3]).requires_grad_()
    groups = [{"params": [weights], "name": "means"}, {"params": [noise], "noise": False, "name": "noise"}]
    given = {"temperature": 0.1, "dataset_size": 50}
    sampler = FittedSampler("sgld", groups, given, one_chain("sgld", 100), Dynamics(1.0), make_generator(3))

    totals: list[float] = []

    def gradient() -> None:
        sampler.zero_grad(set_to_none=True)
        total = (0.5 * (weights - 1).square().sum() + 0.1) * (-noise).exp().sum() + 0.5 * noise.sum()
        total.backward()
        totals.append(float(total.detach()))

    probes = 0
    for step in range(100):
        gradient()
        met = [param.grad.clone() for param in (weights, noise) if param.grad is not None]
        probes += sampler.plan.stage(step) == "draw" and sampler.plan.measures(step)
        assert sampler.observe(totals[-1], gradient)
        for param, grad in zip((weights, noise), met, strict=True):
            assert torch.equal(param.grad, grad)
        sampler.step()
    assert probes == 3  # in so short a run two of four places are one


def test_a_temperature_that_the_run_finds_is_not_warned_of() -> None:
    x = torch.randn(200, 4, generator=make_generator(1))
    y = (x[:, 0] + torch.randn(200, generator=make_generator(2)) > 0).long()
    told = {}
    for temperature in ("auto", 0.001):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bw.fit(net, (x, y), "csgld", epochs=10, batch_size=8, temperature=temperature, progress=False)
        told[temperature] = sum("to the temperature of 0.001" in str(one.message) for one in caught)
    assert told == {"auto": 0, 0.001: 1}
