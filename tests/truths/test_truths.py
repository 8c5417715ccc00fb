"""The regressions checked by integration, brute-force search and sampling: not the way they are computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from .arrays import Array, generic_gaussian
from .gaussian import kl_full
from .linear_regression import LinearRegression
from .logistic_regression import LogisticRegression
from .statistics import assert_mean_close

LINEAR = [
    LinearRegression.make(3),
    LinearRegression.make(4, prior_std=np.array([0.4, 1.3, 2.1, 0.9, 3.0, 0.6]), with_bias=True),
]
LOGISTIC = [LogisticRegression.make(4), LogisticRegression.make(4, prior_std=[1.1, 2.3, 0.8], with_bias=True)]


def brute_maximum(objective: Callable[[Array], float], start: Array) -> tuple[Array, float]:
    """Quasi-Newton with finite differences: knows nothing but values of the objective."""
    options = {"gtol": 1e-4, "maxiter": 2000}
    found = optimize.minimize(lambda p: -objective(p), start, method="BFGS", options=options)
    return found.x, -float(found.fun)


def sigma_point_mean(function: Callable[[Array], float], mean: Array, covariance: Array) -> float:
    """E f(w) from 2p points mean +- sqrt(p) (column of a square root): exact when f is quadratic."""
    columns = np.sqrt(len(mean)) * np.linalg.cholesky(covariance).T
    return float(np.mean([function(mean + sign * c) for c in columns for sign in (-1, 1)]))


# Linear regression.


@pytest.mark.parametrize("problem", LINEAR)
def test_linear_evidence_is_the_marginal_density_of_the_targets(problem: LinearRegression) -> None:
    marginal = problem.design @ np.diag(problem.prior_std**2) @ problem.design.T
    marginal += problem.noise_std**2 * np.eye(len(problem.y))
    truth = stats.multivariate_normal(np.zeros(len(problem.y)), marginal).logpdf(problem.y)
    assert problem.log_evidence == pytest.approx(truth, abs=1e-8)


@pytest.mark.parametrize("temperature", [0.37, 1.0, 1.9])
def test_linear_tempered_posterior_by_integration(temperature: float) -> None:
    problem = LinearRegression.make(5, count=12, dimension=2, prior_std=np.array([0.8, 1.6]))
    axes = [np.linspace(m - 9 * s, m + 9 * s, 301) for m, s in zip([0, 0], problem.prior_std, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    log_joint = stats.norm(0, problem.prior_std).logpdf(grid).sum(1)
    for row, target in zip(problem.design, problem.y, strict=True):
        log_joint += stats.norm(grid @ row, problem.noise_std).logpdf(target) / temperature
    log_mass = log_joint + sum(np.log(axis[1] - axis[0]) for axis in axes)
    mass = np.exp(log_mass - special.logsumexp(log_mass))
    assert problem.full_elbo(temperature) == pytest.approx(temperature * special.logsumexp(log_mass), abs=1e-6)
    mean = mass @ grid
    np.testing.assert_allclose(problem.mean(temperature), mean, atol=1e-6)
    covariance = (grid - mean).T @ ((grid - mean) * mass[:, None])
    np.testing.assert_allclose(problem.covariance(temperature), covariance, atol=1e-6)


@pytest.mark.parametrize("problem", LINEAR)
def test_linear_elbo_of_any_gaussian(problem: LinearRegression) -> None:
    mean, covariance = generic_gaussian(len(problem.prior_std), seed=6)

    def log_likelihood(weight: Array) -> float:
        return float(stats.norm(problem.design @ weight, problem.noise_std).logpdf(problem.y).sum())

    expected = sigma_point_mean(log_likelihood, mean, covariance)
    assert problem.expected_log_likelihood(mean, covariance) == pytest.approx(expected, rel=1e-10)
    for temperature in (0.37, 1.0, 1.9):
        gap = kl_full(mean, covariance, problem.mean(temperature), problem.covariance(temperature))
        truth = problem.full_elbo(temperature) - temperature * gap
        assert problem.elbo_full(mean, covariance, temperature) == pytest.approx(truth, rel=1e-10)
    std = np.sqrt(np.diag(covariance))
    assert problem.elbo(mean, std) == pytest.approx(problem.elbo_full(mean, np.diag(std**2)), rel=1e-12)


@pytest.mark.parametrize("temperature", [0.37, 1.0])
@pytest.mark.parametrize("problem", LINEAR)
def test_linear_mean_field_optimum_by_search(problem: LinearRegression, temperature: float) -> None:
    size = len(problem.prior_std)
    start = np.random.default_rng(7).normal(0, 0.5, 2 * size)
    point, best = brute_maximum(lambda p: problem.elbo(p[:size], np.exp(p[size:]), temperature), start)
    assert problem.mean_field_elbo(temperature) == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(problem.mean(temperature), point[:size], atol=1e-4)
    np.testing.assert_allclose(problem.mean_field_std(temperature), np.exp(point[size:]), rtol=1e-3)
    assert (problem.mean_field_std() < np.sqrt(np.diag(problem.covariance()))).all()
    assert problem.mean_field_gap() > 0.5, "the families must differ by more than tests tolerate"


def test_linear_low_rank_optimum_lies_between_and_reaches_full_at_rank_p_minus_1() -> None:
    problem = LINEAR[0]
    size = len(problem.prior_std)

    def best(rank: int) -> float:
        def objective(point: Array) -> float:
            factor = point[size:].reshape(size, rank)
            covariance = np.diag(np.exp(2 * point[:size])) + factor @ factor.T
            return problem.elbo_full(problem.mean(), covariance)

        start = np.random.default_rng(8).normal(0, 0.05, size * (1 + rank))
        start[:size] = np.log(problem.mean_field_std())
        return brute_maximum(objective, start)[1]

    lower, upper = problem.low_rank_elbo_bounds()
    assert lower + 0.1 < best(1) < upper - 0.01
    assert best(size - 1) == pytest.approx(upper, abs=1e-5)


def test_linear_data_are_the_same_in_both_precisions() -> None:
    for problem in LINEAR:
        for single, double in zip(problem.tensors(torch.float32), problem.tensors(), strict=True):
            assert torch.equal(single.double(), double)


# Logistic regression.


@pytest.mark.parametrize("problem", LOGISTIC)
def test_logistic_elbo_against_quadrature_over_the_weights(problem: LogisticRegression) -> None:
    size = len(problem.prior_std)
    mean, covariance = generic_gaussian(size, seed=9)
    nodes, weights = special.roots_hermitenorm(60)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), -1).reshape(-1, size)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * size, indexing="ij"), -1).reshape(-1, size), 1)
    points = mean + grid @ np.linalg.cholesky(covariance).T
    log_likelihood = np.zeros(len(points))
    for row, label in zip(problem.design, problem.y, strict=True):
        log_likelihood += special.log_expit((2 * label - 1) * (points @ row))
    truth = mass @ log_likelihood / mass.sum()
    assert problem.expected_log_likelihood(mean, covariance) == pytest.approx(truth, abs=1e-4)
    kl = kl_full(mean, covariance, np.zeros(size), np.diag(problem.prior_std**2))
    assert problem.elbo_full(mean, covariance, 0.37) == pytest.approx(truth - 0.37 * kl, abs=1e-4)
    std = np.sqrt(np.diag(covariance))
    assert problem.elbo(mean, std) == pytest.approx(problem.elbo_full(mean, np.diag(std**2)), rel=1e-12)


@pytest.mark.parametrize("temperature", [0.37, 1.0])
@pytest.mark.parametrize("problem", LOGISTIC)
def test_logistic_optima_by_search(problem: LogisticRegression, temperature: float) -> None:
    size = len(problem.prior_std)
    generator = np.random.default_rng(10)
    mean_field, full = problem.mean_field_optimum(temperature), problem.full_optimum(temperature)
    start = generator.normal(0, 0.5, 2 * size)
    point, best = brute_maximum(lambda p: problem.elbo(p[:size], np.exp(p[size:]), temperature), start)
    assert mean_field.elbo == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(mean_field.mean, point[:size], atol=2e-3)
    np.testing.assert_allclose(mean_field.std, np.exp(point[size:]), rtol=2e-3)
    assert problem.elbo(mean_field.mean, mean_field.std, temperature) == pytest.approx(mean_field.elbo, abs=1e-9)

    def covariance(square: Array) -> Array:  # a parameterisation other than the Cholesky factor
        root = square.reshape(size, size)
        return root @ root.T + 1e-9 * np.eye(size)

    start = np.concatenate([generator.normal(0, 0.5, size), np.eye(size).reshape(-1)])
    point, best = brute_maximum(lambda p: problem.elbo_full(p[:size], covariance(p[size:]), temperature), start)
    assert full.elbo == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(full.covariance, covariance(point[size:]), atol=5e-3)
    if temperature == 1.0:
        assert mean_field.elbo + 0.4 < full.elbo < problem.log_evidence < full.elbo + 0.1


def test_logistic_evidence_and_moments_in_two_dimensions_by_another_rule() -> None:
    """Gauss-Legendre on a box in the weights themselves, where the truth uses a whitened trapezoidal grid."""
    problem = LOGISTIC[0]
    mean, covariance = problem.posterior_moments()
    nodes, weights = np.polynomial.legendre.leggauss(300)
    widths = 10 * np.sqrt(np.diag(covariance))
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2) * widths + problem.full_optimum().mean
    log_joint = stats.norm(0, problem.prior_std).logpdf(grid).sum(1)
    log_joint += special.log_expit((2 * problem.y - 1) * (grid @ problem.X.T)).sum(1)
    mass = np.outer(weights, weights).reshape(-1) * widths.prod() * np.exp(log_joint - problem.log_evidence)
    assert mass.sum() == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(mean, mass @ grid, atol=1e-8)
    np.testing.assert_allclose(covariance, (grid - mean).T @ ((grid - mean) * mass[:, None]), atol=1e-8)


def test_logistic_evidence_with_bias_by_importance_sampling() -> None:
    problem = LOGISTIC[1]
    optimum = problem.full_optimum()
    proposal = stats.multivariate_t(optimum.mean, 1.3 * optimum.covariance, df=5, seed=11)
    weights = proposal.rvs(100_000)
    activations = (2 * problem.y - 1) * (weights @ problem.design.T)
    log_joint = -np.logaddexp(0, -activations).sum(1) + stats.norm(0, problem.prior_std).logpdf(weights).sum(1)
    ratios = np.exp(log_joint - proposal.logpdf(weights) - problem.log_evidence)
    assert ratios.std() / np.sqrt(len(ratios)) < 0.004, "the check must be sharp"
    assert_mean_close(ratios, 1.0)
    mean, covariance = problem.posterior_moments()
    centred = ratios[:, None, None] * (weights - mean)[:, :, None] * (weights - mean)[:, None, :]
    assert_mean_close(ratios[:, None] * (weights - mean), np.zeros(3))
    assert_mean_close(centred, covariance)


def test_logistic_without_data_returns_the_prior() -> None:
    stds = np.array([0.6, 2.3])
    problem = LogisticRegression(np.zeros((0, 2)), np.zeros(0), stds)
    for optimum in (problem.mean_field_optimum(), problem.full_optimum()):
        np.testing.assert_allclose(optimum.mean, 0, atol=1e-6)
        np.testing.assert_allclose(optimum.covariance, np.diag(stds**2), atol=1e-5)
        assert optimum.elbo == pytest.approx(0, abs=1e-9)
    assert problem.log_evidence == pytest.approx(0, abs=1e-9)
