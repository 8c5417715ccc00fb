"""Weights of the KL: their mean over an epoch, closed forms, symmetry."""

from __future__ import annotations

import math

import pytest

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import Progress
from bayeswell.objectives import KL_WEIGHTS, Geometric, LinearAnneal, Uniform


def epoch(weight: object, batches: int) -> list[float]:
    return [weight(Progress(batch=i, batches=batches)) for i in range(batches)]  # type: ignore[operator]


@pytest.mark.parametrize("weight", [Uniform(), Geometric(), Geometric(0.97), Geometric(1.0), Geometric(2.0)], ids=repr)
@pytest.mark.parametrize("batches", [1, 2, 7, 500, 5000])
def test_weights_average_to_one(weight: object, batches: int) -> None:
    assert sum(epoch(weight, batches)) / batches == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.3, 2.0])
def test_geometric_weights_are_normalized_powers(ratio: float) -> None:
    powers = [ratio**i for i in range(1, 12)]
    assert epoch(Geometric(ratio), 11) == pytest.approx([11 * power / sum(powers) for power in powers], rel=1e-12)


def test_ratio_one_half_is_blundells_scheme() -> None:
    assert epoch(Geometric(), 8) == pytest.approx([8 * 2 ** (8 - i) / (2**8 - 1) for i in range(1, 9)], rel=1e-12)


def test_inverse_ratio_reverses_the_weights() -> None:
    assert epoch(Geometric(1 / 1.7), 9) == pytest.approx(epoch(Geometric(1.7), 9)[::-1], rel=1e-12)


def test_few_weights_exceed_the_uniform_one_at_ratio_one_half() -> None:
    """1.6 % of 500 batches, as in the thesis."""
    assert sum(weight > 1 for weight in epoch(Geometric(), 500)) == 8


def test_ratio_zero_is_maximum_likelihood() -> None:
    assert epoch(Geometric(0), 5) == [0] * 5


def test_linear_annealing_is_t_over_total() -> None:
    anneal = LinearAnneal(0.4)
    found = [anneal(Progress(step=step, total_steps=10)) for step in range(10)]
    assert found == pytest.approx([0.25, 0.5, 0.75, *[1] * 7])


def test_unknown_lengths_are_refused() -> None:
    with pytest.raises(SettingError, match="batches"):
        Geometric()(Progress())
    with pytest.raises(SettingError, match="total_steps"):
        LinearAnneal()(Progress())


def test_function_becomes_a_weight() -> None:
    weight = KL_WEIGHTS.resolve(lambda progress: progress.step / 4)
    assert weight(Progress(step=3)) == 0.75
    with pytest.raises(SettingError, match="at least 0"):
        KL_WEIGHTS.resolve(lambda progress: -1)(Progress())
    with pytest.raises(SettingError, match="finite"):
        KL_WEIGHTS.resolve(lambda progress: math.nan)(Progress())
