"""YellowFin against its published formula written out slowly, its cubic, and a quadratic."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import DivergenceError
from bayeswell.optimizers import (
    YellowFin,
    YellowFinOptimizer,
    momentum_root,
)
from optimizers.steps import (
    SHAPES,
    STEPS,
    Numbers,
    assert_equal_states,
    assert_same,
    gradient_sequence,
    numbers,
    parameters,
    run,
)


class SlowYellowFin:
    """The authors' tuner and SGD, number by number; ``published`` has the epsilon in their cubic."""

    def __init__(self, weights: Numbers, lr: float, momentum: float, beta: float, width: int, published: bool) -> None:
        self.w, self.lr, self.mu, self.beta, self.width = list(weights), lr, momentum, beta, width
        self.published = published
        self.iteration, self.h_min, self.h_max = 0, math.nan, math.nan
        self.g2 = self.gn = self.dist = self.log_min = self.log_max = 0.0
        self.gbar, self.buffer = [0.0] * len(weights), [0.0] * len(weights)
        self.window: Numbers = []
        self.events: set[str] = set()

    def clip(self, gradient: Numbers, largest: float, event: str) -> Numbers:
        coefficient = largest / (math.sqrt(math.fsum(g * g for g in gradient)) + 1e-6)
        if coefficient >= 1:
            return gradient
        self.events.add(event)
        return [coefficient * g for g in gradient]

    def step(self, gradient: Numbers, factors: Numbers, decays: Numbers) -> None:
        eps, beta, i = 1e-6, self.beta, self.iteration
        g = [x + decay * w for x, decay, w in zip(gradient, decays, self.w, strict=True)]
        if i > 1:
            g = self.clip(g, math.sqrt(100 * self.h_max) + eps, "protect")
        n2 = math.fsum(x * x for x in g)
        exploding, target = (n2 >= self.h_max, math.sqrt(self.h_max) + eps) if i >= 1 else (False, 0.0)
        debias = 1 - beta ** (i + 1)
        self.g2 = beta * self.g2 + (1 - beta) * n2
        self.window = [*self.window, n2][-self.width :]
        self.log_min = beta * self.log_min + (1 - beta) * min(math.log(h + eps) for h in self.window)
        self.log_max = beta * self.log_max + (1 - beta) * max(math.log(h + eps) for h in self.window)
        self.h_min, self.h_max = math.exp(self.log_min / debias), math.exp(self.log_max / debias)
        self.gbar = [beta * a + (1 - beta) * x for a, x in zip(self.gbar, g, strict=True)]
        variance = max(self.g2 / debias - math.fsum(a * a for a in self.gbar) / debias**2, eps)
        self.gn = beta * self.gn + (1 - beta) * math.sqrt(n2)
        self.dist = beta * self.dist + (1 - beta) * self.gn / (self.g2 + eps)
        if i > 0:
            p = (self.dist / debias + eps) ** 2 * (self.h_min + eps) ** 2 / 2 / (variance + eps)
            w3 = (-math.sqrt(p**2 + 4 / 27 * p**3) - p) / 2
            w = math.copysign(abs(w3) ** (1 / 3), w3)
            x = w - p / 3 / (w + eps if self.published else w) + 1
            ratio = math.sqrt(max((self.h_max + eps) / (self.h_min + eps), 1 + eps))
            robust = ((ratio - 1) / (ratio + 1)) ** 2
            self.events.add("cubic" if x**2 > robust else "robust")
            self.mu = max(x**2, robust)
            self.lr = (1 - math.sqrt(self.mu)) ** 2 / (self.h_min + eps)
            if i + 1 < 10 * self.width:
                self.events.add("slow start")
                self.lr *= (i + 1) / (10 * self.width)
            else:
                self.events.add("started")
        if exploding:
            g = self.clip(g, target, "explosion")
        for k, factor in enumerate(factors):
            rate = self.lr * factor
            if rate * math.sqrt(n2) >= 100:
                self.events.add("cap")
                rate = 100 / math.sqrt(n2 + eps)
            if self.mu:
                self.buffer[k] = self.mu * self.buffer[k] + g[k]
            self.w[k] -= rate * (self.buffer[k] if self.mu else g[k])
        self.iteration += 1


@pytest.mark.parametrize(
    ("lr", "momentum", "scale", "published", "tolerance"),
    [
        (0.01, 0.0, 0.001, False, 1e-12),
        (0.001, 0.4, 1.0, False, 1e-12),
        (90.0, 0.4, 1e-4, False, 1e-12),
        (0.001, 0.4, 1.0, True, 1e-5),
        (0.01, 0.0, 0.001, True, 1e-5),
    ],
)
def test_yellowfin_agrees_with_the_published_formula(
    lr: float, momentum: float, scale: float, published: bool, tolerance: float
) -> None:
    # Two groups with rates and decays of their own, and a schedule on both from step 100. The spike in the second
    # step comes before the statistics are protected, the others after.
    gradients, params = gradient_sequence(STEPS, spikes=(1, 60, 61, 200)), parameters()
    groups = [{"params": params[:2], "weight_decay": 0.003}, {"params": params[2:], "lr": 3 * lr}]
    optimizer = YellowFinOptimizer(groups, lr=lr, momentum=momentum, beta=0.98, window=15)
    slow = SlowYellowFin(numbers(params), lr, momentum, 0.98, 15, published)
    for t, step in enumerate(gradients):
        schedule = 1.0 if t < 100 else 0.3
        for group, factor in zip(optimizer.param_groups, (1, 3), strict=True):
            group["lr"] = lr * factor * schedule
        run(optimizer, params, [[scale * gradient for gradient in step]])
        factors = [schedule] * 10 + [3 * schedule]
        slow.step([scale * g for g in numbers(step)], factors, [0.003] * 10 + [0.0])
        assert_same(numbers(params), slow.w, tolerance)
        if t:
            assert optimizer.tuned is not None
            np.testing.assert_allclose(optimizer.tuned, (slow.lr, slow.mu), rtol=tolerance, atol=0.1 * tolerance)
    assert {"protect", "explosion", "slow start", "started"} <= slow.events
    assert ("cap" in slow.events) == (lr == 90)


