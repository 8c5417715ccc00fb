"""KL(q || p) in four ways: the same number, the same expected gradient, and no noise where there should be none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn
from torch.func import functional_call

import bayeswell as bw
from bayeswell.types import Posterior, Prior
from linear_models import PROBLEM, covariance_of, lift, mean_of, objective, set_full, set_mean_and_std
from truths.arrays import Array
from truths.gaussian import (
    kl_by_quadrature,
    kl_diagonal,
    kl_full,
    kl_to_laplace,
    log_density_scale_mixture,
)
from truths.linear_regression import LinearRegression
from truths.statistics import assert_mean_close

FAMILIES = ["mean_field", "k_tied", "low_rank", "matrix_normal", "full"]
SAMPLED = ["monte_carlo", "path_derivative", "score_function"]


def divergence(name: str) -> Any:
    return bw.DIVERGENCES[name]()


def generic(posterior: Any, prior: Any) -> bw.BayesianModule:
    """A small net with a matrix, a kernel and vectors, moved to a generic point of its family."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.Linear(2, 2)).double()
    part = {"name": posterior, "initial_std": 0.4} if isinstance(posterior, str) else posterior
    model = bw.bayesian(net, part, prior)
    perturb(model)
    return model


def perturb(model: bw.BayesianModule) -> None:
    """Away from any symmetry; triangular factors by little, so that the covariance stays well conditioned."""
    with torch.no_grad():
        for name, parameter in model.posterior.named_parameters():
            parameter.add_((0.06 if "lower" in name else 0.3) * torch.randn_like(parameter))


def normal_noise(model: bw.BayesianModule, draws: int, seed: int = 1) -> Tensor:
    size = model.posterior.noise_size
    return torch.randn(draws, size, generator=bw.make_generator(seed), dtype=torch.float64)


# Values.


def check_analytic_value(posterior: Any = "mean_field") -> None:
    """At generic means and covariance, with another prior std for each layer: 1e-10 relative."""
    model = generic(posterior, {"0*": bw.Normal(0.6), "*": bw.Normal(1.9)})
    prior_std = np.repeat([0.6, 1.9], [2 * 3 * 2 + 3, 2 * 2 + 2])
    truth = kl_full(mean_of(model), covariance_of(model), np.zeros(21), np.diag(prior_std**2))
    assert truth > 1
    value = divergence("analytic")(model.posterior, model.prior, None)[1]
    assert value.item() == pytest.approx(truth, rel=1e-10)
    # The draws that come with it change nothing.
    weights, again = divergence("analytic")(model.posterior, model.prior, normal_noise(model, 3))
    assert again.item() == pytest.approx(truth, rel=1e-10)
    torch.testing.assert_close(weights, model.posterior.sample(normal_noise(model, 3)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("posterior", [*FAMILIES, bw.MeanField(parameter="rho")], ids=str)
def test_analytic_value(posterior: Any) -> None:
    check_analytic_value(posterior)


def test_analytic_value_from_a_laplace_prior() -> None:
    model = generic("mean_field", bw.LaplacePrior(0.8))
    value = divergence("analytic")(model.posterior, model.prior, None)[1]
    std = model.posterior.std_vector()
    assert value.item() == pytest.approx(kl_to_laplace(mean_of(model), std, 0.8), rel=1e-10)


def check_sampled_value(posterior: Any = "mean_field", name: str = "monte_carlo") -> None:
    """The mean of log q - log p over 4,000 draws is the closed form: rate 1e-6."""
    model = generic(posterior, bw.Normal(0.6))
    truth = kl_full(mean_of(model), covariance_of(model), np.zeros(21), 0.36 * np.eye(21))
    with torch.no_grad():
        weights = model.posterior.sample(normal_noise(model, 4000))
        values = model.posterior(weights) - model.prior.log_prob(weights)
        estimate = divergence(name)(model.posterior, model.prior, normal_noise(model, 4000))[1]
    assert estimate.item() == pytest.approx(values.mean().item(), rel=1e-10)
    assert_mean_close(values, np.array(truth))


@pytest.mark.parametrize("posterior", FAMILIES)
def test_sampled_value(posterior: str) -> None:
    check_sampled_value(posterior)


@pytest.mark.parametrize("name", SAMPLED)
def test_every_sampled_divergence_has_the_same_value(name: str) -> None:
    check_sampled_value("full", name)


def test_sampled_value_from_a_scale_mixture() -> None:
    model = generic("mean_field", bw.ScaleMixture(0.3, 1.1, 0.2))
    std = model.posterior.std_vector().detach().numpy()
    truth = kl_by_quadrature(mean_of(model), std, lambda w: log_density_scale_mixture(w, 0.3, 1.1, 0.2))
    with torch.no_grad():
        weights = model.posterior.sample(normal_noise(model, 20_000))
        values = model.posterior(weights) - model.prior.log_prob(weights)
    assert_mean_close(values, np.array(truth))


# Gradients in expectation.


def gradients_per_draw(
    function: Callable[[Posterior, Prior, Tensor], Any], model: bw.BayesianModule, draws: int, of: int | None = None
) -> Array:
    """(draws, parameters): the gradient from each single draw, or from the first few ``of`` them."""
    noise = normal_noise(model, draws, seed=2)[:of]
    parameters = list(model.posterior.parameters())
    rows = []
    for row in noise.split(1):
        value = function(model.posterior, model.prior, row)[1]
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, parameters, materialize_grads=True)]))
    return torch.stack(rows).numpy()


