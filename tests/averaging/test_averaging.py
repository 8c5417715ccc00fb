"""Averages along the path of training against numpy and against the stationary law of SGD on a quadratic.

A network here is one long vector of weights, moved by hand: its snapshots are known exactly, and where the law of a
moment is tested every weight is an independent chain. Statistical checks fail correct code at a rate of 1e-6 each;
there are about 25 of them, with fixed seeds.
"""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.averaging import AVERAGING, HWA, SWA, SWAG, Bank, SWAGDiagonal, literal_variance
from bayeswell.averaging.draw_store import FileRows
from bayeswell.errors import CompositionError, DivergenceError, FileError, SettingError
from bayeswell.posteriors import Delta, Empirical, EmpiricalPosterior, LowRank, MeanField
from bayeswell.types import Collector, Progress
from nets import covariance_of, lift, make
from truths.statistics import assert_covariance_close, assert_mean_close, assert_variance_close


class Vector(nn.Module):
    """A network that is nothing but its weights."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights


def vector_model(size: int, posterior: Any = "delta", dtype: torch.dtype = torch.float64) -> bw.BayesianModule:
    return bw.bayesian(Vector(torch.zeros(size, dtype=dtype)), posterior, prior={"name": "normal", "std": 1.3})


def put(model: bw.BayesianModule, mean: Tensor, std: Tensor | None = None) -> None:
    """Move the model to a place, as an optimizer would."""
    with torch.no_grad():
        model.posterior.mean.copy_(mean)
        if std is not None:
            model.posterior.log_std.copy_(std.log())


def feed(collector: Collector, model: bw.BayesianModule, means: Tensor, stds: Tensor | None = None) -> None:
    """Steps 0, 1, ... at the given places."""
    for step, mean in enumerate(means):
        put(model, mean, None if stds is None else stds[step])
        collector.observe(model, Progress(step, len(means)))


def path(count: int, size: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Generic means and stds of ``count`` snapshots."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(count, size, generator=generator, dtype=torch.float64).cumsum(0) * 0.4 + 1.1
    return means, torch.rand(count, size, generator=generator, dtype=torch.float64) * 0.5 + 0.2


def deviations(snapshots: np.ndarray, rank: int) -> np.ndarray:
    """(P, k): the last ``rank`` deviations from the mean of all snapshots so far."""
    columns = [snapshots[n] - snapshots[: n + 1].mean(0) for n in range(len(snapshots))]
    return np.stack(columns[-rank:], axis=1)


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()


# ---------------------------------------------------------------------------------------------------------
# Snapshots fed by hand.


@pytest.mark.parametrize(
    ("start", "cycle", "total", "batches", "taken"),
    [
        (0.0, 1, 5, 5, [0, 1, 2, 3, 4]),  # Polyak: every iterate
        (0.75, None, 40, 4, [31, 35, 39]),  # ends of the epochs after the first 30 steps
        (0.5, 3, 20, 7, [11, 14, 17]),
        (0.28, 1, 25, 5, list(range(7, 25))),  # 0.28 x 25 is above 7 in floating point; burn-in is 7 all the same
    ],
)
def test_snapshots_are_taken_when_the_timetable_says(
    start: float, cycle: int | None, total: int, batches: int, taken: list[int]
) -> None:
    means, _ = path(total, 3)
    model = vector_model(3)
    collector = SWA(start=start, cycle=cycle).build(model, total, batches)
    assert collector.timetable.planned == len(taken)
    feed(collector, model, means)
    assert collector.snapshots == len(taken)
    part, posterior = collector.result()
    assert part == Delta()
    np.testing.assert_allclose(numbers(posterior.mean_vector()), numbers(means[taken]).mean(0), rtol=1e-14)


def test_swag_diagonal_is_numpy_mean_and_variance() -> None:
    means, _ = path(7, 4)
    model = vector_model(4)
    collector = SWAGDiagonal(start=0, cycle=1, scale=0.7).build(model, 7, 7)
    feed(collector, model, means)
    part, posterior = collector.result()
    assert part == MeanField()
    np.testing.assert_allclose(numbers(posterior.mean_vector()), numbers(means).mean(0), rtol=1e-14)
    np.testing.assert_allclose(numbers(posterior.std_vector()) ** 2, 0.7 * numbers(means).var(0), rtol=1e-13)


@pytest.mark.parametrize(("count", "rank", "size"), [(9, 4, 6), (4, 4, 6), (3, 2, 6), (9, 8, 3)])
def test_swag_covariance_is_the_stated_one(count: int, rank: int, size: int) -> None:
    """Also with more columns than weights (the last case), where the factor has fewer columns and the same matrix."""
    means, _ = path(count, size)
    model = vector_model(size)
    collector = SWAG(start=0, cycle=1, rank=rank, scale=0.3).build(model, count, count)
    feed(collector, model, means)
    before = torch.get_rng_state()
    part, posterior = collector.result()
    assert torch.equal(before, torch.get_rng_state())
    snapshots = numbers(means)
    columns = deviations(snapshots, rank)
    expected = 0.3 * (np.diag(snapshots.var(0)) + columns @ columns.T / (columns.shape[1] - 1))
    assert part == LowRank(rank=min(rank, size))
    np.testing.assert_allclose(numbers(posterior.mean_vector()), snapshots.mean(0), rtol=1e-14)
    np.testing.assert_allclose(numbers(covariance_of(posterior)), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(numbers(posterior.std_vector()) ** 2, np.diag(expected), rtol=1e-12)


def test_swag_divides_by_the_columns_it_holds() -> None:
    """Stopped after 3 of 6 planned snapshots with rank 5: k = 3, where Maddox's code would divide by 4."""
    means, _ = path(6, 4)
    model = vector_model(4)
    collector = SWAG(start=0, cycle=1, rank=5, scale=0.5).build(model, 6, 6)
    feed(collector, model, means[:3])
    snapshots = numbers(means[:3])
    columns = deviations(snapshots, 5)
    expected = 0.5 * (np.diag(snapshots.var(0)) + columns @ columns.T / 2)
    np.testing.assert_allclose(numbers(covariance_of(collector.result()[1])), expected, rtol=1e-12, atol=1e-14)


