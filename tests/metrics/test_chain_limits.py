"""Limits of R-hat and ESS that independent draws pass and chains that have not mixed do not.

Rates are of repeated trials with fixed seeds. Independent draws are above the limit of
R-hat in at most 1 trial of 100: 2 of 30 happen with a chance of at most 4 % (these seeds: none).
"""

from __future__ import annotations

import functools

import pytest
import scipy.stats
import torch
from torch import Tensor

from bayeswell.metrics.chains import FALSE_ALARMS, ChainReport, chain_report
from bayeswell.metrics.fisher import fisher_quantile, incomplete_beta
from metrics.test_chains import autoregressive, normal

QUANTITIES = 160


@pytest.mark.parametrize("tail", [0.3, 1e-3, 7.8e-6])
@pytest.mark.parametrize(("above", "below"), [(1, 98), (3, 12.5), (7, 3992), (9, 2), (1, 2)])
def test_quantiles_of_fishers_distribution(tail: float, above: float, below: float) -> None:
    assert fisher_quantile(tail, above, below) == pytest.approx(scipy.stats.f.isf(tail, above, below), rel=1e-8)


def test_the_incomplete_beta_function() -> None:
    for z, a, b in [(0.2, 0.5, 49.0), (0.9, 3.3, 0.7), (0.5, 400.0, 380.0), (0.0, 1.0, 2.0), (1.0, 2.0, 1.0)]:
        assert incomplete_beta(z, a, b) == pytest.approx(scipy.stats.beta.cdf(z, a, b), rel=1e-9, abs=1e-12)


@functools.cache
def independent(chains: int, draws: int, seed: int) -> ChainReport:
    return chain_report(normal(chains, draws, QUANTITIES, seed=seed))


@pytest.mark.parametrize(("chains", "draws"), [(1, 100), (4, 25)])
def test_independent_draws_pass(chains: int, draws: int) -> None:
    passed = sum(independent(chains, draws, seed).converged for seed in range(30))
    assert passed > 28


def test_the_limit_is_no_wider_than_chance() -> None:
    """A limit 5 % nearer to 1 would be crossed more often than stated: it is not simply far away."""
    limits, worst = [], []
    for seed in range(15):
        report = independent(1, 100, seed)
        limits.append(report.r_hat_limit)
        worst.append(report.r_hat)
    tight = [1 + 0.5 * (limit - 1) for limit in limits]
    crossed = sum(found > limit for found, limit in zip(worst, tight, strict=True))
    assert crossed > 15 * 10 * FALSE_ALARMS


def drifting(chains: int, draws: int, seed: int) -> Tensor:
    return normal(chains, draws, QUANTITIES, seed=seed) + torch.linspace(-1, 1, draws).view(1, -1, 1)


def disagreeing(chains: int, draws: int, seed: int) -> Tensor:
    """Chain means as far apart as the chains are wide."""
    return normal(chains, draws, QUANTITIES, seed=seed) + normal(chains, 1, QUANTITIES, seed=seed + 1000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("correlation", [0.9, 0.99])
@pytest.mark.parametrize(("chains", "draws"), [(1, 100), (4, 25), (4, 100)])
def test_slow_chains_fail_every_time(chains: int, draws: int, correlation: float, seed: int) -> None:
    report = chain_report(autoregressive(correlation, chains, draws, QUANTITIES, seed=seed))
    assert not report.converged
    assert all("train longer, or more chains" in line for line in report.warnings)


@pytest.mark.parametrize("seed", range(3))
def test_chains_that_drift_or_disagree_fail_every_time(seed: int) -> None:
    assert not chain_report(drifting(1, 100, seed)).converged
    assert not chain_report(drifting(4, 25, seed)).converged
    assert not chain_report(disagreeing(4, 25, seed)).converged
    assert not chain_report(disagreeing(2, 100, seed)).converged


def test_one_quantity_that_disagrees_among_many_is_found() -> None:
    draws = normal(4, 100, QUANTITIES, seed=3)
    draws[0, :, 17] += 3
    (line,) = chain_report(draws).warnings
    assert "R-hat" in line


def test_a_little_autocorrelation_is_no_fault() -> None:
    """Every second draw effective: 50 of 100, four times what is asked for."""
    passed = sum(chain_report(autoregressive(0.3, 1, 100, QUANTITIES, seed=seed)).converged for seed in range(12))
    assert passed > 10


def test_few_draws_cannot_tell() -> None:
    (line,) = chain_report(normal(1, 12, QUANTITIES, seed=1)).warnings
    assert "cannot be told from 12 draws" in line