@pytest.mark.parametrize(("noise", "event"), [(1.0, "cubic"), (0.0, "robust")])
def test_both_bounds_of_the_momentum_are_met(noise: float, event: str) -> None:
    # A noisy gradient leaves it to the cubic; one that keeps its direction and grows, to the range of curvatures.
    params = parameters()
    optimizer = YellowFinOptimizer(params, beta=0.3)
    slow = SlowYellowFin(numbers(params), 1e-4, 0.0, 0.3, 20, False)
    generator = torch.Generator().manual_seed(8)
    for t in range(40):
        step = [1 + noise * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
        step = [9 * 1.1**t * gradient for gradient in step]
        run(optimizer, params, [step])
        slow.events.clear()
        slow.step(numbers(step), [1.0] * 11, [0.0] * 11)
        assert_same(numbers(params), slow.w)
        if t > 20:
            assert event in slow.events


@pytest.mark.parametrize(
    ("distance", "variance", "curvature"),
    [(0.7, 2.3, 1.9), (3.1, 0.4, 5.0), (0.01, 30.0, 0.2), (11.0, 1e-3, 7.0), (1e-3, 2.0, 0.03)],
)
def test_the_cubic_is_the_minimiser(distance: float, variance: float, curvature: float) -> None:
    def loss(x: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return x**2 * distance**2 + (1 - x) ** 4 * variance / curvature**2

    low, high = 0.0, 1.0
    for _ in range(4):  # each grid lies around the best point of the one before
        grid = np.linspace(low, high, 2001)
        best, width = grid[np.argmin(loss(grid))], grid[1] - grid[0]
        low, high = max(0.0, best - width), min(1.0, best + width)
    root = momentum_root(distance**2 * curvature**2 / (2 * variance))
    assert abs(root - best) < 1e-7  # where the loss is flat to rounding


def test_the_cubic_in_its_limits() -> None:
    for p in 10.0 ** np.arange(-30, 31, 3):
        x = momentum_root(float(p))
        y = x - 1
        assert 0 < x < 1
        assert abs(y**3 + p * x) <= 1e-14 * max(1.0, p * x)  # y^3 + p y + p = 0
    # Noise-free: no momentum, x = 1/p. All noise: momentum one, 1 - x = p^(1/3).
    np.testing.assert_allclose(momentum_root(1e12), 1e-12, rtol=1e-9)
    np.testing.assert_allclose(1 - momentum_root(1e-12), 1e-4, rtol=1e-4)


def test_a_constant_gradient_is_noise_free() -> None:
    # h_max = h_min = |g|^2, C = its floor, D = 1/|g|: no momentum, and rate (t/200)/|g|^2, Newton's for D.
    parameter = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = YellowFinOptimizer([parameter], beta=0.9)
    gradient = torch.tensor([1.3, -4.0, 2.2], dtype=torch.float64)
    for t in range(1, 251):
        run(optimizer, [parameter], [[gradient]])
        if t == 1:
            assert optimizer.tuned is None
            continue
        assert optimizer.tuned is not None
        rate, momentum = optimizer.tuned
        squared = float(gradient.square().sum())
        np.testing.assert_allclose(rate, min(1, t / 200) / squared, rtol=1e-5)
        assert momentum < 1e-10
    statistics = optimizer.statistics
    np.testing.assert_allclose(statistics.curvatures(0.9), (squared, squared), rtol=1e-6)
    assert statistics.variance == 1e-6


def test_yellowfin_finds_its_way_down_a_quadratic() -> None:
    curvatures = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64)
    parameter = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = YellowFinOptimizer([parameter], lr=0.01)
    generator = torch.Generator().manual_seed(3)
    losses = []
    for _ in range(800):
        noise = 0.05 * torch.randn(3, generator=generator, dtype=torch.float64)
        parameter.grad = curvatures * parameter.detach() + noise
        losses.append(float((curvatures * parameter.detach().square()).sum() / 2))
        optimizer.step()
    assert np.mean(losses[-100:]) < 0.01 * losses[0]


def test_a_gradient_that_is_not_finite_is_refused_whole() -> None:
    params, gradients = parameters(), gradient_sequence(5)
    optimizer = YellowFin().build([{"params": params}])
    run(optimizer, params, gradients)
    before, state = numbers(params), copy.deepcopy(optimizer.state_dict())
    params[1].grad = torch.full_like(params[1], math.inf)
    with pytest.raises(DivergenceError, match=r"yellowfin: step 5: the gradient's norm is inf; no step was taken"):
        optimizer.step()
    assert numbers(params) == before
    assert_equal_states(optimizer.state_dict(), state)