def test_draws_of_the_swag_posterior_have_its_covariance() -> None:
    means, _ = path(5, 4)
    model = vector_model(4)
    collector = SWAG(start=0, cycle=1, rank=3, scale=0.4).build(model, 5, 5)
    feed(collector, model, means)
    part, posterior = collector.result()
    ended = model.with_posterior(part, posterior)
    draws = torch.stack([d["weights"] for d in ended.draws(20_000, bw.make_generator(3))])
    snapshots = numbers(means)
    columns = deviations(snapshots, 3)
    assert_covariance_close(draws, 0.4 * (np.diag(snapshots.var(0)) + columns @ columns.T / 2))
    assert_mean_close(draws, snapshots.mean(0))


HWA_VARIANCES = {
    "mixture": lambda means, stds: (stds**2).mean(0) + means.var(0),
    "swag": lambda means, stds: means.var(0),
    "mean": lambda means, stds: (stds**2).mean(0),
}


@pytest.mark.parametrize("variance", HWA_VARIANCES)
@pytest.mark.parametrize("parameter", ["log_std", "rho"])
def test_hwa_variances_are_numpys(variance: str, parameter: str) -> None:
    means, stds = path(6, 5)
    model = vector_model(5, {"name": "mean_field", "parameter": parameter})
    collector = HWA(start=0, cycle=1, variance=variance).build(model, 6, 6)
    for step in range(6):
        put(model, means[step])
        with torch.no_grad():
            if parameter == "log_std":
                model.posterior.log_std.copy_(stds[step].log())
            else:
                model.posterior.rho.copy_(torch.expm1(stds[step]).log())
        collector.observe(model, Progress(step, 6))
    part, posterior = collector.result()
    assert part == MeanField()
    np.testing.assert_allclose(numbers(posterior.mean_vector()), numbers(means).mean(0), rtol=1e-14)
    expected = HWA_VARIANCES[variance](numbers(means), numbers(stds))
    np.testing.assert_allclose(numbers(posterior.std_vector()) ** 2, expected, rtol=1e-12)


def test_mixture_variance_is_the_moment_match_of_the_snapshots_gaussians() -> None:
    """The variance of draws from the uniform mixture, not of a formula."""
    means, stds = path(6, 3)
    model = vector_model(3, "mean_field")
    collector = HWA(start=0, cycle=1).build(model, 6, 6)
    feed(collector, model, means, stds)
    generator = torch.Generator().manual_seed(8)
    chosen = torch.randint(0, 6, (200_000,), generator=generator)
    noise = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    draws = means[chosen] + stds[chosen] * noise
    assert_mean_close(draws, collector.result()[1].mean_vector().detach())
    assert_variance_close(draws, collector.result()[1].std_vector().detach() ** 2, law="any")


@pytest.mark.parametrize("variance", ["mixture", "swag"])
def test_hwa_low_rank_is_equation_5_for_the_spread_of_the_means(variance: str) -> None:
    means, stds = path(7, 5)
    model = vector_model(5, "mean_field")
    collector = HWA(start=0, cycle=1, variance=variance, covariance="low_rank", columns=4).build(model, 7, 7)
    feed(collector, model, means, stds)
    part, posterior = collector.result()
    snapshots = numbers(means)
    columns = deviations(snapshots, 4)
    expected = np.diag(snapshots.var(0)) / 2 + columns @ columns.T / (2 * 3)
    if variance == "mixture":
        expected += np.diag((numbers(stds) ** 2).mean(0))
    assert part == LowRank(rank=4)
    np.testing.assert_allclose(numbers(covariance_of(posterior)), expected, rtol=1e-12, atol=1e-14)


def test_hwa_on_a_point_is_swag() -> None:
    means, _ = path(6, 4)
    model = vector_model(4)
    collector = HWA(start=0, cycle=1).build(model, 6, 6)
    feed(collector, model, means)
    np.testing.assert_allclose(numbers(collector.result()[1].std_vector()) ** 2, numbers(means).var(0), rtol=1e-12)


