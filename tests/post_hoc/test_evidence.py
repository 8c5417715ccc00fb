"""The prior's precision by marginal likelihood, against the exact evidence of linear regression and a grid."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.post_hoc import LaplaceApproximation
from bayeswell.post_hoc.evidence import Spectrum, best_factor, factors_of
from nets import covariance_of
from truths.linear_regression import LinearRegression

PROBLEM = LinearRegression.make(11, count=40, dimension=4, prior_std=0.9)


def _problem(factor: float) -> LinearRegression:
    """With the prior's precision multiplied."""
    return dataclasses.replace(PROBLEM, prior_std=PROBLEM.prior_std / factor**0.5)


def _model(temperature: float, factor: float = 1.0) -> bw.BayesianModule:
    """At its optimum."""
    model = bw.bayesian(nn.Linear(4, 1, bias=False).double(), "delta", bw.Normal(0.9 / factor**0.5))
    with torch.no_grad():
        model.posterior.mean_vector().copy_(torch.tensor(_problem(factor).mean(temperature)))
    return model


def _given(model: bw.BayesianModule) -> tuple[Any, ...]:
    x, y = PROBLEM.tensors()
    return model, bw.Gaussian("known", PROBLEM.noise_std), [(x[:25], y[:25]), (x[25:], y[25:])], len(y)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("factor", [1.0, 4.2])
def test_it_is_the_evidence_of_linear_regression(temperature: float, factor: float) -> None:
    """log Z_T of the truths, at a generic prior; one output's Kronecker factors are exact too."""
    truth = _problem(factor).full_elbo(temperature) / temperature
    for structure in ("full", "kronecker"):
        part = LaplaceApproximation(structure, temperature, prior_precision=factor)
        model = _model(temperature, factor)
        # The model's own prior is that of factor 1; the setting makes it the other.
        own = bw.bayesian(nn.Linear(4, 1, bias=False).double(), "delta", bw.Normal(0.9))
        own.posterior.load_state_dict(model.posterior.state_dict())
        assert part.log_evidence(*_given(own)) == pytest.approx(truth, rel=1e-9)
        assert LaplaceApproximation(structure, temperature).log_evidence(*_given(model)) == pytest.approx(truth)


def test_a_diagonal_structure_loses_what_mean_field_loses() -> None:
    """log det of the diagonal in place of the matrix: lower by the mean-field gap."""
    found = LaplaceApproximation("diagonal", 0.3).log_evidence(*_given(_model(0.3)))
    assert found == pytest.approx(PROBLEM.mean_field_elbo(0.3) / 0.3, rel=1e-9)


@pytest.mark.parametrize("structure", ["full", "kronecker", "diagonal"])
def test_the_factor_is_the_best_of_a_grid(structure: str) -> None:
    """At fixed weights, on a grid around the factor that the covariance shows."""
    part = LaplaceApproximation(structure, 0.4, prior_precision="marginal_likelihood")
    best = part.log_evidence(*_given(_model(0.4)))
    for factor in np.geomspace(1e-3, 1e3, 121):
        other = LaplaceApproximation(structure, 0.4, prior_precision=float(factor))
        assert other.log_evidence(*_given(_model(0.4))) <= best + 1e-9
    # And some of the grid come near it: it is a maximum, not merely above all of them.
    near = [
        LaplaceApproximation(structure, 0.4, prior_precision=float(f)).log_evidence(*_given(_model(0.4)))
        for f in np.geomspace(1e-2, 1e2, 81)
    ]
    assert max(near) > best - 0.01


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_training_and_choosing_in_turn_ends_at_the_best_prior(temperature: float) -> None:
    """MacKay's iteration: the fixed point is the maximum of the exact evidence over the prior's precision."""
    exact = minimize_scalar(
        lambda log: -_problem(np.exp(log)).full_elbo(temperature), bounds=(-6, 6), method="bounded",
        options={"xatol": 1e-8},
    )  # fmt: skip
    factor = 1.0
    for _ in range(60):
        model = _model(temperature, factor)
        part, posterior = LaplaceApproximation("full", temperature, prior_precision="marginal_likelihood").finish(
            *_given(model)
        )
        precision = torch.linalg.inv(covariance_of(posterior)) - torch.tensor(
            PROBLEM.design.T @ PROBLEM.design / (temperature * PROBLEM.noise_std**2)
        )
        prior = precision.diagonal()
        torch.testing.assert_close(precision, torch.diag(prior.mean().expand(4)), rtol=1e-6, atol=1e-6)
        factor = float(prior.mean()) * 0.9**2
        assert part.name == "full"
    assert np.log(factor) == pytest.approx(exact.x, abs=1e-4)


def test_one_for_each_parameter() -> None:
    """Each has its own best factor; a covariance that is not layer by layer has none."""
    torch.manual_seed(0)
    spectra = [
        Spectrum("large", torch.rand(20, dtype=torch.float64) * 1e4, 55.0),
        Spectrum("small", torch.rand(30, dtype=torch.float64) * 10, 0.4),
    ]
    by_layer, one = factors_of("by_layer", spectra), factors_of("marginal_likelihood", spectra)
    assert by_layer["large"] < one["large"] == one["small"] < by_layer["small"]
    for spectrum in spectra:
        grid = by_layer[spectrum.name] * np.geomspace(0.2, 5, 201)
        assert spectrum.log_evidence(by_layer[spectrum.name]) >= max(map(spectrum.log_evidence, grid)) - 1e-9
        slope = (spectrum.log_evidence(2.001) - spectrum.log_evidence(1.999)) / np.log(2.001 / 1.999)
        assert spectrum.slope(2.0) / 2 == pytest.approx(slope, rel=1e-5)
    # All that no data determine, or that lies at the centre, ends at the ends of the range.
    assert best_factor([Spectrum("idle", torch.zeros(3, dtype=torch.float64), 1.0)]) == pytest.approx(1e-6)
    assert best_factor([Spectrum("centre", torch.ones(3, dtype=torch.float64), 0.0)]) == pytest.approx(1e6)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_a_network_with_several_layers(structure: str) -> None:
    """One factor for all of a deep network: no factor of a grid has more evidence; by layer never less."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    model = bw.bayesian(net, "delta")
    x, y = torch.randn(50, 3, dtype=torch.float64), torch.randint(3, (50,))

    def evidence(choice: str | float) -> float:
        part = LaplaceApproximation(structure, 0.2, prior_precision=choice)
        return part.log_evidence(model, bw.Categorical(), [(x, y)], 50)

    best = evidence("marginal_likelihood")
    assert all(evidence(float(factor)) <= best + 1e-9 for factor in np.geomspace(0.01, 100, 25))
    assert evidence("by_layer") > best
    assert evidence("prior") == pytest.approx(evidence(1.0))
    _the_mean_stays(model, structure, x, y)


def _the_mean_stays(model: bw.BayesianModule, structure: str, x: Tensor, y: Tensor) -> None:
    part = LaplaceApproximation(structure, 0.2, prior_precision="by_layer")
    _, posterior = part.finish(model, bw.Categorical(), [(x, y)], 50)
    assert torch.equal(posterior.mean_vector(), model.posterior.mean_vector())


@pytest.mark.parametrize("value", ["evidence", 0, -1.0, float("inf"), None, True])
def test_what_cannot_be_meant_is_refused(value: Any) -> None:
    with pytest.raises(SettingError, match="prior_precision"):
        LaplaceApproximation(prior_precision=value)
    with pytest.raises(SettingError, match="layer by layer"):
        LaplaceApproximation("full", prior_precision="by_layer")
