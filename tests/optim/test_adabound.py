"""AdaBound and AMSBound against the authors' formula, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.optim import AdaBound, Adam, AMSBound
from bayeswell.optim.adabound import lr_bounds
from optim.steps import Array, build, flat, gradient_sequence, parameters, run

SETTINGS = {"lr": 3e-3, "betas": (0.8, 0.95), "final_lr": 0.02, "gamma": 0.03, "eps": 1e-6, "weight_decay": 0.1}


def reference(w: Array, gradients: list[Array], amsbound: bool, factors: list[float]) -> Array:
    """The authors' loop; ``factors`` multiply the learning rate of a step."""
    m, v, largest = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for t, (g, factor) in enumerate(zip(gradients, factors, strict=True), start=1):
        g = g + 0.1 * w
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        largest = np.maximum(largest, v)
        lr, final = 3e-3 * factor, 0.02 * factor
        rate = lr * math.sqrt(1 - 0.95**t) / (1 - 0.8**t) / (np.sqrt(largest if amsbound else v) + 1e-6)
        low, high = final * (1 - 1 / (0.03 * t + 1)), final * (1 + 1 / (0.03 * t))
        w = w - np.clip(rate, low, high) * m
    return w


@pytest.mark.parametrize("part", [AdaBound(**SETTINGS), AMSBound(**SETTINGS)])
def test_agrees_with_the_published_loop(part: AdaBound) -> None:
    params, gradients = parameters(), gradient_sequence(200, spikes=(30,))
    expected = reference(flat(params), [flat(row) for row in gradients], part.amsbound, [1.0] * 200)
    np.testing.assert_allclose(run(build(part, params), params, gradients), expected, rtol=1e-11)


def test_a_schedule_scales_the_bounds() -> None:
    params, gradients = parameters(), gradient_sequence(60)
    factors = [1.0 / (1 + t) for t in range(60)]
    expected = reference(flat(params), [flat(row) for row in gradients], False, factors)
    optimizer = build(AdaBound(**SETTINGS), params)
    for row, factor in zip(gradients, factors, strict=True):
        optimizer.param_groups[0]["lr"] = 3e-3 * factor
        run(optimizer, params, [row])
    np.testing.assert_allclose(flat(params), expected, rtol=1e-11)


def test_without_gamma_it_is_adam() -> None:
    """The two differ in where eps stands, hence eps = 0."""
    first, second, gradients = parameters(), parameters(), gradient_sequence(50)
    found = run(build(AdaBound(lr=0.02, gamma=0.0, eps=0.0), first), first, gradients)
    np.testing.assert_allclose(found, run(build(Adam(lr=0.02, eps=0.0), second), second, gradients), rtol=1e-10)


def test_bounds_close_in_on_the_final_rate() -> None:
    assert lr_bounds(1000, 0.1, 1e-3) == pytest.approx((0.05, 0.2))
    assert lr_bounds(10**9, 0.1, 1e-3) == pytest.approx((0.1, 0.1), rel=1e-5)
    assert lr_bounds(7, 0.1, 0.0) == (0.0, math.inf)


def test_parameters_without_gradient_keep_their_step_count() -> None:
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = build(AdaBound(), [a, b])
    a.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.state[a]["step"] == 1
    assert b not in optimizer.state
    assert torch.equal(b, torch.ones(2))


@pytest.mark.parametrize("settings", [{"lr": 0.0}, {"final_lr": -1.0}, {"gamma": 1.0}])
def test_settings_out_of_range_are_refused(settings: dict) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        AdaBound(**settings)
