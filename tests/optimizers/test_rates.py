"""Learning rates as parts, against torch's schedulers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import SettingError
from bayeswell.optimizers import (
    RATES,
    Constant,
    Cosine,
    Cyclic,
    Linear,
    Power,
    StepDecay,
    WarmUp,
)
from bayeswell.registry import settings_of
from bayeswell.types import Progress
from optimizers.steps import factors


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
        (
            Linear(0.25, 0.75, final=0.3),
            lambda o: schedulers.SequentialLR(
                o, [schedulers.ConstantLR(o, 1.0), schedulers.LinearLR(o, 1.0, 0.3, total_iters=20)], [10]
            ),
        ),
        (Power(0.55, 0.1), lambda o: schedulers.LambdaLR(o, lambda t: min(1.0, (0.1 + t // 8) ** -0.55))),
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


def test_linear_is_the_schedule_of_swag() -> None:
    # swa_gaussian, experiments/train: t = epoch / swa_start, ratio = swa_lr / lr_init.
    epochs, start, ratio = 300, 160, 0.25
    expected = []
    for epoch in range(epochs):
        t = epoch / start
        expected.append(1.0 if t <= 0.5 else 1.0 - (1.0 - ratio) * (t - 0.5) / 0.4 if t <= 0.9 else ratio)
    share = start / epochs
    found = factors(Linear(0.5 * share, 0.9 * share, ratio), epochs)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # A jump where both meet is a step.
    assert factors(Linear(0.5, 0.5, 0.1), 4) == [1.0, 1.0, 0.1, 0.1]


def test_power_is_the_rate_of_flat_seeking_sgld() -> None:
    expected = [min(0.2, 0.2 / (0.1 + epoch) ** 0.55) for epoch in range(5) for _ in range(8)]
    np.testing.assert_allclose([0.2 * factor for factor in factors(Power(), 40)], expected, rtol=1e-12)


def test_cycles_may_have_a_length_in_steps() -> None:
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * (k % 7) / 7)) / 2 for k in range(30)]
    np.testing.assert_allclose(factors(Cyclic(low=0.2, cycle_steps=7), 30), expected, rtol=1e-12)
    # Whatever the length of the run, even where nobody has planned it.
    assert Cyclic(cycle_steps=7).factor(Progress(8)) == Cyclic(cycle_steps=7).factor(Progress(1))
    assert Cyclic(cycle_steps=7).length(100) == 7


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
    [
        Constant(),
        StepDecay((0.2, 0.9), 0.5),
        Linear(0.2, 0.5, 0.1),
        Cosine(0.1),
        Power(0.3, 0.4),
        Cyclic(3, 0.2, "triangular"),
        Cyclic(cycle_steps=9),
        WarmUp(0.2, "cosine"),
    ],
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
        (lambda: Linear(0.6, 0.5), r"linear: begin = 0.6 lies behind end = 0.5"),
        (lambda: Linear(final=2), r"linear: final = 2; it must lie in \[0, 1\]"),
        (lambda: Power(0), r"power: power = 0; it must be a finite number above 0"),
        (lambda: Power(shift=-1), r"power: shift = -1"),
        (lambda: Power().factor(Progress(3)), r"the rate 'power' needs the number of batches"),
        (lambda: Cyclic(cycle_steps=0), r"cyclic: cycle_steps = 0; it must be a whole number"),
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
