"""Optimizers, parameter groups and learning rates, each against its equation written out slowly in plain Python."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.errors import DataError, DivergenceError, NetworkError, SettingError
from bayeswell.optimizers import (
    MEANS,
    OPTIMIZERS,
    RATES,
    STDS,
    AdaBound,
    AdaBoundOptimizer,
    Adam,
    Alternating,
    AMSBound,
    Constant,
    Cosine,
    Cyclic,
    Plateau,
    PlateauState,
    RAdam,
    StepDecay,
    WarmUp,
    YellowFin,
    YellowFinOptimizer,
    hold_inactive,
    least_robust_momentum,
    means_by_nll_stds_by_kl,
    momentum_operator_radius,
    momentum_root,
    outside_robust_region,
    parameter_groups,
    rate_bounds,
    reachable_log_std,
    robust_region,
    set_rates,
    stds_out_of_reach,
)
from bayeswell.optimizers.stepping import cache_blocks
from bayeswell.registry import settings_of
from bayeswell.types import Progress
from nets import generic, lift

STEPS = 300
SHAPES = ((2, 3), (4,), ())
SIZES = (6, 4, 1)
# The parts that this file is about: torch optimizers that need nothing but groups of parameters.
NAMES = ["sgd", "adam", "amsgrad", "adamw", "radam", "adabound", "amsbound", "yellowfin"]

Numbers = list[float]


def gradient_sequence(steps: int, spikes: Sequence[int] = (), seed: int = 4) -> list[list[Tensor]]:
    """Gradients of three parameters whose sizes differ by 10^7 between weights and drift along the run."""
    generator = torch.Generator().manual_seed(seed)
    scales = [10.0 ** (4 - 7 * torch.rand(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]
    return [
        [
            scale * (0.4 + torch.randn(shape, generator=generator, dtype=torch.float64))
            * math.exp(math.sin(t / 25)) * (200.0 if t in spikes else 1.0)
            for shape, scale in zip(SHAPES, scales, strict=True)
        ]
        for t in range(steps)
    ]  # fmt: skip


def parameters(seed: int = 5) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]


def numbers(tensors: Sequence[Tensor]) -> Numbers:
    return [float(value) for tensor in tensors for value in tensor.detach().reshape(-1)]


def assert_same(found: Sequence[float], expected: Sequence[float], tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(map(abs, expected)))


def run(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], gradients: list[list[Tensor]]) -> Numbers:
    for step in gradients:
        for parameter, gradient in zip(params, step, strict=True):
            parameter.grad = gradient.to(parameter).clone()
        optimizer.step()
    return numbers(params)


# ---------------------------------------------------------------------------------------------------------
# AdaBound and AMSBound


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


# ---------------------------------------------------------------------------------------------------------
# YellowFin


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


# ---------------------------------------------------------------------------------------------------------
# torch's own


@pytest.mark.parametrize(("beta2", "first"), [(0.999, 6), (0.9, 6), (0.8, 7), (0.75, 8)])
def test_radam_rectifies_from_its_threshold_on(beta2: float, first: int) -> None:
    # torch: rho_t > 5, and below it lr m^ (plain steps on the debiased average).
    w, lr, beta1 = 0.3, 0.02, 0.8
    parameter = nn.Parameter(torch.tensor([w], dtype=torch.float64))
    optimizer = RAdam(lr=lr, betas=(beta1, beta2)).build([{"params": [parameter]}])
    m = v = 0.0
    rectified = []
    rho_inf = 2 / (1 - beta2) - 1
    for t in range(1, 13):
        g = math.sin(3.0 * t) + 0.2
        parameter.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        step = lr * m / (1 - beta1**t)
        if rho > 5:
            rectified.append(t)
            step *= math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            step *= math.sqrt(1 - beta2**t) / (math.sqrt(v) + 1e-8)
        w -= step
        np.testing.assert_allclose(parameter.item(), w, rtol=1e-10)
    assert rectified[0] == first


def test_amsgrad_debiases_after_the_maximum() -> None:
    params, gradients = parameters(), gradient_sequence(30, spikes=(4,))
    start = numbers(params)
    found = run(OPTIMIZERS.resolve({"name": "amsgrad", "lr": 0.02}).build([{"params": params}]), params, gradients)
    for w, history, end in zip(start, zip(*map(numbers, gradients), strict=True), found, strict=True):
        m = v = v_max = 0.0
        for t, g in enumerate(history, 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            v_max = max(v_max, v)
            w -= 0.02 * m / (1 - 0.9**t) / (math.sqrt(v_max / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(end, w, rtol=1e-9)


def test_parts_become_the_torch_optimizers_they_name() -> None:
    params = parameters()
    classes = {
        "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "amsgrad": torch.optim.Adam, "adamw": torch.optim.AdamW,
        "radam": torch.optim.RAdam, "adabound": AdaBoundOptimizer, "amsbound": AdaBoundOptimizer,
        "yellowfin": YellowFinOptimizer,
    }  # fmt: skip
    for name in NAMES:
        part = OPTIMIZERS[name](lr=0.037)
        given = [{"params": params[:1], "name": "a"}, {"params": params[1:], "lr": 0.5, "name": "b"}]
        optimizer = part.build(given)
        assert type(optimizer) is classes[name]
        assert [group["lr"] for group in optimizer.param_groups] == [0.037, 0.5]
        assert [group["name"] for group in optimizer.param_groups] == ["a", "b"]
        assert given == [{"params": params[:1], "name": "a"}, {"params": params[1:], "lr": 0.5, "name": "b"}]
        if name in ("sgd", "adam", "amsgrad", "adamw"):
            assert all(group["fused"] is True for group in optimizer.param_groups)
        assert optimizer.param_groups[0].get("amsgrad", False) == (name == "amsgrad")
        assert optimizer.param_groups[0].get("amsbound", False) == (name == "amsbound")
    # A generator of parameters, or a single one, is as good as a list.
    net = nn.Linear(2, 2)
    assert len(Adam().build([{"params": net.parameters()}]).param_groups[0]["params"]) == 2
    assert len(Adam().build([{"params": net.weight}]).param_groups[0]["params"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_parts_survive_json(name: str) -> None:
    part = OPTIMIZERS[name](lr=0.037, weight_decay=0.2)
    assert OPTIMIZERS.resolve(json.loads(json.dumps(settings_of(part)))) == part
    summary, paper = OPTIMIZERS.summaries()[name]
    assert summary.endswith(".")
    assert paper


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "adam", "lr": 0.0}, r"adam: lr = 0.0; it must be a finite number above 0"),
        ({"name": "adam", "betas": (0.9, 1.0)}, r"adam: betas = 1.0; it must lie in \[0, 1\)"),
        ({"name": "amsgrad", "betas": [0.9]}, r"amsgrad: betas = \[0.9\]; there must be two"),
        ({"name": "sgd", "momentum": -0.1}, r"sgd: momentum = -0.1; it must lie in"),
        ({"name": "sgd", "momentum": 0.0, "nesterov": True}, r"sgd: nesterov = True needs a momentum"),
        ({"name": "adabound", "final_lr": 0}, r"adabound: final_lr = 0; it must be a finite number above 0"),
        ({"name": "amsbound", "gamma": 1.0}, r"amsbound: gamma = 1.0; it must lie in"),
        ({"name": "adabound", "eps": math.nan}, r"adabound: eps = nan; it must be a finite number of at least 0"),
        ({"name": "yellowfin", "window": 0}, r"yellowfin: window = 0; it must be a whole number of at least 1"),
        ({"name": "yellowfin", "beta": 1.0}, r"yellowfin: beta = 1.0; it must lie in"),
        ({"name": "yellowfin", "weight_decay": -1}, r"yellowfin: weight_decay = -1; it must be a finite number"),
        ({"name": "adabond"}, r"unknown optimizer 'adabond'; did you mean 'adabound'\?"),
        ({"name": "adam", "final_lr": 0.1}, r"optimizer 'adam' has no setting 'final_lr'"),
    ],
)
def test_bad_settings_are_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        OPTIMIZERS.resolve(choice)


def test_bad_settings_of_a_group_are_refused() -> None:
    params = parameters()
    with pytest.raises(SettingError, match=r"adabound: lr = -1; "):
        AdaBound().build([{"params": params, "lr": -1}])
    with pytest.raises(SettingError, match=r"yellowfin: beta = 0.5 in one group, 0.999 in another"):
        YellowFin().build([{"params": params[:1]}, {"params": params[1:], "beta": 0.5}])
    optimizer = AdaBoundOptimizer(params[:1])
    with pytest.raises(SettingError, match=r"adabound: gamma = 2"):
        optimizer.add_param_group({"params": params[1:], "gamma": 2})
    assert len(optimizer.param_groups) == 1


# ---------------------------------------------------------------------------------------------------------
# Compiled formulas and torch's operations

compiled = pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")


def both_ways(name: str, steps: int = 14) -> list[tuple[list[nn.Parameter], torch.optim.Optimizer]]:
    """The same run compiled and by torch's operations, in float32: long and short tensors, two groups, all layouts.

    One convolution's weights lie in memory with channels last, one gradient is a transposed one. Sizes of gradients
    differ by 10^3 and the fifth and ninth are spikes, so that every bound and clip of the formulas is met.
    """
    shapes = [(300, 131), (7,), (1,), (6, 5, 3, 3), (40, 30)]
    generator = torch.Generator().manual_seed(11)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    scales = [10.0 ** -(3 * torch.rand(shape, generator=generator)) for shape in shapes]
    gradients = [
        [
            0.02 * scale * (0.4 + torch.randn(shape, generator=generator)) * {4: 300.0, 8: 9.0}.get(t, 1.0)
            for shape, scale in zip(shapes, scales, strict=True)
        ]
        for t in range(steps)
    ]

    def finish() -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        values = [tensor.clone() for tensor in start]
        values[3] = values[3].to(memory_format=torch.channels_last)
        params = [nn.Parameter(tensor) for tensor in values]
        settings = {"gamma": 0.06, "final_lr": 0.02} if name != "yellowfin" else {"beta": 0.9, "window": 2}
        groups = [{"params": params[:2], "lr": 0.02, "weight_decay": 0.03}, {"params": params[2:], "lr": 0.005}]
        optimizer = OPTIMIZERS[name](lr=0.005, **settings).build(groups)
        for row in gradients:
            for parameter, gradient in zip(params, row, strict=True):
                parameter.grad = gradient.to(memory_format=torch.channels_last) if gradient.dim() == 4 else gradient
            params[4].grad = gradients[0][4].T.contiguous().T
            optimizer.step()
        return params, optimizer

    with native.disabled():
        eager = finish()
    return [finish(), eager]


@compiled
@pytest.mark.parametrize("name", ["adabound", "amsbound", "yellowfin"])
def test_compiled_steps_are_those_of_torch(name: str) -> None:
    (params, optimizer), (others, other) = both_ways(name)
    moved = 0.0
    for index, (parameter, expected) in enumerate(zip(params, others, strict=True)):
        # Rounding: 14 steps of some ten roundings each; the tuner of YellowFin takes differences of close numbers.
        close = {"rtol": 1e-4 if name == "yellowfin" else 5e-6, "atol": 2e-6, "msg": f"parameter {index}"}
        torch.testing.assert_close(parameter, expected, **close)
        state, other_state = optimizer.state[parameter], other.state[expected]
        assert state.keys() == other_state.keys()
        for key, value in state.items():
            if isinstance(value, Tensor):
                scale = float(other_state[key].abs().max())
                assert scale > 0
                torch.testing.assert_close(value, other_state[key], rtol=1e-4, atol=1e-6 * scale, msg=key)
                moved = max(moved, scale)
            else:
                assert value == other_state[key]
    assert moved > 0.01


@compiled
def test_compiled_and_other_parameters_share_the_statistics_of_yellowfin() -> None:
    (_, optimizer), (_, other) = both_ways("yellowfin")
    for key, value in vars(optimizer.statistics).items():  # type: ignore[attr-defined]
        np.testing.assert_allclose(value, getattr(other.statistics, key), rtol=2e-5, err_msg=key)  # type: ignore[attr-defined]


@compiled
@pytest.mark.parametrize("name", ["adabound", "yellowfin"])
def test_autograd_knows_of_compiled_steps(name: str) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS[name]().build([{"params": [weights]}])
    stale = weights.square().sum()
    weights.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


@compiled
def test_a_refused_step_leaves_no_state_behind() -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = YellowFin().build([{"params": [weights]}])
    weights.grad = torch.tensor([1.0, math.nan, 1.0])
    with pytest.raises(DivergenceError, match="the gradient's norm is nan"):
        optimizer.step()
    assert not optimizer.state_dict()["state"]
    assert torch.equal(weights.detach(), torch.ones(3))


# ---------------------------------------------------------------------------------------------------------
# What every optimizer owes


def assert_equal_states(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for key, state in expected["state"].items():
        assert state.keys() == found["state"][key].keys()
        for name, value in state.items():
            other = found["state"][key][name]
            assert torch.equal(other, value) if isinstance(value, Tensor) else other == value, (key, name)


def as_saved(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict after a file of tensors and one of JSON."""

    def plain(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else json.loads(json.dumps(value))

    states = {key: {name: plain(value) for name, value in one.items()} for key, one in state["state"].items()}
    return {"state": states, "param_groups": plain(state["param_groups"])}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_continues_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    # Saved after 30 steps, during a schedule, and loaded into an optimizer that was made with other settings.
    gradients = [[1e-3 * g for g in step] for step in gradient_sequence(60, spikes=(10, 40))]
    params = [nn.Parameter(parameter.detach().to(dtype)) for parameter in parameters()]
    part = OPTIMIZERS[name](lr=0.02)
    optimizer = part.build([{"params": params[:1], "lr": 0.07, "name": "a"}, {"params": params[1:], "name": "b"}])
    run(optimizer, params, gradients[:20])
    for group in optimizer.param_groups:
        group["lr"] *= 0.3
    run(optimizer, params, gradients[20:30])
    saved, copies = optimizer.state_dict(), [nn.Parameter(parameter.detach().clone()) for parameter in params]
    kept, as_it_was = as_saved(saved), copy.deepcopy(saved)
    other = OPTIMIZERS[name](lr=0.9, weight_decay=0.5).build([{"params": copies[:1]}, {"params": copies[1:]}])
    other.load_state_dict(kept)
    expected = run(optimizer, params, gradients[30:])
    assert run(other, copies, gradients[30:]) == expected
    assert expected != numbers(parameters())
    # Plain numbers in a state dict taken earlier do not change with later steps.
    assert saved["param_groups"] == as_it_was["param_groups"]
    # An optimizer that was itself copied goes on as well.
    assert_equal_states(copy.deepcopy(other).state_dict(), other.state_dict())


def test_step_counts_are_exact() -> None:
    # float32, in which torch counts, has no odd numbers beyond 2^24.
    parameter = nn.Parameter(torch.ones(2))
    optimizer = AdaBoundOptimizer([parameter])
    run(optimizer, [parameter], [[torch.ones(2)]])
    optimizer.state[parameter]["step"] = 2**24
    optimizer.load_state_dict(as_saved(optimizer.state_dict()))
    run(optimizer, [parameter], [[torch.ones(2)]])
    assert optimizer.state[parameter]["step"] == 2**24 + 1


@pytest.mark.parametrize("make", [AdaBoundOptimizer, YellowFinOptimizer])
def test_sparse_and_complex_gradients_are_refused_before_anything_moves(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    first, embedding = nn.Parameter(torch.ones(2)), nn.Embedding(4, 3, sparse=True)
    optimizer = make([first, embedding.weight])
    first.grad = torch.ones(2)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(NetworkError, match=r"the parameter of shape \(4, 3\) has a sparse gradient; only dense"):
        optimizer.step()
    assert torch.equal(first, torch.ones(2))
    assert not optimizer.state
    wave = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = make([wave])
    wave.grad = torch.ones_like(wave)
    with pytest.raises(NetworkError, match=r"shape \(2,\) has a complex gradient \(torch.complex64\); only real"):
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_parameters_without_gradient_and_empty_ones_are_left_alone(name: str) -> None:
    params, empty = parameters(), nn.Parameter(torch.zeros(0, dtype=torch.float64))
    optimizer = OPTIMIZERS[name](lr=0.01).build([{"params": [*params, empty]}])
    before = params[1].detach().clone()
    for step in gradient_sequence(4):
        params[0].grad, params[2].grad, empty.grad = step[0].clone(), step[2].clone(), torch.zeros_like(empty)
        optimizer.step()
    assert torch.equal(params[1], before)
    assert not optimizer.state.get(params[1])
    assert not torch.equal(params[0], parameters()[0])


@pytest.mark.parametrize("name", ["adabound", "yellowfin"])
def test_a_step_without_any_gradient_does_nothing(name: str) -> None:
    params = parameters()
    optimizer = OPTIMIZERS[name]().build([{"params": params}])
    before = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    assert numbers(params) == numbers(parameters())
    assert_equal_states(optimizer.state_dict(), before)


@pytest.mark.parametrize("make", [AdaBoundOptimizer, YellowFinOptimizer])
def test_the_closure_is_evaluated_with_gradients(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    parameter = nn.Parameter(torch.tensor([2.0]))
    optimizer = make([parameter])

    def closure() -> float:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 4.0
    assert parameter.item() < 2.0


@pytest.mark.parametrize("name", NAMES)
def test_torch_schedulers_work(name: str) -> None:
    params = parameters()
    optimizer = OPTIMIZERS[name](lr=0.04).build([{"params": params}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in gradient_sequence(5):
        run(optimizer, params, [step])
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.01


# ---------------------------------------------------------------------------------------------------------
# Groups

POSTERIORS = ["mean_field", {"name": "mean_field", "parameter": "rho"}, "k_tied", "low_rank", "matrix_normal", "full"]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_means_and_stds_are_told_apart(posterior: Any) -> None:
    model, noise = lift(net(), posterior), bw.Gaussian(noise="learned")
    means, noises, stds = parameter_groups(model, 0.02, std_multiplier=7.0, extra=noise.parameters())
    assert (means["name"], means["lr"]) == (MEANS, 0.02)
    assert (stds["name"], stds["lr"]) == (STDS, 0.14)
    assert (noises["name"], noises["lr"], noises["params"]) == ("noise", 0.14, [noise.log_std])
    names = {id(value): key for key, value in model.named_parameters()}
    found = {group["name"]: [names[id(value)] for value in group["params"]] for group in (means, stds)}
    assert set(found[MEANS]) == {"posterior.mean", "net.1.weight", "net.1.bias"}
    assert set(found[MEANS]) | set(found[STDS]) == set(names.values())
    assert len(found[MEANS]) + len(found[STDS]) == len(names)
    # The means are what E[w] depends on, the stds what only the spread does.
    with torch.no_grad():
        before = model.posterior.mean_vector().clone(), model.posterior.std_vector().clone()
        for value in stds["params"]:
            value.add_(0.3)
    assert torch.equal(model.posterior.mean_vector(), before[0])
    assert not torch.equal(model.posterior.std_vector(), before[1])


def test_a_network_without_stds_has_one_group() -> None:
    for model in (lift(net(), "delta"), net()):
        (group,) = parameter_groups(model, 0.02, extra=[next(model.parameters())])
        assert group["name"] == MEANS
        assert [id(value) for value in group["params"]] == [id(value) for value in model.parameters()]
        with pytest.raises(SettingError, match=r"std_multiplier = 3.0 has no use: the network has no stds"):
            parameter_groups(model, 0.02, std_multiplier=3.0)
    with pytest.raises(SettingError, match="std_multiplier = 0; it must be a finite number above 0"):
        parameter_groups(lift(net()), 0.02, std_multiplier=0)


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_spares_the_stds(name: str) -> None:
    model = generic(net())
    optimizer = OPTIMIZERS[name](lr=0.01, weight_decay=0.3).build(parameter_groups(model, 0.01))
    log_std = model.posterior.log_std.detach().clone()
    mean = model.posterior.mean.detach().clone()
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    assert torch.equal(model.posterior.log_std, log_std)
    assert not torch.equal(model.posterior.mean, mean)


def test_group_rates_reach_the_parameters() -> None:
    # Adam's first step is lr times the sign of the gradient.
    model = generic(net())
    before = model.posterior.mean.detach().clone(), model.posterior.log_std.detach().clone()
    optimizer = Adam(lr=0.01).build(parameter_groups(model, 0.01, std_multiplier=10.0))
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    optimizer.step()
    torch.testing.assert_close(before[0] - model.posterior.mean, torch.full_like(before[0], 0.01), rtol=1e-6, atol=0)
    torch.testing.assert_close(before[1] - model.posterior.log_std, torch.full_like(before[1], 0.1), rtol=1e-6, atol=0)


def test_set_rates() -> None:
    optimizer = AdaBound(lr=0.01).build(parameter_groups(lift(net()), 0.01, std_multiplier=10.0))
    for _ in range(2):  # of the rates at the start, not of the present ones
        set_rates(optimizer, 0.5)
        assert [group["lr"] for group in optimizer.param_groups] == [0.005, 0.05]
    set_rates(optimizer, {STDS: 0.25})
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.025]
    with pytest.raises(SettingError, match=r"no parameter group 'std'; did you mean 'stds'\? allowed: means, stds"):
        set_rates(optimizer, {"std": 0.25})


def test_alternating_takes_turns() -> None:
    turns = [Alternating(3).active(epoch) for epoch in range(13)]
    assert turns == [frozenset({MEANS})] * 3 + [frozenset({STDS})] * 3 + [frozenset({MEANS})] * 3 + [
        frozenset({STDS})
    ] * 3 + [frozenset({MEANS})]
    with pytest.raises(SettingError, match="alternating: epochs = 0"):
        Alternating(0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "yellowfin"])
def test_a_held_group_goes_on_where_it_was(name: str) -> None:
    # Steps 10 to 19 hold group b, weight decay and all: afterwards b is as if they had never been.
    gradients = gradient_sequence(30)
    groups = [("a", slice(0, 1)), ("b", slice(1, 3))]

    def train(steps: Iterator[int] | range, hold: range) -> list[Tensor]:
        params = parameters()
        part = OPTIMIZERS[name](lr=0.01, weight_decay=0.1)
        optimizer = part.build([{"params": params[piece], "name": label} for label, piece in groups])
        for t in steps:
            for parameter, gradient in zip(params, gradients[t], strict=True):
                parameter.grad = gradient.clone()
            hold_inactive(optimizer, {"a"} if t in hold else {"a", "b"})
            before = copy.deepcopy(optimizer.state_dict()["state"]), numbers(params[1:])
            optimizer.step()
            if t in hold:
                assert numbers(params[1:]) == before[1]
                for key in (1, 2):
                    for kept, now in zip(
                        before[0].get(key, {}).values(), optimizer.state_dict()["state"].get(key, {}).values(),
                        strict=True,
                    ):  # fmt: skip
                        assert torch.equal(torch.as_tensor(kept), torch.as_tensor(now))
        return [parameter.detach() for parameter in params]

    held = train(range(30), range(10, 20))
    never = train(iter([*range(10), *range(20, 30)]), range(0))
    assert torch.equal(held[1], never[1])
    assert torch.equal(held[2], never[2])
    assert not torch.equal(held[0], never[0])


def test_holding_a_group_that_is_not_there_is_refused() -> None:
    optimizer = Adam().build([{"params": parameters(), "name": "means"}])
    with pytest.raises(SettingError, match="the optimizer has no parameter group 'stds'; allowed: means"):
        hold_inactive(optimizer, Alternating().active(1))


# ---------------------------------------------------------------------------------------------------------
# Rates


def factors(rate: Any, total: int, steps: int | None = None) -> list[float]:
    return [rate.factor(Progress(step, total)) for step in range(total if steps is None else steps)]


def torch_factors(make: Callable[[torch.optim.Optimizer], Any], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler, found = make(optimizer), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_rates_agree_with_torch() -> None:
    schedulers = torch.optim.lr_scheduler
    pairs: list[tuple[Any, Callable[[torch.optim.Optimizer], Any]]] = [
        (Constant(), lambda o: schedulers.ConstantLR(o, factor=1.0)),
        (StepDecay((0.5, 0.7), 0.3), lambda o: schedulers.MultiStepLR(o, [20, 28], 0.3)),
        (Cosine(final=0.1), lambda o: schedulers.CosineAnnealingLR(o, 40, 0.1)),
        (Cyclic(4, low=0.2), lambda o: schedulers.CosineAnnealingWarmRestarts(o, 10, eta_min=0.2)),
        (
            Cyclic(4, low=0.2, shape="triangular"),
            lambda o: schedulers.CyclicLR(o, 0.2, 1.0, step_size_up=5, cycle_momentum=False),
        ),
        (WarmUp(0.25), lambda o: schedulers.LambdaLR(o, lambda t: min(1.0, (t + 1) / 10))),
    ]
    for rate, scheduler in pairs:
        np.testing.assert_allclose(factors(rate, 40), torch_factors(scheduler, 40), rtol=1e-9, atol=1e-12)
    assert {rate.name for rate, _ in pairs} == set(RATES)


def test_step_decay_falls_at_the_very_step() -> None:
    # 0.55 x 100 and the like are not whole in floating point.
    for total in (7, 100, 300):
        for percent in range(101):
            first = -(-percent * total // 100)
            rate = StepDecay((percent / 100,), 0.5)
            assert rate.factor(Progress(first, total)) == 0.5, (total, percent)
            assert first == 0 or rate.factor(Progress(first - 1, total)) == 1.0, (total, percent)


def test_uneven_cycles_are_those_of_cyclical_sgld() -> None:
    # eq. (1) of Zhang et al. 2020: (cos(pi mod(k - 1, ceil(K/M)) / ceil(K/M)) + 1) / 2, k from 1.
    total, cycles = 50, 7
    length = math.ceil(total / cycles)
    expected = [(math.cos(math.pi * ((k - 1) % length) / length) + 1) / 2 for k in range(1, total + 1)]
    np.testing.assert_allclose(factors(Cyclic(cycles), total), expected, rtol=1e-12)


def test_warm_up_multiplies_what_comes_after() -> None:
    rate = RATES.resolve({"name": "warm_up", "fraction": 0.3, "after": {"name": "cosine", "final": 0.1}})
    climb = [min(1.0, (t + 1) / 6) for t in range(20)]
    np.testing.assert_allclose(factors(rate, 20), np.multiply(climb, factors(Cosine(0.1), 20)), rtol=1e-12)


@pytest.mark.parametrize(
    "rate",
    [Constant(), StepDecay((0.2, 0.9), 0.5), Cosine(0.1), Cyclic(3, 0.2, "triangular"), WarmUp(0.2, "cosine")],
    ids=lambda rate: rate.name,
)
def test_rates_survive_json_and_stay_in_range(rate: Any) -> None:
    assert RATES.resolve(json.loads(json.dumps(settings_of(rate)))) == rate
    assert all(0 <= factor <= 1 for factor in factors(rate, 30, 60))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepDecay((0.5, 1.2)), r"step: fractions = 1.2; it must lie in \[0, 1\]"),
        (lambda: StepDecay(drop=0), r"step: drop = 0; it must be a finite number above 0"),
        (lambda: Cosine(-0.1), r"cosine: final = -0.1; it must lie in \[0, 1\]"),
        (lambda: Cyclic(0), r"cyclic: cycles = 0; it must be a whole number"),
        (lambda: Cyclic(shape="triangle"), r"cyclic: shape = 'triangle'; did you mean 'triangular'\?"),
        (lambda: WarmUp(0.0), r"warm_up: fraction = 0.0; it must lie in \(0, 1\]"),
        (lambda: WarmUp(after="cosin"), r"unknown rate 'cosin'; did you mean 'cosine'\?"),
        (lambda: Cosine().factor(Progress(3)), r"the rate 'cosine' needs the planned number of steps"),
    ],
)
def test_bad_rates_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


# ---------------------------------------------------------------------------------------------------------
# Plateau


def follow(plateau: Plateau, values: Sequence[float]) -> list[float]:
    state, found = PlateauState(), []
    for value in values:
        state = plateau.update(state, value)
        found.append(state.factor)
    return found


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_agrees_with_torch(patience: int) -> None:
    values = np.random.default_rng(6).gamma(2.0, size=200) * np.linspace(2, 1, 200)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.8, patience=patience, threshold=0.02, eps=0.0
    )
    expected = []
    for value in values:
        scheduler.step(float(value))
        expected.append(optimizer.param_groups[0]["lr"])
    found = follow(Plateau("nll", factor=0.8, patience=patience, threshold=0.02), [float(v) for v in values])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found[-1] < 0.1


def test_plateau_waits_for_its_patience_and_counts_anew() -> None:
    #                    first, better, worse, same: falls, worse, worse: falls, better, worse
    values = [3.0, 2.0, 2.5, 2.0, 2.2, 2.2, 1.9, 2.0]
    np.testing.assert_allclose(follow(Plateau("nll"), values), [1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01], rtol=1e-12)


def test_plateau_with_negative_values() -> None:
    # -9.9995 is worse than -10, though above -10 (1 - 1e-4), which torch would call better.
    assert follow(Plateau("nll", patience=0), [-10.0, -9.9995])[-1] == 0.1
    assert follow(Plateau("nll", patience=0), [-10.0, -10.01])[-1] == 1.0
    assert follow(Plateau("nll", patience=0), [-10.0, -10.0005])[-1] == 0.1  # better by less than the threshold


def test_plateau_has_a_floor_and_survives_json() -> None:
    plateau = Plateau("kl", factor=0.1, patience=0, minimum=0.03)
    np.testing.assert_allclose(follow(plateau, [1.0] * 5), [1, 0.1, 0.03, 0.03, 0.03], rtol=1e-12)
    state = PlateauState()
    for value in (3.0, 2.0, 2.0):
        saved = json.loads(json.dumps(state.state_dict()))
        state = plateau.update(state, value)
        assert plateau.update(PlateauState.from_state_dict(saved), value) == state
    with pytest.raises(DataError, match="plateau: the metric 'kl' is nan; it must be finite"):
        plateau.update(state, math.nan)
    with pytest.raises(SettingError, match="plateau: patience = -1"):
        Plateau("nll", patience=-1)
    with pytest.raises(SettingError, match="plateau: factor = 1"):
        Plateau("nll", factor=1)


def test_each_group_listens_to_its_own_metric() -> None:
    plateaus = means_by_nll_stds_by_kl()
    optimizer = Adam(lr=1e-3).build(parameter_groups(lift(net()), 1e-3))
    states = {name: PlateauState() for name in plateaus}
    for nll, kl in ((2.0, 50.0), (1.5, 51.0), (1.2, 52.0)):
        metrics = {"nll": nll, "kl": kl}
        states = {name: plateau.update(states[name], metrics[plateau.metric]) for name, plateau in plateaus.items()}
        set_rates(optimizer, {name: state.factor for name, state in states.items()})
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    np.testing.assert_allclose([rates[MEANS], rates[STDS]], [1e-3, 1e-4], rtol=1e-12)


# ---------------------------------------------------------------------------------------------------------
# Robust region


@pytest.mark.parametrize("momentum", [0.0, 0.2, 0.81, 0.99])
@pytest.mark.parametrize("curvature", [0.3, 7.0])
def test_inside_the_robust_region_errors_shrink_by_the_root_of_the_momentum(momentum: float, curvature: float) -> None:
    region = robust_region(momentum, curvature, curvature)
    for place in (0.0, 0.13, 0.5, 0.99):
        lr = region.lowest + place * (region.highest - region.lowest)
        operator = np.array([[1 + momentum - lr * curvature, -momentum], [1, 0]])
        radius = float(np.abs(np.linalg.eigvals(operator)).max())
        # At the edges the eigenvalues are double, and numpy finds them to the root of rounding.
        np.testing.assert_allclose(radius, math.sqrt(momentum), rtol=1e-6, atol=1e-6)
        # (The small number: at the edge itself the discriminant is zero up to rounding.)
        assert abs(momentum_operator_radius(lr, momentum, curvature) - math.sqrt(momentum)) < 1e-7
    for lr in (0.9 * region.lowest, 1.1 * region.highest):
        operator = np.array([[1 + momentum - lr * curvature, -momentum], [1, 0]])
        radius = float(np.abs(np.linalg.eigvals(operator)).max())
        np.testing.assert_allclose(momentum_operator_radius(lr, momentum, curvature), radius, rtol=1e-6)
        assert radius > math.sqrt(momentum) + 1e-3
        assert lr not in region


def test_torch_sgd_shrinks_errors_as_the_operator_says() -> None:
    # |w_t| over 200 steps for two curvatures of the range at one rate, and for a rate below the region.
    momentum, curvatures = 0.6, (1.0, 30.0)
    region = robust_region(momentum, *curvatures)
    inside = (region.lowest + region.highest) / 2
    assert inside in region
    for lr, curvature in ((inside, 1.0), (inside, 30.0), (0.2 * region.lowest, 1.0)):
        w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
        sgd, sizes = torch.optim.SGD([w], lr=lr, momentum=momentum), []
        for _ in range(400):
            w.grad = curvature * w.detach()
            before = w.item()
            sgd.step()
            sizes.append(math.hypot(before, w.item()))
        radius = momentum_operator_radius(lr, momentum, curvature)
        # The envelope oscillates by a bounded factor; over 300 steps that is less than 1.5 % of the rate.
        np.testing.assert_allclose((sizes[350] / sizes[50]) ** (1 / 300), radius, rtol=0.015)


def test_least_robust_momentum_is_where_the_region_opens() -> None:
    least = least_robust_momentum(0.4, 30.0)
    assert robust_region(0.99 * least, 0.4, 30.0).empty
    open_region = robust_region(1.01 * least, 0.4, 30.0)
    assert not open_region.empty
    edge = robust_region(least, 0.4, 30.0)
    np.testing.assert_allclose(edge.lowest, edge.highest, rtol=1e-9)
    assert robust_region(0.81, 2.0, 8.0) == robust_region(0.81, 2.0, 8.0)
    np.testing.assert_allclose(
        (robust_region(0.81, 2.0, 8.0).lowest, robust_region(0.81, 2.0, 8.0).highest), (0.1**2 / 2, 1.9**2 / 8)
    )


def test_advice_on_the_robust_region() -> None:
    assert outside_robust_region(0.2, 0.81, 2.0, 8.0) is None
    low = outside_robust_region(0.001, 0.81, 2.0, 8.0)
    assert low is not None
    assert low.startswith("sgd: lr 0.001 is slower than it need be for curvatures from 2 to 8 with momentum 0.81")
    assert low.endswith("robust are 0.005 to 0.451")
    high = outside_robust_region(0.5, 0.81, 2.0, 8.0)
    assert high is not None
    assert "lr 0.5 diverges" in high
    none = outside_robust_region(0.2, 0.1, 1.0, 400.0)
    assert none is not None
    assert none.endswith("with momentum 0.1; it takes at least 0.8186")
    with pytest.raises(SettingError, match=r"curvature_min = 3.0 exceeds curvature_max = 2.0"):
        robust_region(0.5, 3.0, 2.0)
    with pytest.raises(SettingError, match=r"robust_region: momentum = 1.0; it must lie in \[0, 1\)"):
        robust_region(1.0, 2.0, 3.0)


# ---------------------------------------------------------------------------------------------------------
# Reach of the stds


def test_adam_moves_a_log_std_by_the_rate_in_each_step() -> None:
    log_std = nn.Parameter(torch.tensor([-3.0, -3.0], dtype=torch.float64))
    optimizer = Adam(lr=0.02).build([{"params": [log_std]}])
    generator = torch.Generator().manual_seed(1)
    for _ in range(150):
        noise = torch.randn((), generator=generator, dtype=torch.float64)
        log_std.grad = torch.stack([torch.tensor(-0.3, dtype=torch.float64), -0.3 + noise])
        optimizer.step()
    steady, noisy = (log_std.detach() + 3).tolist()
    np.testing.assert_allclose(steady, reachable_log_std(0.02, 150), rtol=1e-5)
    assert noisy < 0.6 * reachable_log_std(0.02, 150)


def test_stds_out_of_reach() -> None:
    # Variational Laplace, section 5.1: 100 epochs of 50,000 / 128 steps at 1e-4 move by 3.9; the way is 3.
    steps = 100 * 50_000 / 128
    line = stds_out_of_reach(math.exp(-3), 1e-4, steps)
    assert line is not None
    assert line.startswith("the stds may not converge: they start at 0.0498 of the prior std, 3 away in log std, and ")
    assert line.endswith(
        "39062.5 steps at rate 0.0001 move them by about 3.91 at most: "
        "multiply the rate of the stds, or the steps, by 1.6"
    )
    assert stds_out_of_reach(math.exp(-3), 1.6e-4, steps) is None
    assert stds_out_of_reach(math.exp(-3), 1e-3, steps) is None  # their remedy: ten times the rate
    # The thesis: std 4.54e-5 under a prior of about 0.1, 50 epochs of 500 steps with stds at 1e-4.
    line = stds_out_of_reach(4.54e-5 / 0.1, 1e-4, 50 * 500)
    assert line is not None
    assert line.startswith("the stds cannot converge: ")
    assert "by about 2.5 at most" in line
    line = stds_out_of_reach(0.1, 0.0, 100)
    assert line is not None
    assert line.endswith("move them by about 0 at most")
    with pytest.raises(SettingError, match="std_ratio = 0; it must be a finite number above 0"):
        stds_out_of_reach(0, 1e-3, 100)
