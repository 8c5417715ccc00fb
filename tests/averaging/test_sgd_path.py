"""Averages along SGD on a quadratic, against its stationary law.

Statistical checks fail correct code at a rate of 1e-6 each, with fixed seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from averaging.paths import feed, put, vector_model
from bayeswell.averaging import HWA, SWA, SWAG, SWAGDiagonal
from bayeswell.types import Progress
from truths.statistics import assert_mean_close, assert_variance_close

CURVATURE, NOISE, RATE = 0.8, 1.7, 0.35

STATIONARY = RATE * NOISE / (CURVATURE * (2 - RATE * CURVATURE))

CHAINS = 20_000


def sgd_path(steps: int, chains: int, rate: float = RATE, seed: int = 1) -> Tensor:
    """(steps, chains): iterates of independent chains that start in their stationary law."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(steps + 1, chains, generator=generator, dtype=torch.float64)
    weights = (rate * NOISE / (CURVATURE * (2 - rate * CURVATURE))) ** 0.5 * draw[0]
    iterates = []
    for step in range(steps):
        weights = weights - rate * (CURVATURE * weights + NOISE**0.5 * draw[step + 1])
        iterates.append(weights)
    return torch.stack(iterates)


def mean_variance(n: int, r: float) -> float:
    """Var(mean of n snapshots) / V for correlation r between neighbours: (1/n)(1 + 2 sum_j (1 - j/n) r^j)."""
    return (1 + 2 * sum((1 - j / n) * r**j for j in range(1, n))) / n


def column_variance(i: int, r: float) -> float:
    """Var(w_i - mean of the first i) / V: 1 - (2/i) sum_{j<i} r^j + Var(mean)."""
    return 1 - 2 / i * sum(r**j for j in range(i)) + mean_variance(i, r)


@pytest.mark.parametrize(("n", "cycle"), [(5, 1), (12, 2), (4, 6)])
def test_moments_of_the_sgd_path_have_their_closed_form(n: int, cycle: int) -> None:
    """E[mean(w^2) - mean(w)^2] = V (1 - (1/n)(1 + 2 sum_j (1 - j/n) r^j)), r = (1 - eta A)^c, and Var(mean)."""
    steps, r = n * cycle, (1 - RATE * CURVATURE) ** cycle
    model = vector_model(CHAINS)
    collectors = {
        "swag_diag": SWAGDiagonal(start=0, cycle=cycle).build(model, steps, steps),
        "hwa": HWA(start=0, cycle=cycle, variance="swag").build(model, steps, steps),
    }
    iterates = sgd_path(steps, CHAINS, seed=n)
    for collector in collectors.values():
        feed(collector, model, iterates)
        assert collector.snapshots == n
        posterior = collector.result()[1]
        variance = posterior.std_vector().detach()[:, None] ** 2
        assert_mean_close(variance, [STATIONARY * (1 - mean_variance(n, r))])
        assert_variance_close(posterior.mean_vector().detach()[:, None], [STATIONARY * mean_variance(n, r)])
    assert_variance_close(iterates[-1][:, None], [STATIONARY])


def test_the_average_settles_where_the_last_iterate_does_not() -> None:
    """Var(mean) falls as 1/n (to C / (A^2 n), whatever the rate); the last iterate keeps eta C / (A (2 - eta A))."""
    iterates = sgd_path(800, 4_000, seed=2)
    spread = []
    for n in (200, 800):
        model = vector_model(4_000)
        collector = SWA(start=0, cycle=1).build(model, n, n)
        feed(collector, model, iterates[:n])
        mean = collector.result()[1].mean_vector().detach()
        r = 1 - RATE * CURVATURE
        assert_variance_close(mean[:, None], [STATIONARY * mean_variance(n, r)])
        spread.append(float(mean.var()))
        assert STATIONARY * mean_variance(n, r) == pytest.approx(NOISE / CURVATURE**2 / n, rel=0.02)
    assert 3.5 < spread[0] / spread[1] < 4.5  # 4 within 6 standard errors of a ratio of variances
    assert float(iterates[-1].var()) > 50 * spread[1]


@pytest.mark.parametrize(("n", "rank", "rate"), [(20, 20, 1 / CURVATURE), (30, 20, 1 / CURVATURE), (9, 4, RATE)])
def test_the_low_rank_part_has_its_closed_form(n: int, rank: int, rate: float) -> None:
    """E[D D'/(k-1)]_ii = V sum over the last k of Var(w_i - mean_i); independent snapshots: 1 - 1/i each."""
    r = 1 - rate * CURVATURE
    truth = sum(column_variance(i, r) for i in range(n - rank + 1, n + 1)) / (rank - 1)
    if rate == 1 / CURVATURE:
        assert truth == pytest.approx({20: 0.863, 30: 0.9965}[n], abs=6e-4)
    model = vector_model(4_000)
    collector = SWAG(start=0, cycle=1, rank=rank, scale=1.0).build(model, n, n)
    feed(collector, model, sgd_path(n, 4_000, rate, seed=n + rank))
    found = collector.result()[1].factor.detach().square().sum(1)
    stationary = rate * NOISE / (CURVATURE * (2 - rate * CURVATURE))
    assert_mean_close(found[:, None], [stationary * truth])


def test_correlations_of_the_sgd_path_are_in_the_low_rank_part() -> None:
    """Two coupled weights: A S + S A - eta A S A = eta C. Snapshots far apart are independent draws from N(0, S)."""
    curvature = np.array([[1.0, 0.3], [0.3, 0.6]])
    noise = np.array([[1.2, -0.5], [-0.5, 0.9]])
    rate, n, rank, cycle, chains = 0.4, 8, 5, 30, 3_000
    # S = M S M + eta^2 C with M = 1 - eta A, summed as a series.
    step = np.eye(2) - rate * curvature
    stationary, term = np.zeros((2, 2)), rate**2 * noise
    for _ in range(2_000):
        stationary, term = stationary + term, step @ term @ step
    residual = curvature @ stationary + stationary @ curvature - rate * curvature @ stationary @ curvature
    np.testing.assert_allclose(residual, rate * noise, rtol=1e-9)
    generator = torch.Generator().manual_seed(17)
    root = torch.from_numpy(np.linalg.cholesky(noise))
    model = vector_model(2 * chains)
    collector = SWAG(start=0, cycle=cycle, rank=rank, scale=1.0).build(model, n * cycle, n * cycle)
    start = torch.randn(chains, 2, generator=generator, dtype=torch.float64)
    weights = start @ torch.from_numpy(np.linalg.cholesky(stationary)).T
    for at in range(n * cycle):
        gradient = weights @ torch.from_numpy(curvature)
        gradient = gradient + torch.randn(chains, 2, generator=generator, dtype=torch.float64) @ root.T
        weights = weights - rate * gradient
        put(model, weights.reshape(-1))
        collector.observe(model, Progress(at, n * cycle))
    factor = collector.result()[1].factor.detach().reshape(chains, 2, rank)
    found = factor @ factor.transpose(1, 2)
    share = sum(1 - 1 / i for i in range(n - rank + 1, n + 1)) / (rank - 1)
    assert_mean_close(found, share * stationary)