def test_constant_iterates_give_the_constant() -> None:
    mean, std = torch.tensor([0.3, -2.1, 5.0]).double(), torch.tensor([0.2, 0.7, 1.4]).double()
    means, stds = mean.expand(5, -1), std.expand(5, -1)
    model = vector_model(3, "mean_field")
    expected = {"mixture": std, "mean": std, "swag": torch.full_like(std, 1e-15)}
    for variance, wanted in expected.items():
        collector = HWA(start=0, cycle=1, variance=variance).build(model, 5, 5)
        feed(collector, model, means, stds)
        posterior = collector.result()[1]
        torch.testing.assert_close(posterior.mean_vector(), mean, rtol=1e-15, atol=0)
        torch.testing.assert_close(posterior.std_vector(), wanted, rtol=1e-12, atol=0)
        assert bool(posterior.entropy().isfinite())
    for part in (SWA(start=0, cycle=1), SWAG(start=0, cycle=1), SWAGDiagonal(start=0, cycle=1)):
        collector = part.build(model, 5, 5)
        feed(collector, model, means, stds)
        posterior = collector.result()[1]
        torch.testing.assert_close(posterior.mean_vector(), mean, rtol=1e-15, atol=0)
        assert float(posterior.std_vector().detach().max()) <= 1.000001e-15


def test_the_printed_equation_goes_negative() -> None:
    """Eq. (4) to the letter, on n equal snapshots: -a^2 (n - 1) / 2."""
    a = torch.tensor([0.4, -1.7, 3.0], dtype=torch.float64)
    for n in (1, 2, 3, 10):
        torch.testing.assert_close(literal_variance(a.expand(n, -1)), -a.square() * (n - 1) / 2)
    means, _ = path(6, 3)
    assert bool((literal_variance(means) < 0).all())  # and not only there
    with pytest.raises(SettingError, match=r"'literal' .* negative .* use 'swag' .* or 'mixture'"):
        HWA(variance="literal")


def test_averaging_commutes_with_affine_maps() -> None:
    means, stds = path(6, 4)
    scale, shift = torch.tensor([2.0, -0.5, 3.0, 0.1]).double(), torch.tensor([1.0, 2.0, -7.0, 0.3]).double()
    results = []
    for m, s in ((means, stds), (scale * means + shift, scale.abs() * stds)):
        model = vector_model(4, "mean_field")
        collector = HWA(start=0, cycle=1).build(model, 6, 6)
        feed(collector, model, m, s)
        results.append(collector.result()[1])
    torch.testing.assert_close(results[1].mean_vector(), scale * results[0].mean_vector() + shift)
    torch.testing.assert_close(results[1].std_vector(), scale.abs() * results[0].std_vector())


