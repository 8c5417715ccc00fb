"""Linear regression with known noise as a model of ours: lifted, set to a known Gaussian, trained exactly or by chance.

`SigmaPoints` replaces random draws by 2P fixed ones whose first three moments are exactly those of N(0, I): the
expectation of a quadratic loss is then exact and training is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.types import BayesianModel, Step
from truths.arrays import Array
from truths.linear_regression import LinearRegression

PROBLEM = LinearRegression.make(3)


@dataclass(frozen=True)
class SigmaPoints(bw.WeightSampling):
    """The draws +-sqrt(P) e_i: mean 0, covariance I and no third moment, all exactly; `draws` is not used."""

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        size = model.posterior.noise_size
        points = math.sqrt(size) * torch.eye(size, dtype=torch.float64)
        return torch.cat([points, -points])

    def expected_nll(self, model: BayesianModel, *args: Any) -> Any:
        sized = bw.WeightSampling(draws=2 * model.posterior.noise_size)
        return sized.expected_nll(model, *args)


class Folded(nn.Module):
    """y = x'vec(W): a generic linear regression whose weights form a matrix."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.reshape(-1)


def lift(
    problem: LinearRegression,
    posterior: Any,
    estimator: Any,
    net: nn.Module | None = None,
) -> bw.BayesianModule:
    """A float64 model of the problem; means start at the network's own random weights."""
    net = nn.Linear(problem.X.shape[1], 1, bias=problem.with_bias) if net is None else net
    return bw.bayesian(net.double(), posterior, bw.Normal(float(problem.prior_std[0])), estimator)


def objective(problem: LinearRegression, **settings: Any) -> bw.ELBO:
    return bw.ELBO(bw.Gaussian("known", problem.noise_std), len(problem.y), **settings)


def train_exactly(model: bw.BayesianModule, loss: Callable[[], Tensor], iterations: int = 300) -> None:
    """L-BFGS on a deterministic loss per datum, until its slope is 1e-7: means are then N std 1e-7 stds off."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=iterations, max_eval=2 * iterations, history_size=30,
        tolerance_grad=1e-7, tolerance_change=1e-12, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value.item()

    optimizer.step(closure)  # type: ignore[arg-type]


def covariance_of(model: bw.BayesianModule) -> Array:
    """The covariance of the weights, by sending a basis of noise through `sample`: exact for any linear family."""
    with torch.no_grad():
        size = model.posterior.noise_size
        basis = torch.eye(size, dtype=torch.float64)
        factor = model.posterior.sample(basis) - model.posterior.sample(torch.zeros_like(basis))
        return (factor.T @ factor).numpy()


def mean_of(model: bw.BayesianModule) -> Array:
    return model.posterior.mean_vector().detach().numpy()


def std_of(model: bw.BayesianModule) -> Array:
    return model.posterior.std_vector().detach().numpy()


def set_mean_and_std(model: bw.BayesianModule, mean: Array, std: Array) -> None:
    """Put a mean_field posterior at a given Gaussian."""
    with torch.no_grad():
        model.posterior.mean.copy_(torch.from_numpy(mean))
        model.posterior.log_std.copy_(torch.from_numpy(np.log(std)))


def set_full(model: bw.BayesianModule, mean: Array, covariance: Array) -> None:
    """Put a full posterior at a given Gaussian."""
    factor = torch.from_numpy(np.linalg.cholesky(covariance))
    with torch.no_grad():
        model.posterior.mean.copy_(torch.from_numpy(mean))
        model.posterior.log_diagonal.copy_(factor.diagonal().log())
        model.posterior.lower.copy_(factor / factor.diagonal()[:, None])


def assert_reaches(
    model: bw.BayesianModule, mean: Array, std: Array, mean_tolerance: float, std_tolerance: float
) -> None:
    """Means within `mean_tolerance` posterior stds, stds within the relative `std_tolerance`."""
    mean_error = float(np.max(np.abs(mean_of(model) - mean) / std))
    std_error = float(np.max(np.abs(std_of(model) / std - 1)))
    assert mean_error < mean_tolerance, f"a mean is {mean_error:.2g} posterior stds off"
    assert std_error < std_tolerance, f"a std is {std_error:.2%} off"


def reported_elbos(problem: LinearRegression, model: bw.BayesianModule, count: int, **settings: Any) -> Array:
    """`terms.elbo` of `count` full-batch calls with fresh noise."""
    x, y = problem.tensors()
    elbo = objective(problem, check=False, **settings)
    generator = bw.make_generator(11)
    with torch.no_grad():
        return np.array([float(elbo(model, x, y, generator=generator).elbo) for _ in range(count)])


def train_stochastically(
    model: bw.BayesianModule, loss: Callable[[int], Tensor], warm_steps: int = 150, steps: int = 450
) -> None:
    """Adam with a large and then a small learning rate, and the average of the last iterates."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.9, 0.95))
    averages = [torch.zeros_like(p) for p in model.parameters()]
    start = warm_steps + 50
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 if step < warm_steps else 0.02
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
        if step >= start:
            for average, parameter in zip(averages, model.parameters(), strict=True):
                average += parameter.detach() / (steps - start)
    with torch.no_grad():
        for average, parameter in zip(averages, model.parameters(), strict=True):
            parameter.copy_(average)
