"""SGLD with momentum as flat-seeking networks have it: its steps, and its stationary variance against the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.random import make_generator
from bayeswell.samplers import SGLD

N, LAM, T = 50, 30.0, 0.7


@pytest.mark.parametrize(("momentum", "k"), [(0.5, 0.02), (0.9, 0.002), (0.9, 0.1)])
def test_the_variance_is_that_of_the_formula(momentum: float, k: float) -> None:
    """40,000 chains: the standard error of a variance is 0.7 %, and 3.5 % is five of them (false alarm 6e-7)."""
    lr = k * N / LAM
    exact = T / LAM * (1 + 2 * momentum * k / ((1 + momentum) * (1 - momentum) ** 2)) / (1 - k / (2 * (1 + momentum)))
    weights = nn.Parameter(math.sqrt(exact) * torch.randn(40_000, generator=make_generator(1)))
    part = SGLD(lr=lr, temperature=T, momentum=momentum)
    sampler = part.build([weights], dataset_size=N, generator=make_generator(2))
    # Long enough for the slowest mode to be forgotten: it shrinks by about k / (1 - m) a step.
    steps = min(4000, math.ceil(6 * max((1 - momentum) / k, 2 / (1 - momentum))))
    for _ in range(steps):
        weights.grad = LAM / N * weights.detach()
        sampler.step()
    assert float(weights.detach().double().square().mean()) == pytest.approx(exact, rel=0.035)
    assert float(weights.detach().mean()) == pytest.approx(0, abs=5 * math.sqrt(exact / 40_000))


def test_the_formula_is_that_of_the_linear_recursion() -> None:
    """(w, v) <- A (w, v) + noise: the covariance that solves S = A S A' + Q, at generic numbers."""
    momentum, k, lr = 0.8, 0.13, 0.4
    h = k / lr
    step = np.array([[1 - lr * h, -lr * momentum], [h, momentum]])
    noise = np.diag([2 * lr * T / ((1 - momentum) * N), 0.0])
    solved = np.linalg.solve(np.eye(4) - np.kron(step, step), noise.flatten())[0]
    lam = h * N
    exact = T / lam * (1 + 2 * momentum * k / ((1 + momentum) * (1 - momentum) ** 2)) / (1 - k / (2 * (1 + momentum)))
    assert solved == pytest.approx(exact, rel=1e-10)


def test_without_noise_it_is_sgd_with_momentum() -> None:
    ours, theirs = (nn.Parameter(torch.linspace(-1, 2, 7)) for _ in range(2))
    sampler = SGLD(lr=0.03, temperature=0.0, momentum=0.9).build([ours], dataset_size=N, generator=make_generator(0))
    sgd = torch.optim.SGD([theirs], lr=0.03, momentum=0.9)
    for _ in range(20):
        for weights, optimizer in ((ours, sampler), (theirs, sgd)):
            weights.grad = weights.detach().sin()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_no_momentum_is_sgld_bit_for_bit() -> None:
    ends = []
    for part in (SGLD(lr=0.03), SGLD(lr=0.03, momentum=0.0)):
        weights = nn.Parameter(torch.linspace(-1, 2, 7))
        sampler = part.build([weights], dataset_size=N, generator=make_generator(0))
        for _ in range(5):
            weights.grad = weights.detach().clone()
            sampler.step()
        ends.append(weights.detach())
    assert torch.equal(*ends)


def test_a_chain_goes_on_bit_for_bit() -> None:
    def chain(weights: nn.Parameter) -> torch.optim.Optimizer:
        return SGLD(lr=0.03, momentum=0.8).build([weights], dataset_size=N, generator=make_generator(0))

    def run(weights: nn.Parameter, sampler: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            weights.grad = weights.detach().clone()
            sampler.step()

    whole = nn.Parameter(torch.ones(4))
    run(whole, chain(whole), 9)
    first = nn.Parameter(torch.ones(4))
    sampler = chain(first)
    run(first, sampler, 4)
    second = nn.Parameter(first.detach().clone())
    later = chain(second)
    later.load_state_dict(sampler.state_dict())
    run(second, later, 5)
    assert torch.equal(second, whole)


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # a short run
def test_it_trains_with_sharpness_from_the_papers_rate() -> None:
    x = torch.randn(60, 3, generator=make_generator(0))
    result = bw.fit(
        nn.Linear(3, 2), (x, (x[:, 0] > 0).long()), "f-sgld", stepper={"name": "sgld", "lr": 0.05, "momentum": 0.9},
        rate="power", epochs=20, batch_size=20, progress=False,
    )  # fmt: skip
    assert result.histories[0].epochs[-1].nll < 0.6


@pytest.mark.parametrize("momentum", [1.0, -0.1, "much"])
def test_bad_momentum_is_refused(momentum: object) -> None:
    with pytest.raises(SettingError, match="momentum = "):
        SGLD(momentum=momentum)  # type: ignore[arg-type]


def test_a_rate_that_is_fitted_takes_no_momentum() -> None:
    with pytest.raises(SettingError, match="needs a number for lr; sampler 'sghmc' fits both"):
        SGLD(lr=None, momentum=0.5)
