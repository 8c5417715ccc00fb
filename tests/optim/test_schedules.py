"""Schedules at points, and plateaus."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from bayeswell.core.errors import DataError, SettingError
from bayeswell.core.protocols import Progress
from bayeswell.optim import (
    SCHEDULES,
    Constant,
    Cosine,
    Cyclic,
    Linear,
    Plateau,
    Power,
    StepDecay,
    TorchSchedule,
    WarmUp,
)
from bayeswell.optim.schedules import PlateauState


def factors(schedule: object, total: int, steps: int | None = None) -> list[float]:
    """The factors of a run with epochs of 8 batches."""
    part = SCHEDULES.resolve(schedule)
    return [part.factor(Progress(step, total, step % 8, 8)) for step in range(total if steps is None else steps)]


def test_values_at_points() -> None:
    assert factors("constant", 3) == factors(Constant(), 3) == [1.0] * 3
    step = factors(StepDecay((0.55, 0.75), 0.1), 100)
    assert [step[k] for k in (0, 54, 55, 74, 75, 99)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    cosine = factors(Cosine(0.1), 100, 150)
    assert [cosine[k] for k in (0, 25, 50, 100, 149)] == pytest.approx(
        [1, 0.1 + 0.45 * (1 + math.cos(math.pi / 4)), 0.55, 0.1, 0.1]
    )
    linear = factors(Linear(0.2, 0.6, 0.25), 100)
    assert [linear[k] for k in (19, 20, 40, 59, 60, 99)] == pytest.approx([1, 1, 0.625, 0.26875, 0.25, 0.25])
    warm = factors(WarmUp(0.1, {"name": "cosine"}), 100)
    assert [warm[k] for k in (0, 4, 9, 50)] == pytest.approx([0.1, 0.5 * cosine_at(4), cosine_at(9), 0.5])


def cosine_at(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / 100))


def test_power_is_that_of_flat_sgld_and_of_welling_and_teh() -> None:
    flat = factors(Power(), 80)
    assert [flat[k] for k in (0, 7, 8, 17, 79)] == pytest.approx([1, 1, 1.1**-0.55, 2.1**-0.55, 9.1**-0.55])
    a, b, gamma = 0.3, 40, 0.7
    polynomial = factors(Power(gamma, 1.0, b), 200)
    rates = [a * b**-gamma * factor for factor in polynomial]
    assert rates == pytest.approx([a * (b + t) ** -gamma for t in range(200)])


def test_cycles() -> None:
    cosine = factors(Cyclic(cycles=3), 100)
    assert [k for k, value in enumerate(cosine) if value == 1] == [0, 34, 68]
    assert cosine[17] == pytest.approx(0.5)
    triangular = factors(Cyclic(cycle_steps=10, low=0.2, shape="triangular"), 25)
    assert triangular[:11] == pytest.approx([0.2, 0.36, 0.52, 0.68, 0.84, 1, 0.84, 0.68, 0.52, 0.36, 0.2])
    assert factors({"name": "cyclic", "cycle_steps": 10}, 25)[10] == 1


def test_torch_schedulers_are_those_of_torch() -> None:
    for every, kind in (
        ("epoch", functools.partial(lr_scheduler.StepLR, step_size=2, gamma=0.3)),
        ("step", functools.partial(lr_scheduler.OneCycleLR, max_lr=10.0, total_steps=40)),
    ):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
        scheduler, expected = kind(optimizer), []
        for step in range(40):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if (every == "step" and step < 39) or (every == "epoch" and step % 8 == 7):
                scheduler.step()
        assert factors(TorchSchedule(kind, every), 40) == pytest.approx(expected)
    resolved = SCHEDULES.resolve(functools.partial(lr_scheduler.ExponentialLR, gamma=0.5))
    assert resolved.factor(Progress(17, 40, 1, 8)) == 0.25  # without asking for the epochs before


def test_a_function_is_a_schedule() -> None:
    assert factors(lambda progress: 1 / (1 + progress.step), 4) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


@pytest.mark.parametrize(
    "choice",
    [
        "cosin",
        {"name": "linear", "begin": 0.7, "end": 0.2},
        {"name": "warm_up", "after": "x"},
        {"name": "cyclic", "low": 2},
        functools.partial(lr_scheduler.ReduceLROnPlateau),
    ],
)
def test_mistakes_are_named(choice: object) -> None:
    with pytest.raises(SettingError):
        SCHEDULES.resolve(choice)


def test_a_schedule_of_the_whole_run_needs_its_length() -> None:
    with pytest.raises(SettingError, match="total_steps"):
        Cosine().factor(Progress(3))


# Plateaus.


def run(plateau: Plateau, values: list[float]) -> list[float]:
    state, found = PlateauState(), []
    for value in values:
        state = plateau.update(state, value)
        found.append(state.factor)
    return found


def test_plateau_falls_after_patience_and_counts_again() -> None:
    plateau = Plateau("nll", factor=0.1, patience=1, minimum=0.005)
    values = [1.0, 0.9, 0.9, 0.95, 0.95, 0.95, 0.8, 0.85, 0.85, 0.85, 0.85]
    assert run(plateau, values) == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.005, 0.005, 0.005])


@pytest.mark.parametrize("values", [[3.0, 2.0, 2.2, 1.9, 1.95, 1.96, 1.97, 1.0, 1.1, 1.1, 1.1], [5.0] * 9])
def test_plateau_agrees_with_torch_for_positive_values(values: list[float]) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    torchs = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1, threshold=1e-3, eps=0.0)
    expected = []
    for value in values:
        torchs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])
    assert run(Plateau("nll", factor=0.3, patience=1, threshold=1e-3), values) == pytest.approx(expected)


def test_plateau_of_negative_values() -> None:
    """A value that is slightly worse is no improvement."""
    assert run(Plateau(factor=0.5, patience=0, threshold=0.01), [-2.0, -1.999, -2.03]) == [1.0, 0.5, 0.5]


def test_plateau_refuses_a_metric_that_is_not_finite() -> None:
    with pytest.raises(DataError, match="'kl'"):
        Plateau("kl").update(PlateauState(), math.nan)
    with pytest.raises(SettingError, match="`factor`"):
        Plateau(factor=1.0)