class Value(nn.Module):
    """A divergence as a module, whose parameters can be given."""

    def __init__(self, function: Callable[[Posterior, Prior, Tensor], Any], model: bw.BayesianModule) -> None:
        super().__init__()
        self.function, self.posterior, self.prior = function, model.posterior, model.prior

    def forward(self, noise: Tensor) -> Tensor:
        value: Tensor = self.function(self.posterior, self.prior, noise)[1]
        return value


def gradients_side_by_side(module: nn.Module, count: int, *inputs: Tensor, batched: bool) -> Array:
    """(count, parameters): what the module returns, differentiated, ``count`` times at once.

    ``batched``: the inputs have a row for each time; else all have the same, and only the module's own noise differs.
    """
    at = {
        name: value.detach().expand(count, *value.shape).clone().requires_grad_()
        for name, value in module.named_parameters()
    }

    def once(given: dict[str, Tensor], *row: Tensor) -> Tensor:
        value: Tensor = functional_call(module, given, row)
        return value

    in_dims = (0, *[0 if batched else None] * len(inputs))
    values = torch.vmap(once, in_dims, randomness="different")(at, *inputs)
    found = torch.autograd.grad(values.sum(), list(at.values()), materialize_grads=True)
    return torch.cat([part.reshape(count, -1) for part in found], dim=1).numpy()


def many_gradients(name: str, model: bw.BayesianModule, draws: int) -> Array:
    """(draws, parameters): as ``gradients_per_draw``, of many draws at once."""
    noise = normal_noise(model, draws, seed=2)[:, None]
    return gradients_side_by_side(Value(divergence(name), model), draws, noise, batched=True)


PRIORS = {
    "normal": (bw.Normal(0.6), lambda mean, std: kl_diagonal(mean, std, 0.0, 0.6)),
    "laplace": (bw.LaplacePrior(0.8), lambda mean, std: kl_to_laplace(mean, std, 0.8)),
    "scale_mixture": (
        bw.ScaleMixture(0.3, 1.1, 0.2),
        lambda mean, std: kl_by_quadrature(mean, std, lambda w: log_density_scale_mixture(w, 0.3, 1.1, 0.2)),
    ),
}


def two_weights(prior: Any) -> bw.BayesianModule:
    model = bw.bayesian(nn.Linear(2, 1, bias=False).double(), "mean_field", prior)
    set_mean_and_std(model, np.array([0.5, -0.9]), np.array([0.8, 0.35]))
    return model


def check_expected_gradient(name: str, prior: str = "normal", draws: int = 10_000) -> None:
    """The mean of the per-draw gradients with respect to (means, log stds) is the truth's: rate 1e-6."""
    part, kl = PRIORS[prior]
    model = two_weights(part)
    point = np.concatenate([mean_of(model), np.log([0.8, 0.35])])
    truth = optimize.approx_fprime(point, lambda p: kl(p[:2], np.exp(p[2:])), 1e-6)
    assert_mean_close(many_gradients(name, model, draws), truth)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", SAMPLED)
def test_expected_gradient(name: str, prior: str) -> None:
    check_expected_gradient(name, prior)


