"""R-hat and effective sample sizes against known autoregressive chains and direct formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.metrics import chain_report, ess, r_hat
from bayeswell.metrics.chains import _f_quantile


def _ar1(chains: int, draws: int, phi: float, quantities: int, seed: int = 1) -> Tensor:
    """Stationary chains x_t = phi x_(t-1) + sqrt(1 - phi^2) e_t."""
    noise = torch.randn(draws, chains, quantities, dtype=torch.float64, generator=make_generator(seed))
    found = [noise[0]]
    for step in noise[1:]:
        found.append(phi * found[-1] + math.sqrt(1 - phi**2) * step)
    return torch.stack(found, 1)


def _converged(draws: Tensor) -> bool:
    report = chain_report(draws)
    return report.r_hat <= report.r_hat_limit and report.median_ess >= report.ess_limit


@pytest.mark.parametrize("phi", [-0.3, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregressive_chain(phi: float) -> None:
    found = ess(_ar1(4, 2000, phi, 40))
    expected = 8000 * (1 - phi) / (1 + phi)
    # Over 40 quantities the mean has a relative error of 1 to 2 %; Geyer's truncation adds a few per cent.
    assert float(found.mean()) == pytest.approx(expected, rel=0.1)


def test_ess_matches_a_direct_sum() -> None:
    draws = _ar1(3, 40, 0.6, 1)[..., 0]
    halves = np.concatenate([draws[:, :20].numpy(), draws[:, 20:].numpy()])
    halves = stats.norm.ppf((stats.rankdata(halves).reshape(halves.shape) - 0.375) / (halves.size + 0.25))
    n = 20
    centered = halves - halves.mean(1, keepdims=True)
    covariance = np.array([(centered[:, : n - t] * centered[:, t:]).sum(1) / (n - 1) for t in range(n)]).mean(1)
    within = halves.var(1, ddof=1).mean()
    total = (n - 1) / n * within + halves.mean(1).var(ddof=1)
    rho = 1 - (within - covariance) / total
    sums, smallest = 0.0, math.inf
    for t in range(0, n, 2):
        pair = rho[t] + rho[t + 1]
        if pair <= 0:
            break
        smallest = min(smallest, pair)
        sums += smallest
    assert float(ess(draws)) == pytest.approx(120 / (2 * sums - 1))


def test_r_hat_matches_a_direct_formula() -> None:
    draws = _ar1(3, 40, 0.6, 1)[..., 0].exp()
    halves = np.concatenate([draws[:, :20].numpy(), draws[:, 20:].numpy()])

    def plain(values: np.ndarray) -> float:
        scores = stats.norm.ppf((stats.rankdata(values).reshape(values.shape) - 0.375) / (values.size + 0.25))
        within, between = scores.var(1, ddof=1).mean(), scores.mean(1).var(ddof=1)
        return math.sqrt((19 / 20 * within + between) / within)

    expected = max(plain(halves), plain(np.abs(halves - np.median(halves))))
    assert float(r_hat(draws)) == pytest.approx(expected)


def test_r_hat_notices_location_spread_and_drift() -> None:
    draws = _ar1(4, 500, 0.0, 3)
    assert float(r_hat(draws).max()) < 1.02
    moved, wide, drifting = draws.clone(), draws.clone(), draws.clone()
    moved[0] += 2
    wide[0] *= 5
    drifting += torch.linspace(0, 3, 500, dtype=torch.float64)[:, None]
    for wrong in (moved, wide, drifting):
        assert float(r_hat(wrong).min()) > 1.05
        assert not _converged(wrong)


def test_rank_normalized_numbers_do_not_depend_on_the_scale() -> None:
    draws = _ar1(2, 100, 0.5, 5)
    torch.testing.assert_close(ess(draws), ess(draws.exp()))
    heavy = (0.49 * math.pi * torch.tanh(draws)).tan()
    assert bool(r_hat(heavy).isfinite().all())


def test_constant_and_stuck_chains() -> None:
    constant = torch.ones(2, 10, 1)
    stuck = torch.tensor([0.1, 0.7])[:, None, None].expand(2, 10, 1)
    assert bool(r_hat(constant).isnan().all())
    assert bool(ess(constant).isnan().all())
    assert float(r_hat(stuck)) == math.inf
    assert not _converged(constant)
    mixed = chain_report(torch.cat([constant.expand(2, 10, 1), torch.randn(2, 10, 3)], -1))
    assert math.isfinite(mixed.r_hat)


def test_independent_draws_converge_and_the_limit_follows_chance() -> None:
    reports = [chain_report(_ar1(chains, draws, 0.0, 100, seed=3)) for chains, draws in ((1, 40), (4, 100), (4, 1000))]
    assert all(report.r_hat <= report.r_hat_limit for report in reports)
    assert reports[0].r_hat_limit > reports[1].r_hat_limit > reports[2].r_hat_limit >= 1.01
    assert reports[2].ess_limit == 400


def test_slow_chains_have_too_few_effective_draws() -> None:
    report = chain_report(_ar1(2, 200, 0.98, 20))
    assert report.median_ess < report.ess_limit


@pytest.mark.parametrize(("above", "below"), [(1, 38.0), (3, 60.0), (7, 400.0)])
@pytest.mark.parametrize("tail", [1e-2, 1e-5])
def test_f_quantile_is_near_the_exact_one(above: float, below: float, tail: float) -> None:
    assert _f_quantile(tail, above, below) == pytest.approx(stats.f.isf(tail, above, below), rel=0.1)


def test_wrong_draws_are_refused() -> None:
    with pytest.raises(DataError, match="at least 4 draws"):
        r_hat(torch.randn(2, 3))
    with pytest.raises(DataError, match="NaN"):
        ess(torch.full((2, 10), math.nan))
