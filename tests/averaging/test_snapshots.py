"""Averages of snapshots fed by hand, against numpy.

Statistical checks fail correct code at a rate of 1e-6 each, with fixed seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bayeswell as bw
from averaging.paths import feed, path, put, vector_model
from bayeswell.averaging import HWA, SWA, SWAG, SWAGDiagonal, literal_variance
from bayeswell.errors import SettingError
from bayeswell.posteriors import Delta, LowRank, MeanField
from bayeswell.types import Progress
from nets import covariance_of
from truths.statistics import assert_covariance_close, assert_mean_close, assert_variance_close


def deviations(snapshots: np.ndarray, rank: int) -> np.ndarray:
    """(P, k): the last ``rank`` deviations from the mean of all snapshots so far."""
    columns = [snapshots[n] - snapshots[: n + 1].mean(0) for n in range(len(snapshots))]
    return np.stack(columns[-rank:], axis=1)


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()


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
    generator, size = bw.make_generator(3), posterior.noise_size
    noise = torch.stack([torch.randn(size, dtype=torch.float64, generator=generator) for _ in range(20_000)])
    draws = posterior.sample(noise).detach()
    for drawn, row in zip(ended.draws(100, bw.make_generator(3)), draws, strict=False):  # the model's own are the same
        torch.testing.assert_close(drawn["weights"], row)
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
