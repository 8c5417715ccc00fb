"""Whether a run was long enough, told from curves whose future is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayeswell.training.verdicts import judge_length

TRIALS = 400


def cosine(epochs: int) -> np.ndarray:
    return 0.5 * (1 + np.cos(np.pi * (np.arange(epochs) + 1) / epochs))


def power(epochs: int, rates: np.ndarray, size: float, exponent: float) -> np.ndarray:
    return size * np.cumsum(rates) ** -exponent


@pytest.mark.parametrize("epochs", [10, 20, 40, 200])
@pytest.mark.parametrize("decay", [True, False])
def test_noise_alone_is_no_improvement(epochs: int, decay: bool) -> None:
    """Runs that have arrived after a twentieth, with noise that falls with the rate: at most 2 % false alarms."""
    rng = np.random.default_rng(epochs)
    rates = cosine(epochs) if decay else np.ones(epochs)
    alarms = 0
    for _ in range(TRIALS):
        arrived = 2 * np.exp(-np.cumsum(rates) / (0.01 * epochs))
        noisy = arrived + 0.3 + 0.2 * rates + 0.05 * (0.2 + rates) * rng.standard_normal(epochs)
        found = judge_length(list(noisy), list(rates))
        assert found is not None
        alarms += not found.enough
    assert alarms <= 0.02 * TRIALS


@pytest.mark.parametrize("epochs", [20, 40])
@pytest.mark.parametrize("decay", [True, False])
def test_a_power_law_is_told_with_its_future(epochs: int, decay: bool) -> None:
    """y = b s^-1/2 in the time s of the rates: the gain of twice the time is known."""
    rates = cosine(epochs) if decay else np.ones(epochs)
    size = 3.0
    found = judge_length(list(0.1 + power(epochs, rates, size, 0.5)), list(rates))
    assert found is not None
    total = rates.sum()
    gain = size * (total**-0.5 - (2 * total) ** -0.5)
    assert gain > 0.1
    assert 0.5 * gain < found.gain < 3 * gain
    assert found.factor in (2, 4)
    (line,) = found.warnings
    assert f"last third of {epochs} epochs" in line
    assert line.endswith(f"about {found.factor}x the epochs are needed")  # of the epochs that were asked for


def test_an_exponential_that_is_nearly_there_is_enough() -> None:
    for epochs in (20, 40):
        curve = 1.5 * np.exp(-np.arange(1, epochs + 1) / (epochs / 8))
        found = judge_length(list(curve))
        assert found is not None
        assert found.enough


def test_noise_does_not_hide_a_steep_curve() -> None:
    rng = np.random.default_rng(5)
    rates = cosine(40)
    told = [
        judge_length(list(power(40, rates, 4.0, 0.5) + 0.004 * rng.standard_normal(40)), list(rates))
        for _ in range(100)
    ]
    assert sum(one is not None and not one.enough for one in told) > 95


def saw(cycles: int, each: int, ends: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An objective that rises with the rate at every restart and comes down to ``ends``; and the rates."""
    rates = np.tile(cosine(each), cycles)
    return np.repeat(ends, each) + 0.8 * rates + 0.01 * rng.standard_normal(cycles * each), rates


def test_cycles_that_end_lower_every_time_were_too_short() -> None:
    """The teeth of the saw are as high as all that is learned: only the ends of cycles show it."""
    rng = np.random.default_rng(3)
    for size in (1.5, 3.0):
        curve, rates = saw(5, 8, size / np.sqrt(np.arange(1, 6)), rng)
        found = judge_length(list(curve), list(rates))
        assert found is not None
        assert found.factor > 1
        gain = size * (5**-0.5 - 10**-0.5)
        assert 0.5 * gain < found.gain < 3 * gain
        (line,) = found.warnings
        assert ", ".join(f"{curve[end]:.2f}" for end in (7, 15, 23, 31, 39)) in line


def test_cycles_that_end_alike_were_long_enough() -> None:
    """Also where the first was not, and with noise on the ends; a warm-up makes no cycles."""
    rng = np.random.default_rng(4)
    for ends in ([0.3] * 5, [1.5, 0.35, 0.3, 0.3, 0.3]):
        for _ in range(TRIALS):
            curve, rates = saw(5, 8, np.array(ends) + 0.02 * rng.standard_normal(5), rng)
            found = judge_length(list(curve), list(rates))
            assert found is not None
            assert found.enough
            assert len(found.ends) == 5
    rates = np.minimum(1.0, np.arange(1, 41) / 10) * cosine(40)
    found = judge_length(list(power(40, rates, 4.0, 0.5)), list(rates))
    assert found is not None
    assert found.ends == ()


def test_what_cannot_be_judged() -> None:
    assert judge_length([1.0] * 7) is None
    assert judge_length([3.0, math.nan, *[1.0] * 10]) is None
    for strange in (None, [0.0] * 12, [0.1] * 3):  # rates that are no clock: epochs are
        found = judge_length([1 / (1 + t) for t in range(12)], strange)
        assert found == judge_length([1 / (1 + t) for t in range(12)])