@pytest.mark.parametrize("part", [SWAGDiagonal(start=0, cycle=1), SWAG(start=0, cycle=1), HWA(start=0, cycle=1)])
def test_no_cancellation_where_means_are_far_larger_than_stds(part: Any) -> None:
    """Weights near 1000 in float32 that differ in their last few bits: mean(w^2) - mean(w)^2 would be noise."""
    generator = torch.Generator().manual_seed(4)
    size, count = 200, 12
    means = 1000 + 1e-3 * torch.randn(count, size, generator=generator)
    naive = means.square().mean(0) - means.mean(0).square()
    exact = numbers(means.double()).var(0)
    assert np.median(np.abs(numbers(naive) / exact - 1)) > 1  # the formula that is not used here
    model = vector_model(size, dtype=torch.float32)
    collector = part.build(model, count, count)
    feed(collector, model, means)
    posterior = collector.result()[1]
    np.testing.assert_allclose(numbers(posterior.mean_vector()), numbers(means.double()).mean(0), rtol=1e-7)
    if isinstance(part, SWAG):
        columns = deviations(numbers(means.double()), 20)
        exact = 0.5 * exact + 0.5 * (columns**2).sum(1) / (count - 1)
    np.testing.assert_allclose(numbers(posterior.std_vector()) ** 2, exact, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------
# SGD on a quadratic: w <- w - eta (A w + noise), noise of variance C.

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


# ---------------------------------------------------------------------------------------------------------
# Feedback.


def test_restart_moves_the_iterate_to_the_average() -> None:
    means, stds = path(6, 3)
    model = vector_model(3, "mean_field")
    collector = HWA(start=0, cycle=2, feedback="restart").build(model, 6, 6)
    taken: list[Tensor] = []
    for step in range(6):
        put(model, means[step], stds[step])
        collector.observe(model, Progress(step, 6))
        if step % 2:
            taken.append(means[step])
            torch.testing.assert_close(model.posterior.mean_vector().detach(), torch.stack(taken).mean(0))
        else:
            assert torch.equal(model.posterior.mean_vector(), means[step])
        torch.testing.assert_close(model.posterior.std_vector().detach(), stds[step])


@pytest.mark.parametrize("parameter", ["log_std", "rho"])
def test_sample_feedback_makes_steps_see_the_average_covariance(parameter: str) -> None:
    """After every step the posterior is N(iterate, Sigma_H), whatever the optimizer did to its stds."""
    means, stds = path(6, 4)
    model = vector_model(4, {"name": "mean_field", "parameter": parameter})
    collector = HWA(start=0, cycle=2, feedback="sample").build(model, 6, 6)
    spread = torch.zeros(4)
    for step in range(6):
        put(model, means[step])
        with torch.no_grad():
            getattr(model.posterior, parameter).copy_(
                stds[step].log() if parameter == "log_std" else torch.expm1(stds[step]).log()
            )
        collector.observe(model, Progress(step, 6))
        assert torch.equal(model.posterior.mean_vector(), means[step])
        if step == 0:  # no snapshot yet
            torch.testing.assert_close(model.posterior.std_vector().detach(), stds[0])
            continue
        so_far = means[1 : step + 1 : 2]
        spread = (stds[1].square() + so_far.var(0, correction=0)).sqrt()
        torch.testing.assert_close(model.posterior.std_vector().detach(), spread)
    torch.testing.assert_close(collector.result()[1].std_vector().detach(), spread)


def test_sample_feedback_of_the_swag_variance_waits_for_a_second_snapshot() -> None:
    means, stds = path(3, 4)
    model = vector_model(4, "mean_field")
    collector = HWA(start=0, cycle=1, feedback="sample", variance="swag").build(model, 3, 3)
    put(model, means[0], stds[0])
    collector.observe(model, Progress(0, 3))
    torch.testing.assert_close(model.posterior.std_vector().detach(), stds[0])
    put(model, means[1], stds[1])
    collector.observe(model, Progress(1, 3))
    torch.testing.assert_close(model.posterior.std_vector().detach(), means[:2].std(0, correction=0))


# ---------------------------------------------------------------------------------------------------------
# Networks: training, deterministic parameters, banks.


def trained(net: nn.Module, inputs: Tensor, posterior: Any, part: Any, steps: int = 12) -> tuple[Any, Any, list[Any]]:
    """A short run of SGD with a collector; the states of the model after every step."""
    model = lift(net, posterior, prior={"name": "normal", "std": 1.3})
    elbo = bw.ELBO("categorical", 50)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    targets = torch.arange(len(inputs)) % 3
    collector = part.build(model, steps, 3)
    states = []
    for step in range(steps):
        optimizer.zero_grad()
        elbo(model, inputs, targets, generator=bw.make_generator(step)).total.backward()
        optimizer.step()
        collector.observe(model, Progress(step, steps, step % 3, 3))
        states.append(copy.deepcopy(model.state_dict()))
    return model, collector, states


def test_polyak_average_of_a_run() -> None:
    net, inputs = make("mlp")
    model, collector, states = trained(net, inputs, "delta", SWA(start=0, cycle=1))
    exact = torch.stack([state["posterior.mean"].double() for state in states]).mean(0)
    part, posterior = collector.result()
    torch.testing.assert_close(posterior.mean_vector().detach(), exact.float(), rtol=1e-6, atol=0)
    ended = model.with_posterior(part, posterior).eval()
    assert torch.equal(ended(inputs), ended(inputs))
    assert not torch.equal(ended(inputs), model.eval()(inputs))


@pytest.mark.parametrize(
    ("part", "posterior"),
    [
        ("swa", "delta"),
        ("swag_diag", "delta"),
        ({"name": "swag", "start": 0.25}, "delta"),
        ("hwa", "mean_field"),
        ({"name": "hwa", "start": 0.25, "covariance": "low_rank"}, "k_tied"),
        ({"name": "hwa", "start": 0.25, "feedback": "restart"}, "full"),
        ({"name": "hwa", "start": 0.25, "feedback": "sample"}, "mean_field"),
        ({"name": "bank", "thinning": 2}, "delta"),
    ],
)
def test_the_result_predicts_saves_and_loads(part: Any, posterior: Any, tmp_path: Path) -> None:
    net, inputs = make("mlp")
    start = {"name": part, "start": 0.25} if part in ("swag_diag", "swa", "hwa") else part
    model, collector, _ = trained(net, inputs, posterior, AVERAGING.resolve(start))
    ended = model.with_posterior(*collector.result())
    predicted = bw.predict(ended, inputs, bw.Categorical(), draws=5, seed=1).probabilities
    torch.testing.assert_close(predicted.sum(1), torch.ones(len(inputs)))
    bw.save(tmp_path / "model", ended, "categorical")
    loaded = bw.load(tmp_path / "model", make("mlp")[0])
    again = bw.predict(loaded.model, inputs, bw.Categorical(), draws=5, seed=1).probabilities
    assert torch.equal(predicted, again)


def test_trained_parameters_without_posterior_are_averaged_too() -> None:
    net, inputs = make("normalised")
    net.out.bias.requires_grad_(False)  # frozen: neither Bayesian nor averaged
    _, collector, states = trained(net, inputs, "delta", SWA(start=0.5, cycle=2))
    averages = collector.deterministic()
    norms = {"batch_norm", "group_norm", "layer_norm"}
    assert set(averages) == {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
    for name, average in averages.items():
        exact = torch.stack([states[step][f"net.{name}"].double() for step in (7, 9, 11)]).mean(0)
        torch.testing.assert_close(average, exact.float(), rtol=1e-6, atol=1e-9)
        assert not torch.equal(average, states[-1][f"net.{name}"])


@pytest.mark.parametrize("on_disk", [False, True])
def test_bank_keeps_the_draws_with_what_belongs_to_them(on_disk: bool, tmp_path: Path) -> None:
    net, inputs = make("normalised")
    folder = str(tmp_path / "draws") if on_disk else None
    model, collector, states = trained(net, inputs, "delta", Bank(burn_in=3, thinning=2, folder=folder))
    kept = [4, 6, 8, 10]
    part, posterior = collector.result()
    assert isinstance(part, Empirical)
    assert isinstance(posterior, EmpiricalPosterior)
    assert part.count == collector.snapshots == len(kept)
    assert torch.equal(posterior.weights, torch.stack([states[step]["posterior.mean"] for step in kept]))
    names = {name.removeprefix("net.") for name in states[0] if name.startswith("net.")}
    assert {"batch_norm.running_mean", "batch_norm.num_batches_tracked", "batch_norm.weight"} <= names
    assert set(part.extras) == names
    for index, step in enumerate(kept):
        member = posterior.member(index)
        for name in names:
            assert torch.equal(member[name], states[step][f"net.{name}"])
            assert member[name].dtype == states[step][f"net.{name}"].dtype
        then = copy.deepcopy(model)
        then.load_state_dict(states[step])
        ended = model.with_posterior(part, posterior).eval()
        torch.testing.assert_close(ended.call(member, inputs), then.eval()(inputs))
    files = list((tmp_path / "draws").glob("*")) if on_disk else []
    assert len(files) == (1 if on_disk else 0)


def test_a_bank_on_disk_is_mapped_and_cannot_be_changed_by_accident(tmp_path: Path) -> None:
    model = vector_model(5, dtype=torch.float32)
    collector = Bank(burn_in=0, thinning=1, folder=str(tmp_path)).build(model, 4, 4)
    means = path(4, 5)[0].float()
    feed(collector, model, means)
    posterior = collector.result()[1]
    with torch.no_grad():
        posterior.weights.zero_()
    assert torch.equal(collector.result()[1].weights, means)
    before = (next(tmp_path.iterdir())).read_bytes()
    assert before[:20] == means[0].numpy().tobytes()


def temporary_banks() -> set[str]:
    return {entry.name for entry in Path(tempfile.gettempdir()).glob("bayeswell-bank-*")}


@pytest.mark.parametrize("spare", [0, -1])
def test_a_large_bank_goes_to_disk_by_itself_and_leaves_nothing_behind(
    spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 planned draws of 5 float32 weights, in rows of 24 bytes: one byte below that, they go to a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model, means = vector_model(5, dtype=torch.float32), path(7, 5)[0].float()
    collector = Bank(burn_in=0, thinning=1, memory_limit=7 * 24 + spare).build(model, 7, 7)
    feed(collector, model, means)
    found = temporary_banks()
    assert len(found) == (1 if spare < 0 else 0)
    weights = collector.result()[1].weights
    assert torch.equal(weights, means)
    state = collector.state_dict()
    del collector
    gc.collect()
    assert not temporary_banks()
    # What was mapped outlives the file: the posterior, and a state that is saved later.
    assert torch.equal(weights, means)
    again = Bank(burn_in=0, thinning=1).build(model, 7, 7)
    again.load_state_dict(state)
    assert torch.equal(again.result()[1].weights, means)


def test_a_bank_moves_between_memory_and_disk(tmp_path: Path) -> None:
    """A state from memory goes on in a file, under a lower limit or in a folder of its own, with the same draws."""
    model, means = vector_model(3), path(6, 3)[0]
    collector = Bank(burn_in=0, thinning=1).build(model, 6, 6)
    feed(collector, model, means[:4])
    for part in (Bank(0, 1, memory_limit=0), Bank(0, 1, folder=str(tmp_path))):
        moved = part.build(model, 6, 6)
        moved.load_state_dict(collector.state_dict())
        for step in (4, 5):
            put(model, means[step])
            moved.observe(model, Progress(step, 6))
        assert torch.equal(moved.result()[1].weights, means)
    assert (next(tmp_path.iterdir())).read_bytes() == means.numpy().tobytes()
    with pytest.raises(SettingError, match="give the same 'folder'"):
        Bank(0, 1).build(model, 6, 6).load_state_dict(moved.state_dict())


ANOTHER_PROCESS = """
import sys, torch
sys.path.insert(0, {tests!r})
from test_averaging import Bank, feed, path, vector_model
means = path(6, 3)[0]
for name, settings in (("temporary", {{"memory_limit": 0}}), ("kept", {{"folder": {folder!r}}})):
    model = vector_model(3)
    collector = Bank(0, 1, **settings).build(model, 6, 6)
    feed(collector, model, means[:4])
    torch.save(collector.state_dict(), f"{where}/{{name}}.pt")
    # Lost with the process that ends here.
    feed(collector, model, means[4:5] + 1)
"""


def test_a_bank_on_disk_goes_on_in_another_process(tmp_path: Path) -> None:
    """The first four draws there, the last two here; the temporary folder of the first process is gone."""
    script = ANOTHER_PROCESS.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "draws"), where=tmp_path)
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, cwd=tmp_path)
    assert not list((tmp_path / "tmp").glob("bayeswell-bank-*"))
    model, means = vector_model(3), path(6, 3)[0]
    for name, part in (("temporary", Bank(0, 1, memory_limit=0)), ("kept", Bank(0, 1, folder=str(tmp_path / "draws")))):
        collector = part.build(model, 6, 6)
        collector.load_state_dict(torch.load(tmp_path / f"{name}.pt", weights_only=True))
        for step in (4, 5):
            put(model, means[step])
            collector.observe(model, Progress(step, 6))
        assert torch.equal(collector.result()[1].weights, means), name


