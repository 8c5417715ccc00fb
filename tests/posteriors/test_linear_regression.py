"""Linear regression with known noise: every posterior family reaches its own closed-form optimum.

Two kinds of noise. `SigmaPoints` replaces random draws by 2P fixed ones whose first three moments are exactly
those of N(0, I): the expectation of a quadratic loss is then exact, training is deterministic, and agreement is
asked to many digits. The same optima are then reached by ordinary stochastic training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.types import BayesianModel, ExpectedNLL, Step
from linear_models import (
    PROBLEM,
    Folded,
    SigmaPoints,
    assert_reaches,
    covariance_of,
    lift,
    mean_of,
    objective,
    reported_elbos,
    set_full,
    set_mean_and_std,
    std_of,
    train_exactly,
    train_stochastically,
)
from truths.arrays import Array
from truths.linear_regression import LinearRegression
from truths.statistics import assert_mean_close

TEMPERATURES = [0.37, 1.0, 2.6]


@dataclass(frozen=True)
class PointsAtOnce(SigmaPoints):
    """The sigma points side by side instead of one by one: several times faster where L-BFGS takes many steps.

    For objectives without checks, which look at each value.
    """

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        losses = torch.vmap(lambda drawn: step.nll(self.forward(model, drawn, step)))(weights)
        return ExpectedNLL(losses.mean(), None)


# Checks that the planted bugs are tried on.


def check_exact_training_reaches_the_mean_field_optimum(temperature: float = 0.37) -> None:
    """1e-3 posterior stds and 0.1 %: the training is deterministic, so only L-BFGS's stopping rule is left."""
    x, y = PROBLEM.tensors()
    model = lift(PROBLEM, "mean_field", SigmaPoints())
    elbo = objective(PROBLEM, temperature=temperature)
    train_exactly(model, lambda: elbo(model, x, y).total)
    assert_reaches(model, PROBLEM.mean(temperature), PROBLEM.mean_field_std(temperature), 1e-3, 1e-3)
    terms = elbo(model, x, y)
    attained = -len(y) * terms.total.item()
    assert attained == pytest.approx(PROBLEM.mean_field_elbo(temperature), abs=1e-4)
    if temperature == 1.0:
        assert float(terms.elbo) == pytest.approx(PROBLEM.mean_field_elbo(), abs=1e-4)
        assert float(terms.elbo) < PROBLEM.log_evidence


def many_reported_elbos(problem: LinearRegression, model: bw.BayesianModule, count: int) -> Array:
    """As ``reported_elbos``, with all calls side by side."""
    x, y = problem.tensors()
    elbo, generator = objective(problem, check=False), bw.make_generator(11)
    with torch.no_grad():
        calls = torch.vmap(lambda _: elbo(model, x, y, generator=generator).elbo, randomness="different")
        return calls(torch.empty(count)).numpy()


def check_reported_elbo_at_any_gaussian(estimator: str = "weight_sampling") -> None:
    """The average of `terms.elbo` is the closed form at a wide generic diagonal Gaussian: rate 1e-6."""
    problem = LinearRegression.make(3, count=40, dimension=12, mixing=0.2)
    model = lift(problem, "mean_field", {"name": estimator, "draws": 7})
    mean = problem.mean() + np.linspace(-0.05, 0.06, 12)
    std = np.linspace(0.4, 0.2, 12)
    set_mean_and_std(model, mean, std)
    truth = problem.elbo(mean, std)
    samples = many_reported_elbos(problem, model, 400)
    # The check must be sharp: 10 % less noise would move the truth by twice what it tolerates.
    damped = problem.expected_log_likelihood(mean, np.diag((0.9 * std) ** 2))
    damped -= problem.kl_to_prior(mean, np.diag(std**2))
    assert abs(damped - truth) > 10 * samples.std() / math.sqrt(len(samples))
    assert_mean_close(samples, truth)