@pytest.mark.parametrize("prior", ["normal", "laplace"])
def test_analytic_gradient_has_no_noise(prior: str) -> None:
    part, kl = PRIORS[prior]
    found = gradients_per_draw(divergence("analytic"), two_weights(part), 3)
    point = np.concatenate([[0.5, -0.9], np.log([0.8, 0.35])])
    truth = optimize.approx_fprime(point, lambda p: kl(p[:2], np.exp(p[2:])), 1e-6)
    np.testing.assert_allclose(found, np.stack([truth] * 3), rtol=1e-5)


@pytest.mark.parametrize("posterior", ["full", "low_rank", "matrix_normal"])
def test_expected_gradients_agree_for_correlated_families(posterior: str) -> None:
    """Total, path and score against the analytic gradient, parameter by parameter: rate 1e-6 each."""
    torch.manual_seed(5)
    part = {"name": posterior, "initial_std": 0.4}
    model = bw.bayesian(nn.Linear(2, 2, bias=False).double(), part, bw.Normal(0.6))
    perturb(model)
    truth = gradients_per_draw(divergence("analytic"), model, 1)[0]
    for name in SAMPLED:
        found = many_gradients(name, model, 4000)
        np.testing.assert_allclose(found[:5], gradients_per_draw(divergence(name), model, 4000, of=5), rtol=1e-9)
        assert_mean_close(found, truth)


def test_whole_objective_gradients_agree_in_expectation() -> None:
    """NLL and KL together, with the same draws: the four ways give one expected gradient of the ELBO."""
    problem = LinearRegression.make(1, count=20, dimension=2)
    model = lift(problem, "mean_field", "weight_sampling")
    set_mean_and_std(model, np.array([0.5, -0.9]), np.array([0.3, 0.35]))
    x, y = problem.tensors()
    point = np.concatenate([mean_of(model), np.log([0.3, 0.35])])
    truth = optimize.approx_fprime(point, lambda p: -problem.elbo(p[:2], np.exp(p[2:]), 0.6) / 20, 1e-6)
    for name in ("analytic", *SAMPLED):
        loss = bw.Loss(objective(problem, divergence=name, temperature=0.6, check=False), model)
        loss.generator = bw.make_generator(6)
        assert_mean_close(gradients_side_by_side(loss, 4000, x, y, batched=False), truth)


# The score term, and the path derivative at the exact posterior.


def test_total_minus_path_is_the_score() -> None:
    """With w = m + s eps: eps / s for the mean and eps^2 - 1 for log s, draw by draw (Book, eq. 2.2.5)."""
    model = two_weights(bw.Normal(0.6))
    noise = normal_noise(model, 50, seed=2).numpy()
    total = gradients_per_draw(divergence("monte_carlo"), model, 50)
    path = gradients_per_draw(divergence("path_derivative"), model, 50)
    mean, std = np.array([0.5, -0.9]), np.array([0.8, 0.35])
    np.testing.assert_allclose(total - path, np.hstack([noise / std, noise**2 - 1]), rtol=1e-9, atol=1e-12)
    slope = (mean + std * noise) / 0.6**2 - noise / std
    np.testing.assert_allclose(path, np.hstack([slope, std * noise * slope]), rtol=1e-9, atol=1e-12)


def test_score_function_gradient_is_the_formula() -> None:
    """(log q - log p) d/dtheta log q, draw by draw."""
    model = two_weights(bw.Normal(0.6))
    noise = normal_noise(model, 50, seed=2)
    with torch.no_grad():
        weights = model.posterior.sample(noise)
        value = (model.posterior(weights) - model.prior.log_prob(weights)).numpy()
    std, eps = np.array([0.8, 0.35]), noise.numpy()
    truth = value[:, None] * np.hstack([eps / std, eps**2 - 1])
    np.testing.assert_allclose(gradients_per_draw(divergence("score_function"), model, 50), truth, rtol=1e-9)