def test_bank_defaults_spread_over_the_second_half() -> None:
    model = vector_model(2)
    collector = Bank(max_draws=10).build(model, 70, 7)
    means, _ = path(70, 2)
    feed(collector, model, means)
    # 35 steps are left, every 4th of them is kept: 8 draws, no more than 10.
    assert torch.equal(collector.result()[1].weights, means[35:][3::4])


def test_bank_counts_observed_steps_only() -> None:
    """A sampler that explores does not show those steps; thinning counts the others."""
    model, (means, _) = vector_model(2), path(20, 2)
    collector = Bank(burn_in=4, thinning=2).build(model, 20, 5)
    shown = [step for step in range(20) if step % 5 >= 2]
    for step in shown:
        put(model, means[step])
        collector.observe(model, Progress(step, 20))
    kept = [step for step in shown if step >= 4][1::2]
    assert torch.equal(collector.result()[1].weights, means[kept])


def test_bank_past_the_plan_says_so_once() -> None:
    model, (means, _) = vector_model(2), path(8, 2)
    collector = Bank(burn_in=0, thinning=1, max_draws=5).build(model, 5, 5)
    with pytest.warns(bw.BayeswellWarning, match=r"step 5 is past the plan .*max_draws = 5") as told:
        feed(collector, model, means)
    assert len(told) == 1
    assert torch.equal(collector.result()[1].weights, means[:5])