def check_full_elbo_is_the_log_evidence_in_every_draw() -> None:
    """log p(y, w) - log q(w) does not depend on w at the exact posterior: no tolerance but rounding."""
    model = lift(PROBLEM, "full", "weight_sampling")
    set_full(model, PROBLEM.mean(), PROBLEM.covariance())
    samples = reported_elbos(PROBLEM, model, 5, divergence="monte_carlo")
    np.testing.assert_allclose(samples, PROBLEM.log_evidence, rtol=1e-10)


# Deterministic training: each family against its closed form.


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_mean_field_optimum(temperature: float) -> None:
    check_exact_training_reaches_the_mean_field_optimum(temperature)


def test_mean_field_optimum_with_softplus_and_bias() -> None:
    problem = LinearRegression.make(4, count=60, dimension=3, with_bias=True)
    x, y = problem.tensors()
    model = lift(problem, {"name": "mean_field", "parameter": "rho"}, SigmaPoints())
    elbo = objective(problem, temperature=1.7)
    train_exactly(model, lambda: elbo(model, x, y).total)
    assert_reaches(model, problem.mean(1.7), problem.mean_field_std(1.7), 1e-3, 1e-3)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_full_reaches_the_exact_posterior(temperature: float) -> None:
    x, y = PROBLEM.tensors()
    model = lift(PROBLEM, "full", PointsAtOnce())
    elbo = objective(PROBLEM, temperature=temperature, check=False)
    train_exactly(model, lambda: elbo(model, x, y).total, iterations=150)
    truth = PROBLEM.covariance(temperature)
    assert_reaches(model, PROBLEM.mean(temperature), np.sqrt(np.diag(truth)), 1e-3, 1e-3)
    scale = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    np.testing.assert_allclose(covariance_of(model) / scale, truth / scale, atol=2e-3)
    attained = -len(y) * elbo(model, x, y).total.item()
    assert attained == pytest.approx(PROBLEM.full_elbo(temperature), abs=1e-4)


def test_low_rank_climbs_from_mean_field_to_the_log_evidence() -> None:
    x, y = PROBLEM.tensors()
    elbo = objective(PROBLEM, check=False)
    attained = [PROBLEM.mean_field_elbo()]
    for rank in (1, 2, 4):
        model = lift(PROBLEM, {"name": "low_rank", "rank": rank}, PointsAtOnce())
        train_exactly(model, lambda model=model: elbo(model, x, y).total, iterations=150)
        reported = float(elbo(model, x, y).elbo)
        covariance = covariance_of(model)
        # What it says of itself is what its mean and covariance attain.
        assert reported == pytest.approx(PROBLEM.elbo_full(mean_of(model), covariance), abs=1e-5)
        np.testing.assert_allclose(std_of(model), np.sqrt(np.diag(covariance)), rtol=1e-10)
        attained.append(reported)
    steps = np.diff(attained)
    assert (steps[:2] > 0.05).all(), f"each further column must help: {attained}"
    assert steps[2] > -1e-6
    assert attained[-1] == pytest.approx(PROBLEM.log_evidence, abs=1e-3), "rank P - 1 holds the exact posterior"
    assert attained[-1] <= PROBLEM.log_evidence + 1e-9
    best_rank_one = _best_low_rank_elbo(1)
    assert attained[1] == pytest.approx(best_rank_one, abs=1e-3)


def _best_low_rank_elbo(rank: int) -> float:
    """The optimum of diagonal + rank r by a search that knows only the closed form.

    Its slope in the covariance C is (C^-1 - precision) / 2. A wrong slope could only end the search too early, below
    what the trained posterior attains.
    """
    size = len(PROBLEM.prior_std)

    def negative(point: Array) -> tuple[float, Array]:
        variance, factor = np.exp(2 * point[:size]), point[size:].reshape(size, rank)
        covariance = np.diag(variance) + factor @ factor.T
        slope = 0.5 * (np.linalg.inv(covariance) - PROBLEM.precision())
        gradient = np.concatenate([2 * np.diag(slope) * variance, (2 * slope @ factor).reshape(-1)])
        return -PROBLEM.elbo_full(PROBLEM.mean(), covariance), -gradient

    starts = [np.random.default_rng(seed).normal(0, 0.05, size * (1 + rank)) for seed in (1, 2, 3)]
    for start in starts:
        start[:size] = np.log(PROBLEM.mean_field_std())
    return -min(float(optimize.minimize(negative, start, jac=True, method="BFGS").fun) for start in starts)