def at_exact_posterior(posterior: str, temperature: float) -> tuple[LinearRegression, bw.BayesianModule, Tensor]:
    """A model whose q is the (tempered) posterior itself, and the targets it was given."""
    if posterior in ("mean_field", "k_tied"):
        orthogonal = np.linalg.qr(PROBLEM.X)[0] * np.array([3.0, 5.0, 2.0, 7.0, 4.0])
        problem = LinearRegression(orthogonal, PROBLEM.y, PROBLEM.noise_std, PROBLEM.prior_std)
        assert problem.mean_field_gap() < 1e-12
    else:
        problem = PROBLEM
    mean, covariance = problem.mean(temperature), problem.covariance(temperature)
    settings: Any = {"name": "low_rank", "rank": 4} if posterior == "low_rank" else posterior
    settings = {"name": "k_tied", "rank": 1} if posterior == "k_tied" else settings
    model = lift(problem, settings, "weight_sampling")
    std = np.sqrt(np.diag(covariance))
    if posterior == "full":
        set_full(model, mean, covariance)
        return problem, model, problem.tensors()[1]
    with torch.no_grad():
        model.posterior.mean.copy_(torch.from_numpy(mean))
        if posterior == "mean_field":
            model.posterior.log_std.copy_(torch.from_numpy(np.log(std)))
        elif posterior == "k_tied":
            model.posterior.log_factors.copy_(torch.from_numpy(np.concatenate([[0.7], np.log(std) - 0.7])))
        elif posterior == "matrix_normal":
            (scale,) = model.posterior.scales
            factor = torch.from_numpy(np.linalg.cholesky(covariance))
            scale.row_log_diagonal.fill_(0.4)
            scale.column_log_diagonal.copy_(factor.diagonal().log() - 0.4)
            scale.column_lower.copy_(factor / factor.diagonal()[:, None])
        else:
            values, vectors = np.linalg.eigh(covariance)
            model.posterior.log_std.fill_(0.5 * np.log(values[0]))
            columns = vectors[:, 1:] * np.sqrt(values[1:] - values[0])
            model.posterior.set_factor(torch.from_numpy(columns))
    return problem, model, problem.tensors()[1]


def check_path_gradient_vanishes_at_the_exact_posterior(posterior: str = "full", temperature: float = 0.37) -> None:
    """Zero for every draw, up to rounding relative to the total derivative of the same draw."""
    problem, model, y = at_exact_posterior(posterior, temperature)
    np.testing.assert_allclose(covariance_of(model), problem.covariance(temperature), rtol=1e-9, atol=1e-12)
    x = problem.tensors()[0]
    norms: dict[str, list[float]] = {}
    for name in ("path_derivative", "monte_carlo"):
        elbo = objective(problem, divergence=name, temperature=temperature)
        generator = bw.make_generator(7)
        norms[name] = []
        for _ in range(20):
            total = elbo(model, x, y, generator=generator).total
            gradients = torch.autograd.grad(total, list(model.parameters()), materialize_grads=True)
            norms[name].append(float(torch.cat([g.reshape(-1) for g in gradients]).norm()))
    path, total_norm = np.array(norms["path_derivative"]), np.array(norms["monte_carlo"])
    assert (total_norm > 1e-2).all(), "the total derivative is not zero"
    assert (path < 1e-9 * total_norm).all(), f"the path derivative is up to {path.max():.2g}"


@pytest.mark.parametrize("temperature", [0.37, 1.0])
@pytest.mark.parametrize("posterior", FAMILIES)
def test_path_gradient_vanishes_at_the_exact_posterior(posterior: str, temperature: float) -> None:
    check_path_gradient_vanishes_at_the_exact_posterior(posterior, temperature)


# Which one is taken.


def test_a_prior_without_closed_form_is_said_once() -> None:
    x, y = PROBLEM.tensors()
    model = bw.bayesian(nn.Linear(5, 1).double(), "mean_field", bw.ScaleMixture(0.3, 1.1, 0.2))
    elbo = objective(PROBLEM)
    with pytest.warns(bw.BayeswellWarning, match="monte_carlo"):
        elbo(model, x, y)
    assert elbo.divergence_for(model).name == "monte_carlo"
    elbo(model, x, y)  # a second warning would be an error here


def test_analytic_is_refused_for_a_scale_mixture() -> None:
    x, y = PROBLEM.tensors()
    model = bw.bayesian(nn.Linear(5, 1).double(), "mean_field", bw.ScaleMixture(0.3, 1.1, 0.2))
    with pytest.raises(bw.CompositionError, match=r"analytic.*scale_mixture.*monte_carlo"):
        objective(PROBLEM, divergence="analytic")(model, x, y)


@pytest.mark.parametrize("estimator", ["local_reparameterization", "variational_laplace"])
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_divergences_need_weight_draws(name: str, estimator: str) -> None:
    x, y = PROBLEM.tensors()
    model = lift(PROBLEM, "mean_field", estimator)
    with pytest.raises(bw.CompositionError, match=rf"{name}.*{estimator}"):
        objective(PROBLEM, divergence=name)(model, x, y)