# ---------------------------------------------------------------------------------------------------------
# States.

RESUMABLE = {
    "swa": (SWA(start=0.2, cycle=2), "delta"),
    "swag_diag": (SWAGDiagonal(start=0.2, cycle=2), "delta"),
    "swag": (SWAG(start=0.2, cycle=2, rank=3), "delta"),
    "hwa": (HWA(start=0.2, cycle=2), "mean_field"),
    "hwa low rank": (HWA(start=0.2, cycle=1, covariance="low_rank", columns=4), "mean_field"),
    "hwa sample": (HWA(start=0.2, cycle=2, feedback="sample"), "mean_field"),
    "bank": (Bank(burn_in=3, thinning=2), "delta"),
    "bank in a temporary file": (Bank(burn_in=3, thinning=2, memory_limit=0), "delta"),
}


def result_numbers(collector: Collector) -> dict[str, Tensor]:
    part, posterior = collector.result()
    return {"part": torch.tensor(hash(part)), **posterior.state_dict()}


@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("cut", [0, 5, 11])
def test_a_run_resumed_mid_way_ends_bit_for_bit_as_one_that_was_not(name: str, cut: int) -> None:
    part, posterior = RESUMABLE[name]
    means, stds = path(20, 4)
    model = vector_model(4, posterior, torch.float32)
    spreads = None if posterior == "delta" else stds.float()
    whole = part.build(model, 20, 5)
    feed(whole, model, means.float(), spreads)

    first = part.build(model, 20, 5)
    state: dict[str, Any] = {}
    for step in range(20):
        if step == cut:
            state = first.state_dict()
        put(model, means[step].float(), None if spreads is None else spreads[step])
        first.observe(model, Progress(step, 20))  # what comes after must not reach into the state
    second = part.build(model, 20, 5)
    second.load_state_dict(state)
    for step in range(cut, 20):
        put(model, means[step].float(), None if spreads is None else spreads[step])
        second.observe(model, Progress(step, 20))
    expected, found = result_numbers(whole), result_numbers(second)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert torch.equal(value, found[key]), key
    plain = (int, str, Tensor)
    assert all(isinstance(value, plain) for value in state.values())


