"""Linear regression, where theory says something else than the posterior: each method finds its own law."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import linalg, optimize, stats
from torch import Tensor, nn

from bayeswell.metrics.chains import ess
from bayeswell.samplers import PSGLD
from bayeswell.samplers.stepping import Sampler
from methods.known_posteriors import LINEAR, assert_moments, chains_of, linear_fit
from truths.arrays import Array
from truths.linear_regression import LinearRegression

FALLING = {"stepper": {"name": "adam", "lr": 0.06}, "std_multiplier": 0.5, "rate": "cosine"}


def square_errors(draws: Tensor, mean: Array) -> tuple[Array, Array]:
    """Mean squared distance of draws (chains, n, P) from a mean, and the effective number of the squares."""
    squares = (draws - torch.from_numpy(mean)).square()
    return squares.mean((0, 1)).numpy(), ess(squares, rank_normalised=False).numpy()


@dataclasses.dataclass(frozen=True)
class WatchedPSGLD(PSGLD):
    """pSGLD that leaves its samplers behind, with the scales at which they ended."""

    built: ClassVar[list[Sampler]] = []

    def build(self, *args: Any, **settings: Any) -> Sampler:
        sampler = super().build(*args, **settings)
        self.built.append(sampler)
        return sampler

    def scale(self, sampler: Sampler) -> Array:
        """G = 1 / (damping + sqrt(V^)), once it is held fixed."""
        (state,) = sampler.state.values()
        average = state["square_average"] / (1 - self.decay ** float(state["step"]))
        scale: Array = (1 / (self.damping + average.sqrt())).numpy()
        return scale


def test_psgld_draws_from_the_law_of_its_scale() -> None:
    """With a fixed scale G the chain is linear, w <- A w + noise, and its law a discrete Lyapunov equation.

    A = 1 - lr G Lambda / N with noise of covariance 2 lr G / N: the posterior, somewhat wider along stiff directions
    for a step as long as here. Each chain has a scale of its own. Variances by z-tests, rate 1e-6.
    """
    epochs, stop, members, copies, count = 200, 100, 2, 100, len(LINEAR.y)
    stepper = WatchedPSGLD(lr=0.06, adapt_steps=stop, damping=0.1)
    stepper.built.clear()
    bank = {"name": "bank", "burn_in": stop + 50, "max_draws": epochs}
    result = linear_fit("psgld", copies=copies, epochs=epochs, stepper=stepper, members=members, collector=bank)
    expected = []
    for own in np.concatenate([stepper.scale(sampler).reshape(copies, 3) for sampler in stepper.built]):
        scale = np.diag(own)
        step = np.eye(3) - stepper.lr * scale @ LINEAR.precision() / count
        expected.append(np.diag(linalg.solve_discrete_lyapunov(step, 2 * stepper.lr * scale / count)))
    variance = np.mean(expected, 0)
    assert len(expected) == members * copies
    found, effective = square_errors(chains_of(result, members, copies), LINEAR.mean())
    errors, limit = variance * np.sqrt(2 / effective), stats.norm.isf(1e-6 / (2 * 3))
    exact = np.diag(LINEAR.covariance())
    assert np.all(np.abs(found - variance) < limit * errors)
    assert np.all((variance > exact) & (variance < 1.5 * exact))


def test_cyclical_sgld_has_the_variance_of_its_own_schedule() -> None:
    """Exactly: draws of one run are Gaussian with a covariance that the rates decide.

    Along an eigenvector of precision lam, with k_t = lr_t lam / N, step t takes covariances with what came before to
    (1 - k_t) cov and the variance to (1 - k_t)^2 var + 2 lr_t / N, the last term only where it does not explore: short
    cycles are narrower than the posterior. The mean square of the draws has variance 2 mean(C^2), C their covariance:
    it is compared with a chi-square of that mean and variance, rate 1e-4 in all.
    """
    epochs, cycles, chains, lr, count = 208, 13, 400, 0.3, len(LINEAR.y)
    length = epochs // cycles
    bank = {"name": "bank", "burn_in": 10 * length, "thinning": 1, "max_draws": epochs}
    stepper = {"name": "cyclical_sgld", "lr": lr, "cycles": cycles}
    result = linear_fit("csgld", copies=chains, epochs=epochs, stepper=stepper, collector=bank)
    values, vectors = np.linalg.eigh(LINEAR.precision())
    places = np.arange(epochs) % length / length
    rates = lr / 2 * (np.cos(np.pi * places) + 1)
    covariance = np.zeros((epochs, epochs, 3))
    for step in range(epochs):
        shrink = 1 - rates[step] * values / count
        covariance[step, :step] = shrink * covariance[step - 1, :step]
        covariance[step, step] = shrink**2 * covariance[step - 1, step - 1] if step else 0.0
        covariance[step, step] += 2 * rates[step] / count * (places[step] >= 0.5)
        covariance[:step, step] = covariance[step, :step]
    kept = (places >= 0.75) & (np.arange(epochs) >= 10 * length)
    own = covariance[kept][:, kept]
    variance = np.einsum("ssi->i", own) / len(own)
    freedom = chains * variance**2 / np.square(own).mean((0, 1))
    draws = chains_of(result, 1, chains).flatten(0, 1)
    centred = (draws - torch.from_numpy(LINEAR.mean())).numpy() @ vectors
    assert len(centred) == chains * len(own)
    ratio = np.square(centred).mean(0) / variance
    low, high = stats.chi2.ppf(1e-4 / 6, freedom) / freedom, stats.chi2.isf(1e-4 / 6, freedom) / freedom
    assert np.all((ratio > low) & (ratio < high))
    # The test can see: with noise throughout, the widest direction would have the variance of the posterior.
    assert 1 / values[0] / variance[0] > high[0]


DROP = 0.3


def test_mc_dropout_is_ridge_regression_with_the_spread_of_its_masks() -> None:
    """Not the posterior, but what its theory says, in closed form.

    The objective is, averaged over masks, least squares with a ridge p/(1-p) diag(X'X) (Wager et al. 2013); a drawn
    network has weights z_j w_j / (1 - p), so the function has mean x'w and variance p/(1-p) sum_j x_j^2 w_j^2.
    """
    net = nn.Sequential(nn.Dropout(DROP), nn.Linear(3, 1, bias=False))
    # Each example 20 times with 20 times the variance is the same regression, with 20 masks of each in a step.
    often = LinearRegression(
        np.tile(LINEAR.X, (20, 1)), np.tile(LINEAR.y, 20), np.sqrt(20) * LINEAR.noise_std, LINEAR.prior_std
    )
    stepper = {"name": "sgd", "lr": 4.0, "momentum": 0.3}
    result = linear_fit("mc-dropout", often, net, epochs=80, stepper=stepper)
    weights = result.model.posterior.mean_vector().detach().numpy()
    gram, odds = LINEAR.X.T @ LINEAR.X, DROP / (1 - DROP)
    ridge = odds * np.diag(np.diag(gram)) + LINEAR.noise_std**2 * np.diag(LINEAR.prior_std**-2.0)
    optimum = np.linalg.solve(gram + ridge, LINEAR.X.T @ LINEAR.y)
    marginal = np.sqrt(np.diag(LINEAR.covariance()))
    assert np.max(np.abs(weights - optimum) / marginal) < 0.3
    assert np.max(np.abs(optimum - LINEAR.mean()) / marginal) > 1
    draws = 4000
    inputs = LINEAR.X[:6]
    found = result.predict(torch.from_numpy(inputs), draws=draws)
    masks = np.array(list(itertools.product([0, 1], repeat=3)))
    chances = np.prod(np.where(masks == 1, 1 - DROP, DROP), axis=1)
    outputs = inputs @ (masks / (1 - DROP) * weights).T
    mean = outputs @ chances
    centred = outputs - mean[:, None]
    variance, fourth = centred**2 @ chances, centred**4 @ chances
    np.testing.assert_allclose(mean, inputs @ weights, rtol=1e-9)
    np.testing.assert_allclose(variance, odds * inputs**2 @ weights**2, rtol=1e-9)
    # 12 z-tests at rate 1e-6 in all.
    limit = stats.norm.isf(1e-6 / (2 * 12))
    assert np.all(np.abs(found.mean[:, 0].numpy() - mean) < limit * np.sqrt(variance / draws))
    error = np.sqrt((fourth - variance**2) / draws)
    assert np.all(np.abs(found.epistemic_variance[:, 0].numpy() - variance) < limit * error)


def sharp_gradient(weights: Array, rho: float) -> Array:
    """d/dw of the summed NLL at the worst neighbour of each weight vector (draws, P)."""
    precision = LINEAR.X.T @ LINEAR.X / LINEAR.noise_std**2
    optimum = np.linalg.lstsq(LINEAR.X, LINEAR.y, rcond=None)[0]
    slope = (weights - optimum) @ precision
    return slope + rho * slope @ precision / np.linalg.norm(slope, axis=-1, keepdims=True)


def test_f_sgvb_is_narrower_as_its_equations_say() -> None:
    """The optimum of E[NLL(w + e(w))] + KL, e the step to the worst neighbour of each draw, held fixed as in training.

    Both equations (gradients of means and of log stds are 0) are solved with 40,000 draws: stds are 0.52 to 0.66 of
    those without sharpness. One draw a step leaves some noise.
    """
    rho, prior = 0.15, LINEAR.prior_std**-2.0
    half = np.random.default_rng(3).standard_normal((20_000, 3))
    noise = np.concatenate([half, -half])

    def stationary(point: Array) -> Array:
        mean, std = point[:3], np.exp(point[3:])
        slope = sharp_gradient(mean + std * noise, rho)
        return np.concatenate([slope.mean(0) + prior * mean, (slope * noise).mean(0) * std + prior * std**2 - 1])

    start = np.concatenate([LINEAR.mean(), np.log(LINEAR.mean_field_std())])
    solution = optimize.root(stationary, start, tol=1e-10)
    assert solution.success
    mean, std = solution.x[:3], np.exp(solution.x[3:])
    assert np.max(std / LINEAR.mean_field_std()) < 0.7
    net = nn.Linear(3, 1, bias=False)
    net.weight = nn.Parameter(torch.from_numpy(LINEAR.mean() + LINEAR.mean_field_std())[None])
    result = linear_fit("f-sgvb", net=net, epochs=300, **FALLING, sharpness={"rho": rho})
    assert_moments(result, mean, std, 0.4, 0.2)


def test_f_sgld_draws_from_the_sharpness_aware_posterior() -> None:
    """One weight, exact for the step it takes: the stationary density of w <- N(w - lr g(w), 2 lr / N) on a grid.

    N g(w) = h (w - a + rho sign(w - a)) + w / s^2. As lr -> 0 this is exp(-h (|w - a| + rho)^2 / 2 - w^2 / 2 s^2),
    narrower than the posterior. Variance by a z-test, rate 1e-6.
    """
    problem = LinearRegression.make(4, count=40, dimension=1)
    count, square = len(problem.y), float(np.sum(problem.X**2))
    curvature, optimum = square / problem.noise_std**2, float(problem.X[:, 0] @ problem.y) / square
    std = curvature**-0.5
    rho, lr = 0.8 * std, 0.3 * count / curvature
    epochs, chains = 350, 2
    bank = {"name": "bank", "burn_in": 50, "max_draws": epochs}
    result = linear_fit(
        "f-sgld", problem, epochs=epochs, stepper={"name": "sgld", "lr": lr}, members=chains, collector=bank,
        sharpness={"rho": rho},
    )  # fmt: skip
    grid = optimum + std * np.linspace(-6, 6, 601)
    away = grid - optimum
    slope = curvature * (away + rho * np.sign(away)) + grid / problem.prior_std[0] ** 2
    kernel = stats.norm.pdf(grid[:, None], grid - lr / count * slope, np.sqrt(2 * lr / count))
    kernel, density = kernel / kernel.sum(0), np.eye(len(grid))[300]
    for _ in range(200):
        density = kernel @ density
    mean = grid @ density
    variance, fourth = (grid - mean) ** 2 @ density, (grid - mean) ** 4 @ density
    found, effective = square_errors(result.model.posterior.weights.reshape(chains, -1, 1), np.array([mean]))
    error, limit = np.sqrt((fourth - variance**2) / effective[0]), stats.norm.isf(1e-6 / 2)
    assert abs(found[0] - variance) < limit * error
    # SGLD without sharpness at the same step, which would fail the test.
    plain = 1 / (1 / problem.covariance()[0, 0] - lr / (2 * count) * problem.precision()[0, 0] ** 2)
    assert plain - variance > limit * error
