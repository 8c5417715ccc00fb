"""KL(q || p) in four ways: the same value, the same expected gradient, no noise at the exact posterior by path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.random import make_generator
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import DIVERGENCES, ScoreFunction
from bayeswell.priors import Normal
from helpers import assert_mean_close, kl_gaussian

FAMILIES = ["mean_field", {"name": "mean_field", "parameter": "rho"}, "k_tied", "low_rank", "matrix_normal", "full"]
SAMPLED = ["monte_carlo", "path_derivative", "score_function"]


def generic_model(posterior: Any, prior: Any = None) -> BayesianModule:
    """A small network with a matrix, a kernel and vectors, at a generic point of its family."""
    net = nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.Linear(2, 2)).double()
    part = {"initial_std": 0.4, **({"name": posterior} if isinstance(posterior, str) else posterior)}
    model = bayesian(net, part, Normal(0.6) if prior is None else prior, generator=make_generator(0))
    with torch.no_grad():
        for name, parameter in model.posterior.named_parameters():
            # Triangular factors move little, so that the covariance stays well conditioned.
            noise = torch.randn(parameter.shape, generator=make_generator(1), dtype=torch.float64)
            parameter.add_((0.06 if "lower" in name else 0.3) * noise)
    return model


def normal_noise(model: BayesianModule, draws: int) -> Tensor:
    return torch.randn(draws, model.posterior.noise_size, generator=make_generator(2), dtype=torch.float64)


def covariance_of(model: BayesianModule) -> Tensor:
    """Exact for every family that is linear in its noise."""
    with torch.no_grad():
        basis = torch.eye(model.posterior.noise_size, dtype=torch.float64)
        factor = model.posterior.rsample(basis) - model.posterior.rsample(torch.zeros_like(basis))
        return factor.T @ factor


def analytic_kl(model: BayesianModule) -> Tensor:
    return DIVERGENCES.resolve("analytic")(model.posterior, model.prior, None)[1]


def gradient(model: BayesianModule, value: Tensor) -> Tensor:
    parameters = list(model.posterior.parameters())
    found = torch.autograd.grad(value, parameters, materialize_grads=True)
    return torch.cat([piece.reshape(-1) for piece in found])


@pytest.mark.parametrize("posterior", FAMILIES, ids=str)
def test_analytic_value_is_the_closed_form(posterior: Any) -> None:
    model = generic_model(posterior, {"0*": Normal(0.6), "*": Normal(1.9)})
    prior_std = torch.tensor([0.6] * 15 + [1.9] * 6, dtype=torch.float64)
    covariance = covariance_of(model)
    truth = kl_gaussian(
        model.posterior.mean.detach(), covariance, torch.zeros_like(prior_std), prior_std.square().diag()
    )
    weights, kl = DIVERGENCES.resolve("analytic")(model.posterior, model.prior, normal_noise(model, 3))
    assert kl.item() == pytest.approx(truth, rel=1e-9)
    torch.testing.assert_close(weights, model.posterior.rsample(normal_noise(model, 3)))


def test_delta_divergence_is_minus_log_prior() -> None:
    model = bayesian(nn.Linear(3, 2).double(), "delta", Normal(0.6))
    truth = -torch.distributions.Normal(0, torch.tensor(0.6, dtype=torch.float64)).log_prob(model.posterior.mean).sum()
    assert analytic_kl(model).item() == pytest.approx(truth.item(), rel=1e-12)


@pytest.mark.parametrize("posterior", FAMILIES, ids=str)
def test_sampled_values_have_the_analytic_mean(posterior: Any) -> None:
    model = generic_model(posterior)
    noise = normal_noise(model, 4000)
    with torch.no_grad():
        weights = model.posterior.rsample(noise)
        values = model.posterior.log_prob(weights) - model.prior.log_prob(weights)
        assert_mean_close(values, analytic_kl(model))
        for name in SAMPLED:
            estimate = DIVERGENCES.resolve(name)(model.posterior, model.prior, noise)[1]
            assert estimate.item() == pytest.approx(values.mean().item(), rel=1e-10)


@pytest.mark.parametrize("name", [*SAMPLED, {"name": "score_function", "baseline": "leave_one_out"}], ids=str)
def test_sampled_gradients_have_the_analytic_mean(name: Any) -> None:
    """3,000 gradients from two draws each: failure rate 1e-6."""
    model = generic_model("mean_field")
    divergence = DIVERGENCES.resolve(name)
    truth = gradient(model, analytic_kl(model))
    pairs = normal_noise(model, 6000).split(2)
    rows = [gradient(model, divergence(model.posterior, model.prior, pair)[1]) for pair in pairs]
    assert_mean_close(torch.stack(rows), truth)


def test_path_gradient_vanishes_where_q_is_the_target() -> None:
    """With q = p the path gradient is zero for each draw; the total derivative's is not."""
    model = bayesian(nn.Linear(3, 2).double(), {"name": "mean_field", "initial_std": 0.6}, Normal(0.6))
    with torch.no_grad():
        model.posterior.mean.zero_()
    noise = normal_noise(model, 1)
    found = {
        name: gradient(model, DIVERGENCES.resolve(name)(model.posterior, model.prior, noise)[1]) for name in SAMPLED
    }
    assert found["path_derivative"].abs().max() < 1e-12
    assert found["monte_carlo"].abs().max() > 0.1


def test_leave_one_out_lowers_the_variance() -> None:
    model = generic_model("mean_field")
    variances = []
    for baseline in ("none", "leave_one_out"):
        divergence = ScoreFunction(baseline)
        groups = normal_noise(model, 2000).split(4)
        rows = [gradient(model, divergence(model.posterior, model.prior, group)[1]) for group in groups]
        variances.append(torch.stack(rows).var(0).sum().item())
    assert variances[1] < 0.5 * variances[0]