@pytest.mark.parametrize("part", [SWA(start=0, cycle=2), Bank(burn_in=1, thinning=2)])
def test_what_has_no_posterior_is_resumed_too(part: Any) -> None:
    net, inputs = make("normalised")
    model, whole, states = trained(net, inputs, "delta", part)
    first, second = part.build(model, 12, 3), part.build(model, 12, 3)
    for step, state in enumerate(states):
        if step == 5:
            second.load_state_dict(first.state_dict())
        model.load_state_dict(state)
        (first if step < 5 else second).observe(model, Progress(step, 12))
    for key, value in whole.state_dict().items():
        assert np.array_equal(value, second.state_dict()[key]), key
    expected, found = result_numbers(whole), result_numbers(second)
    assert len(expected) > 1
    assert all(torch.equal(value, found[key]) for key, value in expected.items())


def test_two_branches_of_a_bank_on_disk_do_not_touch_each_other(tmp_path: Path) -> None:
    part = Bank(burn_in=0, thinning=1, folder=str(tmp_path))
    model, (means, _) = vector_model(3), path(6, 3)
    other = means + 10
    collector = part.build(model, 6, 6)
    feed(collector, model, means[:2])
    early = collector.state_dict()
    for step in range(2, 4):
        put(model, means[step])
        collector.observe(model, Progress(step, 6))
    late = collector.state_dict()
    branch = part.build(model, 6, 6)
    branch.load_state_dict(early)
    for step in range(2, 6):
        put(model, other[step])
        branch.observe(model, Progress(step, 6))
    resumed = part.build(model, 6, 6)
    resumed.load_state_dict(late)
    for step in range(4, 6):
        put(model, means[step])
        resumed.observe(model, Progress(step, 6))
    assert torch.equal(resumed.result()[1].weights, means)
    assert torch.equal(branch.result()[1].weights, torch.cat([means[:2], other[2:]]))
    assert len(list(tmp_path.iterdir())) == 2  # the file was copied once, for the branch
    path_of = tmp_path / late["file"]
    path_of.write_bytes(path_of.read_bytes()[:-1])
    cut_short = part.build(model, 6, 6)
    with pytest.raises(FileError, match=r"has 143 bytes, 144 were saved; restore it"):
        cut_short.load_state_dict(resumed.state_dict())
    path_of.unlink()
    with pytest.raises(FileError, match="is missing; restore it"):
        cut_short.load_state_dict(late)


def test_states_of_other_networks_are_refused() -> None:
    for part, posterior in RESUMABLE.values():
        small, large = vector_model(3, posterior), vector_model(4, posterior)
        collector = part.build(small, 20, 5)
        feed(collector, small, path(20, 3)[0])
        with pytest.raises(SettingError, match=r"belong"):
            part.build(large, 20, 5).load_state_dict(collector.state_dict())
        with pytest.raises(SettingError, match=r"it is not the state of a"):
            part.build(large, 20, 5).load_state_dict({})


# ---------------------------------------------------------------------------------------------------------
# Bad input.


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("swa", {"start": 1.0}, "swa: start = 1.0; it is the fraction of the planned steps .* below 1"),
        ("swa", {"start": -0.1}, "swa: start = -0.1"),
        ("swa", {"start": float("nan")}, "swa: start = nan"),
        ("swag", {"cycle": 0}, "swag: cycle = 0; it must be a whole number of at least 1"),
        ("swag", {"rank": 1}, "swag: rank = 1; .* at least 2"),
        ("swag", {"rank": 2.5}, "swag: rank = 2.5"),
        ("swag", {"scale": 0.0}, "swag: scale = 0.0; it must be a finite number above 0"),
        ("swag_diag", {"scale": -1.0}, "swag_diag: scale = -1.0"),
        ("hwa", {"variance": "mixtur"}, "hwa: variance = 'mixtur'; did you mean 'mixture'"),
        ("hwa", {"covariance": "full"}, "hwa: covariance = 'full'; allowed: diagonal, low_rank"),
        ("hwa", {"feedback": "loop"}, "hwa: feedback = 'loop'; allowed: none, restart, sample"),
        ("hwa", {"columns": 1}, "hwa: columns = 1; .* at least 2"),
        ("hwa", {"variance": "mean", "covariance": "low_rank"}, "low_rank.*variance = 'mean'"),
        ("hwa", {"feedback": "sample", "covariance": "low_rank"}, "feedback = 'sample'.*low_rank"),
        ("bank", {"burn_in": -1}, "bank: burn_in = -1; it must be a whole number of steps, 0 or more"),
        ("bank", {"thinning": 0}, "bank: thinning = 0"),
        ("bank", {"max_draws": 0}, "bank: max_draws = 0"),
        ("bank", {"memory_limit": -1}, "bank: memory_limit = -1; it must be a number of bytes, 0 or more"),
        ("swags", {}, "unknown collector 'swags'; did you mean 'swag'"),
    ],
)
def test_settings_that_cannot_work_are_refused(part: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        AVERAGING.resolve({"name": part, **settings})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (SWA(start=0.9, cycle=20), r"swa: start = 0.9 and cycle = 20 steps give 0 snapshots in 30 steps"),
        (SWAG(cycle=10), r"swag: .* give 1 snapshots in 30 steps, and at least 2 are needed; train longer"),
        (SWAG(start=0, cycle=5, rank=7), r"swag: rank = 7 exceeds the 6 snapshots of the plan .*use at most 6"),
        (HWA(cycle=10), r"hwa: .* at least 2 are needed"),  # on a point the variance is the spread
        (Bank(burn_in=30), r"bank: burn_in = 30 steps, and only 30 are planned; use less than 30"),
        (Bank(burn_in=20, thinning=11), r"bank: thinning = 11 keeps no draw of the 10 steps .* at most 10"),
        (Bank(burn_in=0, thinning=2, max_draws=10), r"would keep 15 draws, more than max_draws = 10; use thinning = 3"),
    ],
)
def test_plans_that_cannot_work_are_refused_before_training(part: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        part.build(vector_model(3), 30, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "posterior", "message"),
    [
        (HWA(variance="mean"), "delta", "hwa.*posterior 'delta'.*'swa'"),
        (HWA(feedback="sample"), "k_tied", "hwa.feedback='sample'.*posterior 'k_tied'.*'mean_field'"),
        (HWA(feedback="sample"), "delta", "hwa.feedback='sample'.*posterior 'delta'"),
        (Bank(), "mean_field", "'bank'.*posterior 'mean_field'.*'delta'"),
    ],
)
def test_parts_that_cannot_work_together_are_refused(part: Any, posterior: str, message: str) -> None:
    model = lift(nn.Linear(4, 3), posterior)
    with pytest.raises(CompositionError, match=message):
        part.build(model, 400, 10)


