"""k-hat against known tails, and importance ratios against the exact posterior of linear regression."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import (
    Trust,
    fit_generalised_pareto,
    importance_ratios,
    k_hat,
    k_hat_limit,
    pareto_report,
    trust,
)
from bayeswell.metrics.chains import chain_report
from bayeswell.posteriors import cholesky_parameters
from truths.linear_regression import LinearRegression

NOISE, PRIOR = 0.6, 1.4


@pytest.mark.parametrize("shape", [-0.3, 0.25, 0.6, 1.1])
def test_known_tails_are_recovered(shape: float) -> None:
    count, scale = 4000, 1.7
    drawn = stats.genpareto.rvs(shape, scale=scale, size=count, random_state=np.random.default_rng(3))
    found, found_scale = fit_generalised_pareto(torch.tensor(drawn))
    own = (found * (count + 10) - 5) / count  # without the ten observations of the prior
    assert abs(own - shape) < 5 * (1 + shape) / math.sqrt(count)  # asymptotic error; fails once in 1.7 million
    assert found_scale == pytest.approx(scale, rel=5 * math.sqrt(2 * (1 + shape) / count))
    # As good as maximum likelihood: within a quarter of its standard error.
    likely, _, likely_scale = stats.genpareto.fit(drawn, floc=0)
    assert abs(own - likely) < 0.25 * (1 + shape) / math.sqrt(count)
    assert found_scale == pytest.approx(likely_scale, rel=0.02)


def test_short_tails_are_drawn_towards_one_half() -> None:
    drawn = torch.tensor(stats.genpareto.rvs(-0.2, size=6, random_state=np.random.default_rng(1)))
    scaled, _ = fit_generalised_pareto(1000 * drawn)
    assert scaled == pytest.approx(fit_generalised_pareto(drawn)[0], rel=1e-9)  # shape does not know units
    for bad in (drawn[:4], -drawn, torch.zeros(9), drawn * math.nan):
        with pytest.raises(bw.DataError, match="at least 5 finite"):
            fit_generalised_pareto(bad)


@pytest.mark.parametrize("shape", [0.3, 0.85])
def test_k_hat_of_pareto_ratios(shape: float) -> None:
    ratios = torch.tensor(np.random.default_rng(8).pareto(1 / shape, 20_000) + 1)
    length = 3 * math.sqrt(20_000)
    error = (1 + shape) / math.sqrt(length)
    expected = (length * shape + 5) / (length + 10)
    # Ratios count only up to a factor, even one that overflows.
    for shift in (0.0, 5000.0, -5000.0):
        assert abs(k_hat(ratios.log() + shift) - expected) < 5 * error
    assert error < 0.1


def test_equal_ratios_and_bad_ones() -> None:
    assert k_hat(torch.full((400,), -213.7)) == -math.inf
    for bad in (torch.zeros(24), torch.zeros(30, 2), torch.tensor([0.0] * 30 + [math.nan])):
        with pytest.raises(bw.DataError, match="k-hat"):
            k_hat(bad)


def test_the_limit_falls_with_few_draws() -> None:
    assert k_hat_limit(10_000) == 0.7
    assert k_hat_limit(100) == pytest.approx(0.5)


def problem_and_model(width: float, temperature: float = 1.0) -> tuple[LinearRegression, bw.BayesianModule]:
    """Two weights; q is the exact posterior with its covariance multiplied by ``width``."""
    problem = LinearRegression.make(4, count=50, dimension=2, noise_std=NOISE, prior_std=PRIOR)
    model = bw.bayesian(nn.Linear(2, 1, bias=False).double(), "full", {"name": "normal", "std": PRIOR})
    factor = torch.linalg.cholesky(torch.tensor(width * problem.covariance(temperature)))
    log_diagonal, lower = cholesky_parameters(factor)
    with torch.no_grad():
        model.posterior.mean.copy_(torch.tensor(problem.mean(temperature)))
        model.posterior.log_diagonal.copy_(log_diagonal)
        model.posterior.lower.copy_(lower)
    return problem, model


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_the_exact_posterior_has_constant_ratios_equal_to_the_evidence(temperature: float) -> None:
    problem, model = problem_and_model(1.0, temperature)
    ratios = importance_ratios(model, bw.Gaussian("known", NOISE), problem.tensors(), draws=30, batch_size=7,
                               temperature=temperature)  # fmt: skip
    assert ratios.numpy() == pytest.approx(problem.full_elbo(temperature) / temperature, rel=1e-9)
    report = pareto_report(model, bw.Gaussian("known", NOISE), problem.tensors(), draws=200, temperature=temperature)
    assert report.k_hat < 0.5
    assert report.good
    assert report.elbo == pytest.approx(report.log_evidence, rel=1e-9)
    assert json.loads(json.dumps(report.as_json(), allow_nan=False))["good"] is True


@pytest.mark.parametrize("width", [0.1, 0.6])
def test_a_narrow_q_has_the_tail_that_theory_says(width: float) -> None:
    # In two dimensions the ratio is exp(|z|^2 (1 - width) / 2) up to a factor: exactly Pareto with k = 1 - width.
    problem, model = problem_and_model(width)
    draws = 1200
    report = pareto_report(model, bw.Gaussian("known", NOISE), problem.tensors(), draws=draws, seed=3)
    length = 3 * math.sqrt(draws)
    assert abs(report.k_hat - (length * (1 - width) + 5) / (length + 10)) < 3.3 * (2 - width) / math.sqrt(length)
    gap = math.log(1 / width) + width - 1  # KL(q || posterior) in two dimensions
    assert abs(report.elbo - (problem.log_evidence - gap)) < 5 * report.elbo_error
    assert report.good == (width == 0.6)
    assert report.limit == k_hat_limit(draws)
    if width == 0.1:
        with pytest.warns(bw.BayeswellWarning, match="k-hat 0"):
            found = trust(pareto=report)
        assert found.trusted is False
        assert found.as_json()["pareto"]["warnings"] == found.as_json()["warnings"]
    else:
        assert abs(report.log_evidence - problem.log_evidence) < 0.1
        assert trust(pareto=report).trusted is True


def test_a_posterior_without_a_density_is_refused() -> None:
    model = bw.bayesian(nn.Linear(2, 1).double(), "delta", "normal")
    with pytest.raises(bw.CompositionError, match="posterior 'delta'"):
        pareto_report(model, bw.Gaussian("known", NOISE), (torch.zeros(3, 2).double(), torch.zeros(3).double()))


def test_chains_stand_in_the_same_record() -> None:
    generator = torch.Generator().manual_seed(1)
    agreeing = torch.randn(4, 400, 2, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = trust(chains=chain_report(agreeing))
    assert good.trusted is True
    apart = chain_report(agreeing + torch.arange(4.0)[:, None, None])
    with pytest.warns(bw.BayeswellWarning) as told:
        bad = trust(chains=apart)
    assert tuple(str(one.message) for one in told) == apart.warnings == bad.warnings
    assert "have not mixed" in bad.warnings[0]
    record = json.loads(json.dumps(bad.as_json(), allow_nan=False))
    assert record["trusted"] is False
    assert record["chains"]["r_hat"] == apart.r_hat > record["chains"]["r_hat_limit"] == 1.01
    assert record["chains"]["ess_limit"] == 400
    assert record["pareto"] is None
    assert Trust().trusted is None
    stuck = Trust(chains=chain_report(torch.zeros(2, 8, 1)))
    assert json.loads(json.dumps(stuck.as_json(), allow_nan=False))["chains"]["r_hat"] is None
