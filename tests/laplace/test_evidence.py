"""The prior's precision by marginal likelihood, against the exact evidence of linear regression and grids."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.laplace import Laplace, at_end_of_range
from bayeswell.laplace.evidence import Spectrum, best_factor, find_factors, maximize
from bayeswell.likelihoods import Gaussian
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.priors import Normal
from helpers import LinearRegression

PROBLEM = dataclasses.replace(LinearRegression.make(11, count=40), prior_std=0.9)


def with_factor(factor: float) -> LinearRegression:
    """The problem with the prior's precision multiplied."""
    return dataclasses.replace(PROBLEM, prior_std=PROBLEM.prior_std / factor**0.5)


def model_at(mean: torch.Tensor) -> BayesianModule:
    model = bayesian(nn.Linear(4, 1, bias=False).double(), "delta", Normal(PROBLEM.prior_std))
    with torch.no_grad():
        model.posterior.mean.copy_(mean)
    return model


def arguments(model: BayesianModule, temperature: float = 1.0) -> dict[str, Any]:
    x, y = PROBLEM.x, PROBLEM.y
    batches = [(x[:25], y[:25]), (x[25:], y[25:])]
    likelihood = Gaussian("known", PROBLEM.noise_std)
    data = {"likelihood": likelihood, "batches": batches, "dataset_size": len(y)}
    return {"model": model, "temperature": temperature, **data}


def evidence(model: BayesianModule, part: Laplace, temperature: float = 1.0) -> float:
    found = part.curvature(**arguments(model, temperature))
    return found.log_evidence(found.factors(part.prior_precision))


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("factor", [1.0, 4.2])
@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_evidence_of_linear_regression_is_exact(structure: str, factor: float, temperature: float) -> None:
    """Kronecker factors too, as there is one output."""
    model = model_at(with_factor(factor).mean(temperature))
    found = evidence(model, Laplace(structure, prior_precision=factor), temperature)
    assert found == pytest.approx(with_factor(factor).log_evidence(temperature), rel=1e-9)


def test_diagonal_evidence_has_the_mean_field_gap() -> None:
    precision = PROBLEM.precision()
    gap = 0.5 * (precision.diagonal().log().sum() - torch.logdet(precision)).item()
    found = evidence(model_at(PROBLEM.mean()), Laplace("diagonal"))
    assert found == pytest.approx(PROBLEM.log_evidence() - gap, rel=1e-9)


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_best_prior_of_linear_regression_is_found(structure: str) -> None:
    """At the least-squares weights the maximized function is the evidence of each prior."""
    exact = minimize_scalar(
        lambda log: -with_factor(math.exp(log)).log_evidence(),
        bounds=(-6, 6),
        method="bounded",
        options={"xatol": 1e-9},
    )
    model = model_at(torch.linalg.lstsq(PROBLEM.x, PROBLEM.y[:, None]).solution[:, 0])
    part = Laplace(structure, prior_precision="marginal_likelihood")
    factors = part.curvature(**arguments(model)).factors("marginal_likelihood")
    assert list(factors.values()) == pytest.approx([math.exp(exact.x)], rel=1e-4)
    assert abs(exact.x) > 0.1
    explicit = Laplace(structure, prior_precision=math.exp(exact.x)).fit(**arguments(model))
    torch.testing.assert_close(part.fit(**arguments(model)).std(), explicit.std(), rtol=1e-4, atol=0)


def random_spectrum(name: str, count: int, curvature: float, square: float) -> Spectrum:
    numbers = torch.rand(2, count, dtype=torch.float64)
    return Spectrum(name, curvature * numbers[0], square * numbers[1])


def test_directions_without_data_do_not_count() -> None:
    seen = random_spectrum("w", 20, 1e4, 1.0)
    alone = best_factor([seen])
    assert alone == pytest.approx(20 / float(seen.squares.sum()), rel=0.05)
    for size in (0.1, 50.0):
        idle = torch.full((2, 500), size, dtype=torch.float64)
        idle[0] = 1e-7
        both = Spectrum("w", torch.cat([seen.curvatures, idle[0]]), torch.cat([seen.squares, idle[1]]))
        assert best_factor([both]) == pytest.approx(alone, rel=1e-2)


def test_factor_of_each_parameter_is_the_best_of_a_grid() -> None:
    spectra = [random_spectrum("large", 20, 1e4, 3.0), random_spectrum("small", 30, 1e3, 0.02)]
    by_layer = find_factors("by_layer", lambda: spectra)
    one = find_factors("marginal_likelihood", lambda: spectra)
    assert by_layer["large"] < one["large"] == one["small"] < by_layer["small"]
    grid = np.geomspace(1e-3, 1e3, 2001).tolist()
    for spectrum in spectra:
        best = spectrum.log_marginal(by_layer[spectrum.name])
        assert best - 1e-3 < max(spectrum.log_marginal(factor) for factor in grid) <= best + 1e-9


def test_weights_within_their_noise_reach_the_end_of_the_range() -> None:
    idle = Spectrum("idle", torch.ones(3, dtype=torch.float64), torch.full((3,), 0.1, dtype=torch.float64))
    assert best_factor([idle]) == pytest.approx(1e3)
    assert at_end_of_range(best_factor([idle]))
    assert not at_end_of_range(1.0)


def test_search_finds_a_maximum() -> None:
    assert maximize(lambda factor: -((math.log(factor) - 1.234) ** 2)) == pytest.approx(math.exp(1.234), rel=1e-5)


@pytest.mark.parametrize("value", ["evidence", 0, -1.0, math.inf, None, True])
def test_meaningless_prior_precisions_are_refused(value: Any) -> None:
    with pytest.raises(SettingError, match="prior_precision"):
        Laplace(prior_precision=value)
    with pytest.raises(SettingError, match="by_layer"):
        Laplace("full", prior_precision="by_layer")
