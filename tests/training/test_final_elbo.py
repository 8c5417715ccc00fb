"""The ELBO that a result states, against the exact one of linear regression, and its error against its own spread."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.posteriors import cholesky_parameters
from bayeswell.training.verdicts import measure_elbo
from bayeswell.training.verdicts.elbo import elbo_of
from truths.linear_regression import LinearRegression

NOISE, PRIOR = 0.6, 1.4
LIKELIHOOD = bw.Gaussian("known", NOISE)


def exact_model(temperature: float) -> tuple[LinearRegression, bw.BayesianModule]:
    """q is the exact tempered posterior."""
    problem = LinearRegression.make(4, count=50, dimension=2, noise_std=NOISE, prior_std=PRIOR)
    model = bw.bayesian(nn.Linear(2, 1, bias=False).double(), "full", {"name": "normal", "std": PRIOR})
    log_diagonal, lower = cholesky_parameters(torch.linalg.cholesky(torch.tensor(problem.covariance(temperature))))
    with torch.no_grad():
        model.posterior.mean.copy_(torch.tensor(problem.mean(temperature)))
        model.posterior.log_diagonal.copy_(log_diagonal)
        model.posterior.lower.copy_(lower)
    return problem, model


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_the_exact_elbo(temperature: float) -> None:
    problem, model = exact_model(temperature)
    found = measure_elbo(model, LIKELIHOOD, problem.tensors(), temperature=temperature, draws=400, batch_size=13)
    assert abs(found.elbo - problem.full_elbo(temperature)) < 5 * found.error  # fails once in 1.7 million
    assert found.error < 0.2
    assert found.elbo_at_one == pytest.approx(found.elbo - (1 - temperature) * found.kl)
    assert (found.kind, found.draws, found.examples, found.dataset_size) == ("elbo", 400, 50, 50)
    if temperature == 1:
        assert abs(found.elbo - problem.log_evidence) < 5 * found.error
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["temperature"] == temperature


def test_the_error_is_the_spread_of_the_estimate() -> None:
    """Some of the examples stand for all: estimates from 120 random parts scatter as their error says."""
    problem, model = exact_model(1.0)
    inputs, targets = problem.tensors()
    generator = torch.Generator().manual_seed(3)
    off, stated = [], []
    for seed in range(120):
        chosen = torch.randperm(50, generator=generator)[:20]
        some = (inputs[chosen], targets[chosen])
        found = measure_elbo(model, LIKELIHOOD, some, draws=20, seed=seed, dataset_size=50)
        off.append(found.elbo - problem.log_evidence)
        stated.append(found.error)
    ratio = torch.tensor(off).square().mean().sqrt() / torch.tensor(stated).square().mean().sqrt()
    assert 0.75 < float(ratio) < 1.3  # of 120 Gaussian numbers known to 6.5 %: four standard errors


def test_a_point_has_a_log_joint() -> None:
    problem, _ = exact_model(1.0)
    model = bw.bayesian(nn.Linear(2, 1, bias=False).double(), "delta", {"name": "normal", "std": PRIOR})
    inputs, targets = problem.tensors()
    weights = model.posterior.mean_vector().detach()
    likelihood = torch.distributions.Normal((inputs @ weights), NOISE).log_prob(targets).sum()
    prior = torch.distributions.Normal(0.0, PRIOR).log_prob(weights).sum()
    found = measure_elbo(model, LIKELIHOOD, (inputs, targets), temperature=0.3)
    assert found.kind == "log joint"
    assert found.elbo == pytest.approx(float(likelihood + 0.3 * prior), rel=1e-6)
    assert found.elbo_at_one == pytest.approx(float(likelihood + prior), rel=1e-6)
    assert found.error == 0


def test_weights_count() -> None:
    _, model = exact_model(1.0)
    losses = torch.tensor([[1.0, 2.0, 4.0], [1.5, 2.5, 3.0]])
    weights = torch.tensor([2.0, 0.0, 1.0])
    found = elbo_of(model, losses, 3, 0.5, weights)
    assert found.nll == pytest.approx((2 * 1.25 + 3.5) / 3)
    assert found.elbo == pytest.approx(-(3 * found.nll + 0.5 * found.kl))
    assert found.error == pytest.approx(3 * math.sqrt(torch.tensor([2.0, 2.0]).var() / 2), abs=1e-9)


def test_fit_states_it_and_a_bank_has_none() -> None:
    problem, _ = exact_model(1.0)
    net = nn.Linear(2, 1, bias=False).double()
    settings = {"prior": {"name": "normal", "std": PRIOR}, "temperature": 0.4, "batch_size": 10}
    result = bw.fit(net, problem.tensors(), "ivon", LIKELIHOOD, epochs=10, **settings)
    assert result.elbo is not None
    assert result.elbo.temperature == 0.4
    exact = result.measure_elbo(problem.tensors(), draws=100)
    assert abs(result.elbo.elbo - exact.elbo) < 5 * math.hypot(result.elbo.error, exact.error)
    assert exact.elbo <= problem.full_elbo(0.4) + 5 * exact.error
    report = result.pareto_report(problem.tensors(), draws=50)
    assert report.temperature == 0.4
    assert abs(0.4 * report.elbo - exact.elbo) < 5 * math.hypot(0.4 * report.elbo_error, exact.error)
    bank = bw.fit(net, problem.tensors(), "deep-ensemble", LIKELIHOOD, epochs=2, members=2)
    assert bank.elbo is None
    with pytest.raises(bw.CompositionError, match="'empirical' has no density, and so no ELBO; look at its"):
        bank.measure_elbo(problem.tensors())
