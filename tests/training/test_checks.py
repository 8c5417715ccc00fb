"""The ELBO and the checks after training."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayeswell.core.random import make_generator
from bayeswell.likelihoods import Categorical, Gaussian
from bayeswell.nn import bayesian
from bayeswell.posteriors import Empirical
from bayeswell.training import fit
from bayeswell.training.checks import Trained, check_fit, constant_nll, minimize_nll
from bayeswell.training.data import Batch
from bayeswell.training.elbo import final_elbo, kl_to_prior, nll_of_draws, rows_to_measure
from helpers import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")
PROBLEM = LinearRegression.make()


def model(posterior: str = "mean_field") -> nn.Module:
    net = nn.Linear(4, 1, bias=False).double()
    return bayesian(net, posterior, {"name": "normal", "std": PROBLEM.prior_std})  # type: ignore[return-value]


@pytest.mark.parametrize(("count", "rows"), [(60, 60), (2000, 400)])
def test_elbo_and_its_error_cover_the_truth(count: int, rows: int) -> None:
    """The mean square of z over 60 choices of draws and rows is 1; 2 is five standard errors above."""
    problem = LinearRegression.make(count=count)
    own, likelihood = model(), Gaussian(noise="known", std=problem.noise_std)
    mean, std = own.posterior.mean.detach(), own.posterior.std().detach()
    exact = problem.elbo(mean, torch.diag(std**2))
    squares = []
    for seed in range(60):
        chosen = torch.randperm(count, generator=make_generator(seed))[:rows]
        batch = Batch(problem.x[chosen], problem.y[chosen])
        found = final_elbo(own, nll_of_draws(own, likelihood, batch, 16, seed + 100), count, seed)
        assert found is not None
        squares.append(((found.elbo - exact) / found.error) ** 2)
    assert 0.3 < sum(squares) / 60 < 2


@pytest.mark.parametrize("prior", [{"name": "normal", "std": 0.7}, {"name": "scale_mixture"}])
def test_kl_by_draws(prior: dict[str, float]) -> None:
    own = bayesian(nn.Linear(4, 1, bias=False).double(), "mean_field", prior)
    value, variance = kl_to_prior(own, draws=400)
    assert (variance == 0) == own.prior.has_closed_form
    noise = torch.randn(20000, 4, dtype=torch.float64, generator=make_generator(3))
    weights = own.posterior.rsample(noise)
    exact = (own.posterior.log_prob(weights) - own.prior.log_prob(weights)).detach()
    assert abs(value - float(exact.mean())) < 5 * math.sqrt(variance + float(exact.var()) / 20000)


def test_log_joint_of_a_point() -> None:
    own = model("delta")
    likelihood = Gaussian(noise="known", std=PROBLEM.noise_std)
    found = final_elbo(own, nll_of_draws(own, likelihood, Batch(PROBLEM.x, PROBLEM.y), 16, 0), 60)
    weights = own.posterior.mean.detach()
    noise = torch.distributions.Normal(PROBLEM.x @ weights, PROBLEM.noise_std)
    prior = torch.distributions.Normal(torch.zeros(4, dtype=torch.float64), PROBLEM.prior_std)
    assert found is not None
    assert found.elbo == pytest.approx(float(noise.log_prob(PROBLEM.y).sum() + prior.log_prob(weights).sum()))
    assert not found.is_bound
    assert "log joint" in str(found)


def test_rows_are_all_of_small_data() -> None:
    assert rows_to_measure(200, 1) == 200
    assert rows_to_measure(10**6, 1) == 2000
    assert rows_to_measure(1000, 1) == 256


def trained(own: nn.Module, likelihood: nn.Module, batch: Batch, **settings: object) -> Trained:
    losses = nll_of_draws(own, likelihood, batch, 8, 0)  # type: ignore[arg-type]
    return Trained(own, likelihood, batch, losses, **settings)  # type: ignore[arg-type]


def test_constant_baseline_is_the_entropy_of_the_classes() -> None:
    x, y = torch.randn(90, 3), torch.arange(90) % 3
    y[:20] = 0
    own = bayesian(nn.Linear(3, 3))
    share = y.bincount() / 90
    found = constant_nll(trained(own, Categorical(), Batch(x, y)))
    assert found == pytest.approx(float(torch.special.entr(share).sum()), abs=1e-5)


def test_noise_by_maximum_likelihood() -> None:
    y = 3 * torch.randn(500, 1, dtype=torch.float64)
    likelihood = Gaussian().double()
    nll = minimize_nll(likelihood, torch.zeros(1, 1, dtype=torch.float64), y)
    variance = float(y.square().mean())
    assert likelihood.mean_and_variance(torch.zeros(1, 1))[1].item() == pytest.approx(variance, rel=1e-4)
    assert nll == pytest.approx(0.5 * math.log(2 * math.pi * variance) + 0.5, rel=1e-6)


def test_a_model_that_learned_nothing_is_told() -> None:
    x, y = torch.randn(60, 3), (torch.arange(60) % 2)
    with pytest.warns(UserWarning, match="learned nothing"):
        result = fit(nn.Linear(3, 2), (x, y), "map", epochs=1, lr=1e-9)
    assert not result.ok
    assert "checks: 1 failed" in repr(result)


def chains(weights: torch.Tensor) -> Trained:
    """``weights`` (chains, draws, 3) of a linear network."""
    own = bayesian(nn.Linear(3, 1, bias=False), "delta")
    bank = own.with_posterior(Empirical(own.layout, weights.reshape(-1, 3)))
    batch = Batch(torch.randn(40, 3), torch.randn(40, 1))
    return trained(bank, Gaussian(noise="known", std=1.0), batch, chains=len(weights))


def verdicts(given: Trained) -> dict[str, tuple[bool | None, str]]:
    return {check.name: (check.ok, check.message) for check in check_fit(given)}


def test_mixing_of_chains() -> None:
    generator = make_generator(1)
    good = torch.randn(2, 100, 3, generator=generator)
    assert verdicts(chains(good))["mixing"][0] is True
    apart = good.clone()
    apart[1] += 1.5
    assert verdicts(chains(apart))["mixing"][0] is False
    slow = 0.05 * torch.randn(1, 60, 3, generator=generator).cumsum(1)
    ok, message = verdicts(chains(slow))["mixing"]
    assert ok is False
    assert "cannot be told" in message
    assert "effective draws" in message
    assert verdicts(chains(torch.zeros(1, 20, 3)))["mixing"][0] is False


def test_a_check_that_fails_does_not_hide_the_others() -> None:
    given = chains(torch.randn(2, 50, 3))
    broken = Trained(given.model, given.likelihood, given.rows, torch.zeros(0), chains=2, temperature=1.0)
    found = {check.name: check for check in check_fit(broken)}
    assert found["baseline"].ok is None or math.isnan(found["baseline"].value)
    assert found["mixing"].ok is True
    assert found["sampler temperature"].ok is True
    hot = Trained(given.model, given.likelihood, given.rows, given.losses, 2, 3.0, ["the chain has temperature 3"])
    assert verdicts(hot)["sampler temperature"] == (False, "the chain has temperature 3")
