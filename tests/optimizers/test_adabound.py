"""AdaBound and AMSBound against their published formula written out slowly, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.optimizers import (
    AdaBoundOptimizer,
    AMSBound,
    rate_bounds,
)
from bayeswell.optimizers.stepping import cache_blocks
from optimizers.steps import STEPS, assert_same, gradient_sequence, numbers, parameters, run


class SlowAdaBound:
    """The published algorithm for one number."""

    def __init__(self, w: float, lr: float, final_lr: float, gamma: float, decay: float, ams: bool) -> None:
        self.w, self.base_lr, self.final_lr, self.gamma, self.decay, self.ams = w, lr, final_lr, gamma, decay, ams
        self.t, self.m, self.v, self.v_max = 0, 0.0, 0.0, 0.0
        self.clipped: set[str] = set()

    def step(self, g: float, lr: float, b1: float, b2: float, eps: float) -> None:
        self.t += 1
        g = g + self.decay * self.w
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g * g
        self.v_max = max(self.v_max, self.v)
        size = lr * math.sqrt(1 - b2**self.t) / (1 - b1**self.t)
        rate = size / (math.sqrt(self.v_max if self.ams else self.v) + eps)
        final = self.final_lr * lr / self.base_lr
        low = final * (1 - 1 / (self.gamma * self.t + 1))
        high = final * (1 + 1 / (self.gamma * self.t))
        self.clipped.add("low" if rate < low else "high" if rate > high else "free")
        self.w -= min(max(rate, low), high) * self.m


@pytest.mark.parametrize("ams", [False, True], ids=["adabound", "amsbound"])
def test_adabound_agrees_with_the_published_formula(ams: bool) -> None:
    # Two groups with rates and decays of their own, a schedule on both, and a parameter that often has no gradient.
    gradients, params = gradient_sequence(STEPS, spikes=(60, 61)), parameters()
    rates, decays = (0.02, 0.05), (0.003, 0.0)
    common = {"final_lr": 0.013, "gamma": 0.004, "betas": (0.85, 0.97), "eps": 1e-7}
    groups = [
        {"params": params[:2], "lr": rates[0], "weight_decay": decays[0]},
        {"params": params[2:], "lr": rates[1]},
    ]
    optimizer = AdaBoundOptimizer(groups, **common, amsbound=ams)
    of = [0] * 10 + [1]  # which group each number is in
    start = numbers(params)
    slow = [SlowAdaBound(w, rates[k], 0.013, 0.004, decays[k], ams) for w, k in zip(start, of, strict=True)]
    for t, step in enumerate(gradients):
        factor = 1.0 if t < 100 else 0.3
        for parameter, gradient in zip(params, step, strict=True):
            parameter.grad = gradient.clone()
        missing = t % 3 == 1
        if missing:
            params[1].grad = None
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimizer.step()
        for index, (one, g, k) in enumerate(zip(slow, numbers(step), of, strict=True)):
            if not (missing and 6 <= index < 10):
                one.step(g, rates[k] * factor, *common["betas"], common["eps"])
        assert_same(numbers(params), [one.w for one in slow])
    assert set().union(*(one.clipped for one in slow)) == {"low", "high", "free"}
    assert optimizer.state[params[0]]["step"] == STEPS
    assert optimizer.state[params[1]]["step"] == STEPS - STEPS // 3


@pytest.mark.parametrize(("ams", "gamma"), [(False, 0.0), (False, 1e-9), (True, 0.0), (True, 1e-9)])
def test_adabound_with_open_bounds_is_adam(ams: bool, gamma: float) -> None:
    # eps = 0, as AdaBound adds it before and Adam after the bias correction.
    gradients, first, second = gradient_sequence(60), parameters(), parameters()
    adam = torch.optim.Adam(second, lr=0.02, betas=(0.8, 0.95), eps=0.0, weight_decay=0.01, amsgrad=ams)
    bound = AdaBoundOptimizer(
        first, lr=0.02, betas=(0.8, 0.95), eps=0.0, weight_decay=0.01, final_lr=0.1, gamma=gamma, amsbound=ams
    )
    assert_same(run(bound, first, gradients), run(adam, second, gradients))


def test_adabound_late_is_sgd_on_the_average_gradient() -> None:
    # With m = (1 - b1) (heavy-ball buffer) that is torch's SGD with rate final_lr (1 - b1).
    gradients, first, second = gradient_sequence(50), parameters(), parameters()
    bound = AdaBoundOptimizer(first, lr=0.01, betas=(0.7, 0.9), final_lr=0.03, gamma=1e-3)
    for parameter in first:
        zero = torch.zeros_like(parameter)
        bound.state[parameter] = {"step": 10**14, "exp_avg": zero, "exp_avg_sq": zero.clone()}
    sgd = torch.optim.SGD(second, lr=0.03 * (1 - 0.7), momentum=0.7)
    assert_same(run(bound, first, gradients), run(sgd, second, gradients), 1e-9)


def test_bounds_of_the_rate() -> None:
    np.testing.assert_allclose(rate_bounds(1, 0.1, 1e-3), (0.1 * (1 - 1 / 1.001), 0.1 * (1 + 1 / 1e-3)), rtol=1e-12)
    np.testing.assert_allclose(rate_bounds(1000, 0.1, 1e-3), (0.05, 0.2), rtol=1e-12)
    assert rate_bounds(7, 0.1, 0.0) == (0.0, math.inf)


@pytest.mark.parametrize("step", [1, 1000])
def test_the_bounds_hold_where_adam_would_leave_them(step: int) -> None:
    # A huge and a tiny gradient; the move divided by m is the rate.
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = AdaBoundOptimizer([parameter])
    zero = torch.zeros_like(parameter)
    optimizer.state[parameter] = {"step": step - 1, "exp_avg": zero, "exp_avg_sq": zero.clone()}
    parameter.grad = torch.tensor([1e5, 1e-6], dtype=torch.float64)
    optimizer.step()
    rates = -parameter.detach() / optimizer.state[parameter]["exp_avg"]
    np.testing.assert_allclose(rates, rate_bounds(step, 0.1, 1e-3), rtol=1e-12)


def test_amsbound_remembers_the_largest_second_moment() -> None:
    gradients, params = gradient_sequence(40, spikes=(7,)), parameters()
    optimizer = AMSBound(gamma=0.1, betas=(0.9, 0.8)).build([{"params": params}])
    largest = [torch.zeros_like(parameter) for parameter in params]
    for step in gradients:
        run(optimizer, params, [step])
        for kept, parameter in zip(largest, params, strict=True):
            torch.maximum(kept, optimizer.state[parameter]["exp_avg_sq"], out=kept)
    for kept, parameter in zip(largest, params, strict=True):
        state = optimizer.state[parameter]
        assert torch.equal(state["max_exp_avg_sq"], kept)
        assert bool((kept > 100 * state["exp_avg_sq"]).any())


@pytest.mark.parametrize("contiguous", [True, False])
def test_long_vectors_move_as_short_ones_do(contiguous: bool) -> None:
    # 300,000 numbers are three blocks; 40 tensors of 5,000 are two bundles. Each row of 10 is one of the short ones.
    short, gradients = nn.Parameter(torch.linspace(-1, 1, 10)), [0.3 * torch.randn(10) for _ in range(4)]
    long = nn.Parameter(short.detach().repeat(30_000, 1))
    many = [nn.Parameter(short.detach().repeat(500, 1)) for _ in range(40)]
    optimizer = AMSBound(lr=0.05, gamma=0.1).build([{"params": [short, long, *many]}])
    for gradient in gradients:
        short.grad = gradient
        for parameter in (long, *many):
            rows = gradient.repeat(len(parameter), 1)
            parameter.grad = rows if contiguous else rows.T.contiguous().T
        optimizer.step()
    for parameter in (long, *many):
        assert torch.equal(parameter, short.detach().expand_as(parameter))


def test_blocks_hold_every_number_once() -> None:
    sizes = [5, 400_000, 0, 100_000, 60_000, 131_072, 1]
    tensors = [torch.arange(size) + 10**6 * k for k, size in enumerate(sizes)]
    blocks = list(cache_blocks(tensors, [tensor.clone() for tensor in tensors]))
    assert all(torch.equal(a, b) for block in blocks for a, b in zip(*block, strict=True))
    assert max(sum(tensor.numel() for tensor in block[0]) for block in blocks) <= 131_072
    found = torch.cat([tensor for block in blocks for tensor in block[0]])
    assert torch.equal(found.sort().values, torch.cat(tensors).sort().values)
