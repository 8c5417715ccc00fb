"""The prior's precision by marginal likelihood, against the exact evidence of linear regression and a grid."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

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


@pytest.mark.parametrize("structure", ["full", "kronecker"])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_best_prior_of_linear_regression_is_found(structure: str, temperature: float) -> None:
    """At the weights of least squares what is maximised is the evidence of every prior, so its maximum is exact."""
    exact = minimize_scalar(
        lambda log: -_problem(np.exp(log)).full_elbo(temperature), bounds=(-6, 6), method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    model = _model(temperature)
    with torch.no_grad():
        least_squares = np.linalg.lstsq(PROBLEM.design, PROBLEM.y, rcond=None)[0]
        model.posterior.mean_vector().copy_(torch.tensor(least_squares))
    part = LaplaceApproximation(structure, temperature, prior_precision="marginal_likelihood")
    posterior = part.finish(*_given(model))[1]
    explicit = LaplaceApproximation(structure, temperature, prior_precision=float(np.exp(exact.x)))
    torch.testing.assert_close(
        covariance_of(posterior), covariance_of(explicit.finish(*_given(model))[1]), rtol=1e-4, atol=1e-9
    )
    torch.testing.assert_close(posterior.mean_vector(), model.posterior.mean_vector(), rtol=0, atol=0)
    assert abs(exact.x) > 0.1  # it is not the prior that the model has


def test_directions_that_no_data_show_do_not_count() -> None:
    """Weights of any size in a direction without curvature leave the factor where it is; with much they do not."""
    torch.manual_seed(0)
    seen, squares = 1e4 * torch.rand(20, dtype=torch.float64), torch.rand(20, dtype=torch.float64)
    alone = best_factor([Spectrum("w", seen, squares)])
    assert alone == pytest.approx(20 / float(squares.sum()), rel=0.05)
    for size in (0.1, 50.0):
        idle = torch.full((500,), 1e-7, dtype=torch.float64), torch.full((500,), size, dtype=torch.float64)
        both = Spectrum("w", torch.cat([seen, idle[0]]), torch.cat([squares, idle[1]]))
        assert best_factor([both]) == pytest.approx(alone, rel=1e-2)
    large = Spectrum("w", torch.cat([seen, seen]), torch.cat([squares, 9 * squares]))
    assert best_factor([large]) == pytest.approx(alone / 5, rel=0.05)


def test_one_for_each_parameter() -> None:
    """Each has its own best factor, the best of a grid; all together have one between them."""
    torch.manual_seed(0)
    spectra = [
        Spectrum("large", torch.rand(20, dtype=torch.float64) * 1e4, 3 * torch.rand(20, dtype=torch.float64)),
        Spectrum("small", torch.rand(30, dtype=torch.float64) * 1e3, 0.02 * torch.rand(30, dtype=torch.float64)),
    ]
    by_layer, one = factors_of("by_layer", lambda: spectra), factors_of("marginal_likelihood", lambda: spectra)
    assert by_layer["large"] < one["large"] == one["small"] < by_layer["small"]
    for spectrum in spectra:
        best = spectrum.log_marginal(by_layer[spectrum.name])
        grid = [spectrum.log_marginal(float(factor)) for factor in np.geomspace(1e-3, 1e3, 2001)]
        assert best - 1e-3 < max(grid) <= best + 1e-9
    total = [sum(one.log_marginal(float(factor)) for one in spectra) for factor in np.geomspace(1e-3, 1e3, 2001)]
    assert max(total) <= sum(each.log_marginal(one[each.name]) for each in spectra) + 1e-9
    # Weights that are no larger than their noise call for a prior at its centre: the end of the range.
    idle = Spectrum("idle", torch.ones(3, dtype=torch.float64), torch.full((3,), 0.1, dtype=torch.float64))
    assert best_factor([idle]) == pytest.approx(1e3)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_a_network_with_several_layers(structure: str) -> None:
    """A factor as a number is the prior with that precision; the mean stays where it is."""
    torch.manual_seed(3)
    x, y = torch.randn(50, 3, dtype=torch.float64), torch.randint(3, (50,))
    stds = []
    for std, choice in ((0.5, 1.0), (1.0, 4.0)):
        torch.manual_seed(4)
        net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        model = bw.bayesian(net, "delta", bw.Normal(std))
        part = LaplaceApproximation(structure, 0.2, prior_precision=choice)
        _, posterior = part.finish(model, bw.Categorical(), [(x, y)], 50)
        assert torch.equal(posterior.mean_vector(), model.posterior.mean_vector())
        stds.append(posterior.std_vector())
        for chosen in ("by_layer", "marginal_likelihood"):
            other = LaplaceApproximation(structure, 0.2, prior_precision=chosen)
            _, learned = other.finish(model, bw.Categorical(), [(x, y)], 50)
            assert not torch.allclose(learned.std_vector(), posterior.std_vector(), rtol=1e-3)
    torch.testing.assert_close(stds[0], stds[1])


@pytest.mark.parametrize("value", ["evidence", 0, -1.0, float("inf"), None, True])
def test_what_cannot_be_meant_is_refused(value: Any) -> None:
    with pytest.raises(SettingError, match="prior_precision"):
        LaplaceApproximation(prior_precision=value)
    with pytest.raises(SettingError, match="layer by layer"):
        LaplaceApproximation("full", prior_precision="by_layer")