@pytest.mark.parametrize("name", RESUMABLE)
def test_no_snapshot_no_result(name: str) -> None:
    part, posterior = RESUMABLE[name]
    model = vector_model(3, posterior)
    collector = part.build(model, 20, 5)
    with pytest.raises(SettingError, match=r"^\w+: (0 snapshots were taken|no draw was kept).*train longer"):
        collector.result()


@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_snapshot_that_is_not_finite_is_refused_and_the_others_kept(name: str, value: float) -> None:
    part, posterior = RESUMABLE[name]
    model = vector_model(4, posterior)
    means, stds = path(20, 4)
    collector = part.build(model, 20, 5)
    feed(collector, model, means, None if posterior == "delta" else stds)
    before = collector.state_dict()
    broken = means[0].clone()
    broken[2] = value
    put(model, broken)
    due = 40 if name.startswith("bank") else next(step for step in (40, 41) if collector.timetable.due(Progress(step)))
    with pytest.raises(DivergenceError, match=rf"the weights after step {due} hold NaN or inf"):
        collector.observe(model, Progress(due))
    after = collector.state_dict()
    for key in before:
        assert np.array_equal(before[key], after[key]), key


def test_stds_that_overflow_are_refused_before_anything_changes() -> None:
    model, (means, stds) = vector_model(4, "mean_field"), path(3, 4)
    collector = HWA(start=0, cycle=1).build(model, 3, 3)
    feed(collector, model, means[:2], stds[:2])
    before = collector.state_dict()
    put(model, means[2], torch.full((4,), float("inf")).double())
    with pytest.raises(DivergenceError, match="the stds of the weights after step 2"):
        collector.observe(model, Progress(2, 3))
    after = collector.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_a_folder_that_cannot_hold_the_draws_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = vector_model(3)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FileError, match=re.escape(f"bank: folder = '{blocked}' cannot be made")):
        Bank(folder=str(blocked)).build(model, 10, 5)
    import shutil

    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 1000, 100))
    with pytest.raises(FileError, match=r"5 draws of 24 bytes do not fit .*100 bytes are free"):
        Bank(folder=str(tmp_path)).build(model, 10, 5)


@pytest.mark.parametrize("name", RESUMABLE)
def test_every_collector_says_where_other_parameters_end(name: str) -> None:
    """None here: all are Bayesian, and a bank keeps them with each draw."""
    part, posterior = RESUMABLE[name]
    model = vector_model(3, posterior)
    collector: Collector = part.build(model, 20, 5)
    assert collector.deterministic() == {}


def test_every_part_has_a_name_a_summary_and_a_paper() -> None:
    assert list(AVERAGING) == ["swa", "ema", "swag_diag", "swag", "hwa", "bank"]
    for summary, paper in AVERAGING.summaries().values():
        assert summary.endswith(".")
        assert paper


def test_a_flipped_bit_in_a_bank_on_disk_is_found(tmp_path: Path) -> None:
    rows = FileRows(tmp_path, 16, 3)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 256, (3, 16), generator=generator, dtype=torch.uint8)
    for row in drawn[:2]:
        rows.append(row)
    state = rows.state_dict()
    rows.append(drawn[2])
    fresh = FileRows(tmp_path, 16, 3)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.matrix(), drawn[:2])
    file = tmp_path / state["file"]
    data = bytearray(file.read_bytes())
    data[20] ^= 4
    file.write_bytes(bytes(data))
    with pytest.raises(bw.FileError, match="altered"):
        FileRows(tmp_path, 16, 3).load_state_dict(state)
