"""SWA, EMA and SWAG against numpy over stored snapshots; schedules of snapshots; exact states."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from averaging.paths import BATCHES, Array, averaged, covariance_of, numbers, path, put, small_model, watch
from bayeswell.averaging import AVERAGERS, EMA, HWA, SWA, SWAG, SWAGDiagonal
from bayeswell.averaging.snapshots import SnapshotSchedule
from bayeswell.core.errors import DivergenceError, SettingError
from bayeswell.core.protocols import Progress
from bayeswell.nn import trained_params

STEPS = 40


def snapshots(start: float, cycle: int, steps: int = STEPS) -> list[int]:
    """The steps that a schedule takes, by its words."""
    return [step for step in range(steps) if step + 1 > start * steps and (step + 1) % cycle == 0]


def test_schedule_takes_the_ends_of_cycles_after_burn_in() -> None:
    for burn_in in range(9):
        schedule = SnapshotSchedule(burn_in, 3, 20)
        taken = [step for step in range(20) if schedule.is_due(step)]
        assert taken == [step for step in (2, 5, 8, 11, 14, 17) if step + 1 > burn_in]
        assert schedule.planned == len(taken)


@pytest.mark.parametrize(("start", "cycle"), [(0.75, None), (0.3, 3), (0.0, 1)])
def test_swa_is_the_mean_of_the_snapshots(start: float, cycle: int | None) -> None:
    posterior, averager, (means, _, scales) = averaged(SWA(start, cycle))
    taken = snapshots(start, cycle or BATCHES)
    np.testing.assert_allclose(numbers(posterior.mean), means[taken].mean(0), rtol=1e-13)
    (name, average), *_ = averager.other_params().items()
    assert name in trained_params(small_model().net)
    np.testing.assert_allclose(numbers(average), scales[taken].mean(0), rtol=1e-12, atol=1e-14)
    assert posterior.part.name == "delta"


@pytest.mark.parametrize("settings", [{"decay": 0.8}, {"cycle": 3}, {"decay": 0.0}, {}])
def test_ema_weights_snapshots_by_powers_of_the_decay(settings: dict[str, Any]) -> None:
    posterior, averager, (means, _, scales) = averaged(EMA(**settings))
    cycle = settings.get("cycle", 1)
    decay = settings.get("decay", 2 ** (-cycle / (STEPS / 20)))
    taken = snapshots(0.0, cycle)
    powers = decay ** np.arange(len(taken) - 1, -1, -1.0)
    shares = powers / powers.sum()
    np.testing.assert_allclose(numbers(posterior.mean), shares @ means[taken], rtol=1e-12)
    average = next(iter(averager.other_params().values()))
    np.testing.assert_allclose(numbers(average), shares @ scales[taken], rtol=1e-10)


def test_ema_of_constant_weights_is_unbiased_from_the_first_snapshot() -> None:
    model = small_model()
    averager = EMA(decay=0.999).build(model, 10, BATCHES)
    means = np.full(model.layout.size, 3.7)
    put(model, means, np.ones_like(means), np.ones(3))
    averager.after_step(model, Progress(0, 10))
    np.testing.assert_allclose(numbers(averager.finalize(model).mean), means, rtol=1e-14)


def swag_moments(means: Array, rank: int) -> tuple[Array, Array, Array]:
    """Mean, variance and the last deviations from the mean after each update."""
    deviations = [means[n] - means[: n + 1].mean(0) for n in range(len(means))][-rank:]
    return means.mean(0), means.var(0), np.array(deviations)


@pytest.mark.parametrize(("rank", "scale"), [(None, 0.5), (3, 0.9)])
def test_swag_has_the_moments_of_its_snapshots(rank: int | None, scale: float) -> None:
    posterior, _, (means, _, _) = averaged(SWAG(start=0.2, cycle=2, rank=rank, scale=scale))
    taken = snapshots(0.2, 2)
    mean, variance, deviations = swag_moments(means[taken], rank or min(20, len(taken)))
    expected = scale * (np.diag(variance) + deviations.T @ deviations / (len(deviations) - 1))
    np.testing.assert_allclose(numbers(posterior.mean), mean, rtol=1e-13)
    np.testing.assert_allclose(covariance_of(posterior), expected, rtol=1e-9, atol=1e-12)


def test_swag_diagonal() -> None:
    posterior, _, (means, _, _) = averaged(SWAGDiagonal(start=0.2, cycle=2, scale=0.7))
    np.testing.assert_allclose(numbers(posterior.std()) ** 2, 0.7 * means[snapshots(0.2, 2)].var(0), rtol=1e-12)


def test_variances_keep_their_digits_far_from_zero() -> None:
    """mean(w^2) - mean(w)^2 in float32 would be noise."""
    model = small_model("delta", torch.float32)
    rows = path(12, model.layout.size)
    means = (1e4 + 0.01 * rows[0]).astype(np.float32)
    averager = watch(SWAGDiagonal(start=0.0, cycle=1).build(model, 12, BATCHES), model, (means, *rows[1:]))
    expected = means.astype(np.float64).var(0)
    np.testing.assert_allclose(numbers(averager.finalize(model).std()) ** 2, expected, rtol=1e-5)


def test_weights_that_never_move_have_a_tiny_std() -> None:
    model = small_model("delta")
    rows = tuple(np.repeat(row[:1], 8, 0) for row in path(8, model.layout.size))
    for part in (SWAGDiagonal(0.0, 1), SWAG(0.0, 1)):
        averager = watch(part.build(model, 8, BATCHES), model, rows)  # type: ignore[arg-type]
        np.testing.assert_allclose(numbers(averager.finalize(model).std()), 1e-15, rtol=1e-6)


def test_expected_low_rank_spread_of_independent_snapshots() -> None:
    """E[D D' / (k - 1)]_ii = V sum (1 - 1/i) / (k - 1): 0.863 V at n = k = 20; 4000 weights, error below 1 percent."""
    values = np.random.default_rng(1).standard_normal((20, 4000))
    _, _, deviations = swag_moments(values, 20)
    found = (deviations**2).sum(0).mean() / 19
    exact = sum(1 - 1 / i for i in range(1, 21)) / 19
    assert exact == pytest.approx(0.863, abs=1e-3)
    assert found == pytest.approx(exact, rel=0.02)


ALL: list[Any] = [
    SWA(0.2, 2),
    EMA(),
    SWAG(0.2, 2, rank=3),
    SWAGDiagonal(0.2, 2),
    HWA(0.2, 2),
    HWA(0.2, 2, covariance="low_rank"),
    {"name": "bank", "burn_in": 5, "thinning": 3},
    {"name": "cycle_ends", "cycles": 4},
]


@pytest.mark.parametrize("choice", ALL, ids=str)
@pytest.mark.parametrize("cut", [3, 17, 30])
def test_a_saved_state_resumes_exactly(choice: Any, cut: int) -> None:
    part = AVERAGERS.resolve(choice)
    posterior = "delta" if part.needs else "mean_field"
    model = small_model(posterior)
    rows = path(STEPS, model.layout.size)
    whole = watch(part.build(model, STEPS, BATCHES), model, rows)
    first = watch(part.build(model, STEPS, BATCHES), model, tuple(row[:cut] for row in rows))
    state = first.state_dict()
    saved = copy.deepcopy(state)
    watch(first, model, rows, cut)
    _assert_equal(state, saved)  # a state that was handed out does not change
    second = part.build(model, STEPS, BATCHES)
    second.load_state_dict(saved)
    watch(second, model, rows, cut)
    found, expected = second.finalize(model), whole.finalize(model)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    for name, tensor in whole.other_params().items():
        assert torch.equal(second.other_params()[name], tensor), name


def _assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            _assert_equal(found[key], value)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    else:
        assert len(found) == len(expected) if isinstance(expected, list) else found == expected


@pytest.mark.parametrize("part", [SWA(0.0, 1), SWAG(0.0, 1), HWA(0.0, 1)])
def test_a_snapshot_that_is_not_finite_is_refused(part: Any) -> None:
    model = small_model()
    rows = path(8, model.layout.size)
    averager = watch(part.build(model, 8, BATCHES), model, rows)
    before = numbers(averager.finalize(model).mean).copy()
    put(model, rows[0][0] * np.nan, rows[1][0], rows[2][0])
    with pytest.raises(DivergenceError, match="NaN or inf"):
        averager.after_step(model, Progress(8, 8))
    np.testing.assert_array_equal(numbers(averager.finalize(model).mean), before)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "swa", "start": 1.0}, "`start`"),
        ({"name": "ema", "decay": 1.0}, "`decay`"),
        ({"name": "hwa", "variance": "literal"}, "eq"),
        ({"name": "hwa", "variance": "mean", "covariance": "low_rank"}, "spread"),
        ({"name": "cycle_ends", "keep": 9}, "`keep`"),
        ({"name": "swagg"}, "did you mean"),
    ],
)
def test_mistakes_are_named(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AVERAGERS.resolve(choice)


def test_runs_that_are_too_short_are_refused_before_training() -> None:
    model = small_model()
    for part in (SWA(0.9, 30), SWAG(0.75, 20), SWAG(0.75, None, rank=20), HWA(0.9, 4, variance="swag")):
        with pytest.raises(SettingError, match="snapshots"):
            part.build(model, STEPS, BATCHES)  # type: ignore[attr-defined]
