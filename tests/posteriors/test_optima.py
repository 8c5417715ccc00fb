"""Linear regression with known noise: each family reaches its closed-form optimum.

The expectation of a quadratic loss is exact with sigma points, 2P fixed draws with the first three moments of N(0, I).
Training is then deterministic, and tolerances are those of L-BFGS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bayeswell.core.layout import Layout, Site
from bayeswell.core.protocols import Posterior, Prior
from bayeswell.posteriors import POSTERIORS
from helpers import LinearRegression
from posteriors.families import a_prior, covariance_of

PROBLEM = LinearRegression.make()


def layout_of(*shape: int) -> Layout:
    return Layout((Site(("weight",), shape, "Linear", shape[1], shape[0]),))


def sigma_points(size: int) -> Tensor:
    points = math.sqrt(size) * torch.eye(size, dtype=torch.float64)
    return torch.cat([points, -points])


def train(
    choice: Any, layout: Layout, nll: Callable[[Tensor], Tensor], temperature: float = 1.0
) -> tuple[Posterior, float]:
    """Minimize E[nll] + T KL; return the posterior and the negative of the minimum."""
    prior: Prior = a_prior({"name": "normal", "std": PROBLEM.prior_std}, layout)
    mean = torch.zeros(layout.size, dtype=torch.float64)
    q = POSTERIORS.resolve(choice).build(layout, prior, mean, torch.Generator().manual_seed(0))
    noise = sigma_points(q.noise_size)
    optimizer = torch.optim.LBFGS(
        q.parameters(), max_iter=600, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weights, kl = q.rsample_and_kl(noise, prior)
        assert weights is not None
        total = nll(weights).mean() + temperature * kl
        total.backward()
        return total.detach()

    optimizer.step(loss)
    return q, -float(loss())


def nll_of(problem: LinearRegression) -> Callable[[Tensor], Tensor]:
    constant = 0.5 * len(problem.y) * math.log(2 * math.pi * problem.noise_std**2)
    return lambda weights: (problem.y - weights @ problem.x.T).square().sum(-1) / (2 * problem.noise_std**2) + constant


@pytest.mark.parametrize("parameter", ["log_std", "rho"])
@pytest.mark.parametrize("temperature", [0.37, 1.0, 2.6])
def test_mean_field_optimum(parameter: str, temperature: float) -> None:
    """Exact means, and variances 1 / Lambda_ii."""
    choice = {"name": "mean_field", "parameter": parameter}
    q, attained = train(choice, layout_of(1, 4), nll_of(PROBLEM), temperature)
    torch.testing.assert_close(q.mean.detach(), PROBLEM.mean(temperature), rtol=0, atol=1e-5)
    variances = 1 / PROBLEM.precision(temperature).diagonal()
    torch.testing.assert_close(q.std().detach(), variances.sqrt(), rtol=1e-4, atol=0)
    assert attained == pytest.approx(PROBLEM.elbo(q.mean.detach(), variances.diag(), temperature), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.37, 1.0])
@pytest.mark.parametrize("choice", ["full", {"name": "low_rank", "rank": 3}], ids=str)
def test_full_and_low_rank_reach_the_exact_posterior(choice: Any, temperature: float) -> None:
    q, attained = train(choice, layout_of(1, 4), nll_of(PROBLEM), temperature)
    truth = PROBLEM.covariance(temperature)
    torch.testing.assert_close(q.mean.detach(), PROBLEM.mean(temperature), rtol=0, atol=1e-4)
    torch.testing.assert_close(covariance_of(q), truth, rtol=0, atol=2e-3 * float(truth.max()))
    assert attained == pytest.approx(temperature * PROBLEM.log_evidence(temperature), abs=1e-4)


def test_each_column_of_low_rank_raises_the_bound() -> None:
    variances = 1 / PROBLEM.precision().diagonal()
    attained = [PROBLEM.elbo(PROBLEM.mean(), variances.diag())]
    attained += [train({"name": "low_rank", "rank": r}, layout_of(1, 4), nll_of(PROBLEM))[1] for r in (1, 2)]
    assert attained[0] + 0.05 < attained[1] <= attained[2] + 1e-6
    assert attained[2] <= PROBLEM.log_evidence() + 1e-6


def test_shared_std_optimum() -> None:
    """std^2 = P / trace(Lambda), with exact means."""
    q, _ = train("shared_std", layout_of(1, 4), nll_of(PROBLEM))
    torch.testing.assert_close(q.mean.detach(), PROBLEM.mean(), rtol=0, atol=1e-5)
    assert float(q.std()[0].detach()) == pytest.approx(math.sqrt(4 / float(PROBLEM.precision().trace())), rel=1e-4)


def test_k_tied_of_full_rank_reaches_the_mean_field_optimum() -> None:
    base = LinearRegression.make(5, count=50, dimension=6)
    # Scales that make the optimal stds a matrix far from rank 1.
    problem = LinearRegression(base.x * torch.tensor([1.0, 3.0, 0.5, 2.0, 0.4, 1.5]), base.y)
    stds = problem.precision().diagonal().rsqrt()
    singular = torch.linalg.svdvals(stds.view(2, 3))
    assert float(singular[1] / singular[0]) > 0.2, "rank 1 must miss this optimum"
    optimum = problem.elbo(problem.mean(), stds.square().diag())
    for rank in (1, 2):
        q, attained = train({"name": "k_tied", "rank": rank}, layout_of(2, 3), nll_of(problem))
        assert (attained < optimum - 0.1) if rank == 1 else (attained == pytest.approx(optimum, abs=1e-3))
    torch.testing.assert_close(q.std().detach(), stds, rtol=1e-2, atol=0)


def test_matrix_normal_is_exact_for_several_outputs() -> None:
    """With one design for all outputs the posterior is MN(M, I, Lambda^-1)."""
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = PROBLEM.x @ torch.randn(4, 2, generator=generator, dtype=torch.float64) + PROBLEM.noise_std * noise
    problems = [LinearRegression(PROBLEM.x, column) for column in y.T]

    def nll(weights: Tensor) -> Tensor:
        rows = weights.view(-1, 2, 4).unbind(1)
        return sum(nll_of(problem)(row) for problem, row in zip(problems, rows, strict=True))

    q, attained = train("matrix_normal", layout_of(2, 4), nll, 0.6)
    truth = torch.kron(torch.eye(2, dtype=torch.float64), PROBLEM.covariance(0.6).contiguous())
    torch.testing.assert_close(covariance_of(q), truth, rtol=0, atol=1e-3 * float(truth.max()))
    assert attained == pytest.approx(0.6 * sum(problem.log_evidence(0.6) for problem in problems), abs=1e-4)