def test_k_tied_at_full_rank_reaches_the_mean_field_optimum() -> None:
    base = LinearRegression.make(5, count=50, dimension=6, mixing=0.4)
    # Scales that make the optimal stds a matrix far from rank 1.
    scales = np.array([[1.0, 3.0, 0.5], [2.0, 0.4, 1.5]])
    problem = LinearRegression(base.X * scales.reshape(-1), base.y, base.noise_std, base.prior_std)
    stds = problem.mean_field_std().reshape(2, 3)
    singular = np.linalg.svd(stds)[1]
    assert singular[1] / singular[0] > 0.2, "a rank-1 posterior must miss this optimum"
    x, y = problem.tensors()
    elbo = objective(problem, check=False)
    attained = {}
    for rank in (1, 2):
        model = lift(problem, {"name": "k_tied", "rank": rank}, PointsAtOnce(), Folded(2, 3))
        train_exactly(model, lambda model=model: elbo(model, x, y).total, iterations=500)
        attained[rank] = float(elbo(model, x, y).elbo)
    assert_reaches(model, problem.mean(), problem.mean_field_std(), 1e-2, 1e-2)
    assert attained[2] == pytest.approx(problem.mean_field_elbo(), abs=1e-3)
    assert attained[1] < problem.mean_field_elbo() - 0.1


def test_matrix_normal_is_exact_for_several_outputs() -> None:
    """With one design for all outputs the posterior is MN(M, I, Lambda^-1)."""
    base = LinearRegression.make(6, count=40, dimension=3)
    outputs = 2
    generator = np.random.default_rng(7)
    y = base.X @ generator.normal(0, 1.3, (3, outputs)) + base.noise_std * generator.standard_normal((40, outputs))
    problems = [LinearRegression(base.X, column, base.noise_std, base.prior_std) for column in y.T]
    model = lift(base, "matrix_normal", SigmaPoints(), nn.Linear(3, outputs, bias=False))
    elbo = objective(base, temperature=0.6)
    x, targets = torch.tensor(base.X), torch.tensor(y)
    train_exactly(model, lambda: elbo(model, x, targets).total)
    np.testing.assert_allclose(
        mean_of(model).reshape(outputs, 3), [problem.mean(0.6) for problem in problems], atol=1e-5
    )
    truth = np.kron(np.eye(outputs), base.covariance(0.6))
    np.testing.assert_allclose(covariance_of(model), truth, atol=1e-3 * truth.max())
    attained = -len(y) * elbo(model, x, targets).total.item()
    assert attained == pytest.approx(sum(problem.full_elbo(0.6) for problem in problems), abs=1e-4)


# Stochastic training, as a user would do it.


