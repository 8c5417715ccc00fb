"""YellowFin against its published formula number by number, its cubic, and a gradient that is not finite."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from bayeswell.core.errors import DivergenceError
from bayeswell.optim import YellowFin
from bayeswell.optim.yellowfin import YellowFinOptimizer, momentum_root
from optim.steps import Array, build, flat, gradient_sequence, parameters, run

BETA, WIDTH, EPS = 0.95, 6, 1e-6


class Reference:
    """The authors' tuner and SGD; the cubic is solved by ``numpy.roots``."""

    def __init__(self, w: Array, lr: float, decay: float) -> None:
        self.w, self.lr, self.mu, self.decay = w, lr, 0.0, decay
        self.t = 0
        self.h_max = math.nan
        self.g2 = self.gn = self.dist = self.log_min = self.log_max = 0.0
        self.gbar, self.buffer = np.zeros_like(w), np.zeros_like(w)
        self.window: list[float] = []
        self.events: set[str] = set()

    def clip(self, g: Array, largest: float, event: str) -> Array:
        factor = (math.sqrt(largest) + EPS) / (np.linalg.norm(g) + EPS)
        if factor < 1:
            self.events.add(event)
        return min(1.0, factor) * g

    def step(self, gradient: Array) -> None:
        g = gradient + self.decay * self.w
        if self.t > 1:
            g = self.clip(g, 100 * self.h_max, "protect")
        before, n2, debias = self.h_max, float(g @ g), 1 - BETA ** (self.t + 1)
        self.window = [*self.window, n2][-WIDTH:]
        self.g2 = BETA * self.g2 + (1 - BETA) * n2
        self.log_min = BETA * self.log_min + (1 - BETA) * math.log(min(self.window) + EPS)
        self.log_max = BETA * self.log_max + (1 - BETA) * math.log(max(self.window) + EPS)
        h_min, self.h_max = math.exp(self.log_min / debias), math.exp(self.log_max / debias)
        self.gbar = BETA * self.gbar + (1 - BETA) * g
        c = max(self.g2 / debias - float(self.gbar @ self.gbar) / debias**2, EPS)
        self.gn = BETA * self.gn + (1 - BETA) * math.sqrt(n2)
        self.dist = BETA * self.dist + (1 - BETA) * self.gn / (self.g2 + EPS)
        if self.t:
            p = (self.dist / debias + EPS) ** 2 * (h_min + EPS) ** 2 / (2 * (c + EPS))
            y = next(root.real for root in np.roots([1, 0, p, p]) if abs(root.imag) < 1e-9)
            condition = math.sqrt(max((self.h_max + EPS) / (h_min + EPS), 1 + EPS))
            self.mu = max((1 + y) ** 2, ((condition - 1) / (condition + 1)) ** 2)
            slow_start = min(1.0, (self.t + 1) / (10 * WIDTH))
            self.lr = slow_start * (1 - math.sqrt(self.mu)) ** 2 / (h_min + EPS)
            if n2 >= before:
                g = self.clip(g, before, "clip")
        lr = self.lr
        if lr * math.sqrt(n2) >= 100:
            self.events.add("move")
            lr = 100 / math.sqrt(n2 + EPS)
        if self.mu:
            self.buffer = self.mu * self.buffer + g
        self.w = self.w - lr * (self.buffer if self.mu else g)
        self.t += 1


@pytest.mark.parametrize(("lr", "scale", "move"), [(1e-4, 1.0, False), (1e4, 1e-4, True)])
def test_agrees_with_the_published_loop(lr: float, scale: float, move: bool) -> None:
    rows = gradient_sequence(150, spikes=(1, 40, 90))
    gradients = [[scale * gradient for gradient in row] for row in rows]
    params = parameters()
    reference = Reference(flat(params), lr, 1e-3)
    optimizer = build(YellowFin(lr=lr, beta=BETA, window=WIDTH, weight_decay=1e-3), params)
    assert isinstance(optimizer, YellowFinOptimizer)
    for row in gradients:
        reference.step(flat(row))
        run(optimizer, params, [row])
        if optimizer.statistics.steps > 1:
            assert optimizer.statistics.tuned(BETA, WIDTH) == pytest.approx((reference.lr, reference.mu), rel=1e-6)
    np.testing.assert_allclose(flat(params), reference.w, rtol=1e-5)
    assert reference.events == {"protect", "clip"} | ({"move"} if move else set())


@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.4, 1.0, 7.0, 1e4, 1e12])
def test_momentum_root_solves_the_cubic(p: float) -> None:
    """x minimizes x^2 D^2 + (1 - x)^4 C / h^2: p x = (1 - x)^3."""
    x = momentum_root(p)
    assert 0 < x < 1
    assert p * x == pytest.approx((1 - x) ** 3, rel=1e-6)


def test_a_group_moves_by_its_ratio_of_learning_rates() -> None:
    first, second = parameters(), parameters()
    groups = [{"params": first[:1], "lr": 1e-4}, {"params": first[1:], "lr": 3e-4}]
    optimizer = YellowFinOptimizer(groups, YellowFin())
    gradients = gradient_sequence(2)
    plain = YellowFinOptimizer([{"params": second}], YellowFin())
    run(optimizer, first, gradients[:1])
    run(plain, second, gradients[:1])
    before = flat(first), flat(second)
    run(optimizer, first, gradients[1:])
    run(plain, second, gradients[1:])
    ratios = (flat(first) - before[0]) / (flat(second) - before[1])
    np.testing.assert_allclose(ratios, [1.0] * 6 + [3.0] * 5, rtol=1e-3)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    params, gradients = parameters(), gradient_sequence(4)
    optimizer = build(YellowFin(), params)
    run(optimizer, params, gradients)
    state, weights = copy.deepcopy(optimizer.state_dict()), flat(params)
    params[1].grad = torch.full_like(params[1], math.inf)
    with pytest.raises(DivergenceError, match="step 4"):
        optimizer.step()
    np.testing.assert_array_equal(flat(params), weights)
    assert optimizer.state_dict()["param_groups"] == state["param_groups"]
