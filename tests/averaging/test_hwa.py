"""HWA's readings of eq. (4), eq. (5) and what training sees of the average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from averaging.paths import BATCHES, averaged, covariance_of, numbers, path, put, small_model, watch
from averaging.test_averages import snapshots, swag_moments
from bayeswell.averaging import HWA, literal_variance
from bayeswell.core.errors import CompositionError
from bayeswell.core.protocols import Progress

STEPS = 40


@pytest.mark.parametrize("variance", ["mixture", "swag", "mean"])
@pytest.mark.parametrize("scale", [None, 0.6])
def test_three_readings_of_equation_4(variance: str, scale: float | None) -> None:
    posterior, averager, (means, stds, scales) = averaged(HWA(0.3, 3, variance, scale=scale))
    taken = snapshots(0.3, 3)
    within, between = (stds[taken] ** 2).mean(0), (scale or 1.0) * means[taken].var(0)
    expected = {"mixture": within + between, "swag": between, "mean": within}[variance]
    np.testing.assert_allclose(numbers(posterior.mean), means[taken].mean(0), rtol=1e-13)
    np.testing.assert_allclose(numbers(posterior.std()) ** 2, expected, rtol=1e-11)
    average = next(iter(averager.other_params().values()))
    np.testing.assert_allclose(numbers(average), scales[taken].mean(0), rtol=1e-10)


def test_mixture_has_the_moments_of_the_mixture_of_gaussians() -> None:
    """Against draws: one of the snapshots, then its Gaussian; 10^5 draws, five standard errors."""
    posterior, _, (means, stds, _) = averaged(HWA(0.3, 3))
    taken, generator = snapshots(0.3, 3), np.random.default_rng(1)
    which = generator.choice(taken, 100_000)
    draws = means[which] + stds[which] * generator.standard_normal((100_000, means.shape[1]))
    assert (np.abs(draws.var(0) / numbers(posterior.std()) ** 2 - 1) < 5 * np.sqrt(2 / 1e5)).all()


@pytest.mark.parametrize("variance", ["mixture", "swag"])
@pytest.mark.parametrize("columns", [None, 4])
def test_equation_5(variance: str, columns: int | None) -> None:
    posterior, _, (means, stds, _) = averaged(HWA(0.3, 3, variance, "low_rank", columns=columns))
    taken = snapshots(0.3, 3)
    mean, between, deviations = swag_moments(means[taken], columns or len(taken))
    expected = 0.5 * (np.diag(between) + deviations.T @ deviations / (len(deviations) - 1))
    if variance == "mixture":
        expected += np.diag((stds[taken] ** 2).mean(0))
    np.testing.assert_allclose(numbers(posterior.mean), mean, rtol=1e-13)
    np.testing.assert_allclose(covariance_of(posterior), expected, rtol=1e-9, atol=1e-12)


def test_on_a_point_posterior_the_mixture_is_the_spread_of_the_means() -> None:
    posterior, _, (means, _, _) = averaged(HWA(0.3, 3), posterior="delta")
    np.testing.assert_allclose(numbers(posterior.std()) ** 2, means[snapshots(0.3, 3)].var(0), rtol=1e-11)


def test_equation_4_as_printed_is_negative() -> None:
    constant = torch.full((7, 3), 1.7, dtype=torch.float64)
    np.testing.assert_allclose(literal_variance(constant), -(1.7**2) * (7 - 1) / 2, rtol=1e-12)


def test_constant_iterates_keep_their_gaussian() -> None:
    model = small_model()
    rows = tuple(np.repeat(row[:1], 12, 0) for row in path(12, model.layout.size))
    averager = watch(HWA(0.0, 2).build(model, 12, BATCHES), model, rows)  # type: ignore[arg-type]
    posterior = averager.finalize(model)
    np.testing.assert_allclose(numbers(posterior.mean), rows[0][0], rtol=1e-14)
    np.testing.assert_allclose(numbers(posterior.std()), rows[1][0], rtol=1e-12)


# Feedback.


def test_restart_puts_the_mean_at_the_average_at_snapshots_alone() -> None:
    model = small_model()
    rows = path(12, model.layout.size)
    averager = HWA(0.5, 3, feedback="restart").build(model, 12, BATCHES)
    for step in range(12):
        put(model, *(row[step] for row in rows))
        averager.after_step(model, Progress(step, 12))
        expected = rows[0][[8, step] if step == 11 else [step]].mean(0)
        np.testing.assert_allclose(numbers(model.posterior.mean), expected, rtol=1e-13)
        np.testing.assert_allclose(numbers(model.posterior.std()), rows[1][step], rtol=1e-12)


@pytest.mark.parametrize("variance", ["mixture", "swag", "mean"])
def test_sample_sets_the_stds_after_every_step(variance: str) -> None:
    """W is that of the first snapshot: later stds are set from the average."""
    model = small_model()
    rows = path(16, model.layout.size)
    averager = HWA(0.25, 4, variance, feedback="sample").build(model, 16, BATCHES)
    taken: list[int] = []
    for step in range(16):
        put(model, *(row[step] for row in rows))
        averager.after_step(model, Progress(step, 16))
        taken += [step] if step in (7, 11, 15) else []
        expected = rows[1][step] ** 2
        if len(taken) >= (2 if variance == "swag" else 1):
            within, between = rows[1][7] ** 2, rows[0][taken].var(0)
            expected = {"mixture": within + between, "swag": between, "mean": within}[variance]
        np.testing.assert_allclose(numbers(model.posterior.std()) ** 2, expected, rtol=1e-9)
        np.testing.assert_allclose(numbers(model.posterior.mean), rows[0][step], rtol=1e-14)


def test_sample_sets_a_low_rank_covariance() -> None:
    model = small_model({"name": "low_rank", "rank": 3})
    size = model.layout.size
    means, _, scales = path(16, size)
    averager = HWA(0.0, 4, covariance="low_rank", feedback="sample").build(model, 16, BATCHES)
    first: Any = None
    for step in range(16):
        with torch.no_grad():
            model.posterior.mean.copy_(torch.from_numpy(means[step]))
            next(iter(model.net.parameters())).copy_(torch.from_numpy(scales[step]))
        first = numbers(model.posterior.std()) ** 2 if step == 3 else first
        averager.after_step(model, Progress(step, 16))
    _, between, deviations = swag_moments(means[[3, 7, 11, 15]], 3)
    expected = np.diag(first) + 0.5 * (np.diag(between) + deviations.T @ deviations / 2)
    np.testing.assert_allclose(covariance_of(model.posterior), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(covariance_of(averager.finalize(model)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("posterior", "part"),
    [
        ("delta", HWA(variance="mean")),
        ("k_tied", HWA(feedback="sample")),
        ("mean_field", HWA(feedback="sample", covariance="low_rank")),
        ({"name": "low_rank", "rank": 2}, HWA(feedback="sample", covariance="low_rank", columns=3)),
    ],
)
def test_pairs_that_cannot_work_are_refused(posterior: Any, part: HWA) -> None:
    with pytest.raises(CompositionError, match="hwa"):
        part.build(small_model(posterior), STEPS, BATCHES)


def test_average_of_sgd_on_a_quadratic_converges_to_the_optimum() -> None:
    """The last iterate keeps the variance eta C / (A (2 - eta A)); that of the average is O(1/n)."""
    generator, steps, eta, curvature = np.random.default_rng(4), 4000, 0.1, 1.5
    model = small_model("delta")
    means = np.empty((steps, model.layout.size))
    w = np.zeros(model.layout.size)
    for step in range(steps):
        w = w - eta * (curvature * (w - 2.0) + generator.standard_normal(w.shape))
        means[step] = w
    rows = (means, np.ones_like(means), np.ones((steps, 3)))
    posterior = watch(HWA(0.5, 1).build(model, steps, BATCHES), model, rows).finalize(model)
    # Var of the average of n correlated iterates: C / (A^2 n) for n eta A >> 1.
    assert float(np.abs(numbers(posterior.mean) - 2).max()) < 5 / (curvature * np.sqrt(steps / 2))
    stationary = eta / (curvature * (2 - eta * curvature))
    assert float(np.mean(numbers(posterior.std()) ** 2)) == pytest.approx(stationary, rel=0.2)