@pytest.mark.parametrize(
    ("posterior", "estimator", "mean_tolerance", "std_tolerance"),
    [
        # Pre-activation noise differs between examples, so stds see some 60 times more of it.
        ("mean_field", bw.LocalReparameterization(draws=2), 0.05, 0.03),
        (bw.KTied(rank=1), bw.LocalReparameterization(draws=2), 0.05, 0.03),
        ("mean_field", bw.WeightSampling(draws=2), 0.15, 0.06),
        ("mean_field", bw.Flipout(draws=2), 0.15, 0.1),
        ("full", bw.WeightSampling(draws=2), 0.15, 0.06),
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_stochastic_training_reaches_the_optimum(
    posterior: Any, estimator: Any, mean_tolerance: float, std_tolerance: float
) -> None:
    """ELBO within 0.1 nat; means and stds within four times their scatter over seeds, or more.

    Means begin three posterior stds away. A step has 100 calls side by side, which is as cheap as a few in a row: with
    so little noise few steps are enough. A 1 x P matrix has full rank 1, so k_tied(rank=1) holds every mean-field
    posterior here.
    """
    problem = LinearRegression.make(3, count=60, mixing=0.5)
    assert problem.mean_field_gap() > 0.5, "0.1 nat must tell the families apart"
    x, y = problem.tensors()
    model = lift(problem, posterior, estimator)
    full = posterior == "full"
    std = np.sqrt(np.diag(problem.covariance())) if full else problem.mean_field_std()
    with torch.no_grad():
        model.posterior.mean.copy_(torch.from_numpy(problem.mean() + 3 * std * np.array([1, -1, 1, 1, -1])))
    elbo = objective(problem, check=False)
    calls = torch.vmap(lambda _: elbo(model, x, y).total, randomness="different")
    train_stochastically(model, lambda step: calls(torch.empty(100)).mean(), warm_steps=50, steps=140)
    optimum = problem.log_evidence if full else problem.mean_field_elbo()
    attained = problem.elbo_full(mean_of(model), covariance_of(model))
    assert optimum - 0.1 < attained <= optimum + 1e-9
    assert_reaches(model, problem.mean(), std, mean_tolerance, std_tolerance)


def test_mini_batches_with_a_ragged_end_reach_the_optimum() -> None:
    """Geometric KL weights and batches of 48, 48, 48, 48, 8: the epoch's average gradient is what counts."""
    x, y = PROBLEM.tensors()
    model = lift(PROBLEM, "mean_field", bw.LocalReparameterization())
    elbo = objective(PROBLEM, check=False, kl_weight=bw.Geometric(0.8))
    inputs, targets = x.split(48), y.split(48)
    batches = len(inputs)

    def loss(step: int) -> Tensor:
        i = step % batches
        return elbo(model, inputs[i], targets[i], at=bw.Progress(step, None, i, batches)).total

    with torch.no_grad():  # a few posterior stds away, so that few epochs are enough
        model.posterior.mean.copy_(torch.from_numpy(PROBLEM.mean() + 5 * PROBLEM.mean_field_std()))
    train_stochastically(model, loss, warm_steps=100, steps=350)
    attained = PROBLEM.elbo(mean_of(model), std_of(model))
    assert PROBLEM.mean_field_elbo() - 0.1 < attained <= PROBLEM.mean_field_elbo() + 1e-9


# What is reported.


@pytest.mark.parametrize("estimator", ["weight_sampling", "local_reparameterization", "flipout"])
def test_reported_elbo_at_any_gaussian(estimator: str) -> None:
    check_reported_elbo_at_any_gaussian(estimator)


def test_full_elbo_is_the_log_evidence_in_every_draw() -> None:
    check_full_elbo_is_the_log_evidence_in_every_draw()


@pytest.mark.parametrize("posterior", ["mean_field", "k_tied", "low_rank", "matrix_normal", "full"])
def test_elbo_of_every_family_is_exact_and_below_the_log_evidence(posterior: str) -> None:
    """At a generic point of each family: the reported ELBO, with exact noise, is the closed form."""
    problem = LinearRegression.make(8, count=30, dimension=6)
    model = lift(problem, posterior, SigmaPoints(), Folded(2, 3))
    with torch.no_grad():
        for index, parameter in enumerate(model.posterior.parameters()):
            noise = torch.from_numpy(np.random.default_rng(index).standard_normal(tuple(parameter.shape)))
            parameter.add_(0.2 * noise)
    x, y = problem.tensors()
    terms = objective(problem, temperature=0.4)(model, x, y)
    covariance = covariance_of(model)
    truth = problem.elbo_full(mean_of(model), covariance)
    assert float(terms.elbo) == pytest.approx(truth, rel=1e-10)
    assert float(terms.kl) == pytest.approx(problem.kl_to_prior(mean_of(model), covariance), rel=1e-10)
    assert truth < problem.log_evidence
    tempered = problem.elbo_full(mean_of(model), covariance, 0.4)
    assert -len(y) * terms.total.item() == pytest.approx(tempered, rel=1e-10)
    assert float(terms.elbo_per_datum) == pytest.approx(truth / len(y), rel=1e-10)
