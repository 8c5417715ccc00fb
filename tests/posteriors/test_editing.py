"""Setting and scaling stds, and Gaussian posteriors from moments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bayeswell.core.errors import SettingError, Unsupported
from bayeswell.posteriors import (
    Empirical,
    LowRankPosterior,
    MeanFieldPosterior,
    Mixture,
    can_set_std,
    gaussian_posterior,
    num_columns,
    num_variational_params,
    scale_std,
    set_covariance,
    set_std,
)
from posteriors.families import DENSE, LAYOUT, covariance_of, generic, label, normal, start

P = LAYOUT.size


@pytest.mark.parametrize("choice", DENSE, ids=label)
def test_scaling_multiplies_the_covariance_and_keeps_the_mean(choice: dict[str, Any]) -> None:
    q = generic(choice)
    mean, before = q.mean.detach().clone(), covariance_of(q)
    scale_std(q, 1.7)
    torch.testing.assert_close(covariance_of(q), 1.7**2 * before, rtol=1e-9, atol=1e-12)
    assert torch.equal(q.mean, mean)


def test_scaling_a_mixture_scales_its_components() -> None:
    q = Mixture([generic({"name": "mean_field"}), generic({"name": "full"})])
    before = [covariance_of(component) for component in q.each()]
    scale_std(q, 0.5)
    for component, covariance in zip(q.each(), before, strict=True):
        torch.testing.assert_close(covariance_of(component), 0.25 * covariance)


@pytest.mark.parametrize("choice", [*DENSE, {"name": "delta"}], ids=label)
def test_stds_are_set_where_there_is_one_for_each_weight(choice: dict[str, Any]) -> None:
    q = start(choice)
    stds = normal(P, seed=3).exp()
    assert can_set_std(q) == (choice["name"] == "mean_field")
    if can_set_std(q):
        set_std(q, stds)
        torch.testing.assert_close(q.std().detach(), stds)
    else:
        with pytest.raises(Unsupported, match=choice["name"]):
            set_std(q, stds)


@pytest.mark.parametrize("parameter", ["log_std", "rho"])
def test_stds_of_zero_stay_finite(parameter: str) -> None:
    q = start({"name": "mean_field", "parameter": parameter}, dtype=torch.float32)
    set_std(q, torch.zeros(P))
    assert all(bool(values.isfinite().all()) for values in q.parameters())
    assert 0 < float(q.std().detach().max()) < 1e-30
    assert bool(q.entropy().isfinite())


def test_points_and_networks_have_no_stds_to_scale() -> None:
    for q in (start("delta"), Empirical(LAYOUT, normal(2, P, seed=1))):
        with pytest.raises(Unsupported, match="no stds"):
            scale_std(q, 2.0)


@pytest.mark.parametrize("columns", [0, 1, 3])
def test_set_covariance(columns: int) -> None:
    q = generic({"name": "low_rank", "rank": 3})
    variances, factor = normal(P, seed=4).exp(), normal(P, columns, seed=5)
    set_covariance(q, variances, factor)
    torch.testing.assert_close(covariance_of(q), variances.diag() + factor @ factor.T)


def test_set_covariance_needs_enough_columns() -> None:
    assert num_columns(start({"name": "low_rank", "rank": 3})) == 3
    assert num_columns(start("mean_field")) == 0
    with pytest.raises(SettingError, match="4 columns"):
        set_covariance(start({"name": "low_rank", "rank": 3}), torch.ones(P), torch.ones(P, 4))
    with pytest.raises(Unsupported, match="low_rank"):
        set_covariance(start("mean_field"), torch.ones(P), torch.ones(P, 1))


@pytest.mark.parametrize("columns", [None, 2, P + 5])
def test_gaussian_posterior_has_the_moments(columns: int | None) -> None:
    """A factor with more columns than weights is replaced by an equal one with as many."""
    mean, variances = normal(P, seed=6), normal(P, seed=7).exp()
    factor = None if columns is None else normal(P, columns, seed=8)
    q = gaussian_posterior(LAYOUT, mean, variances, factor)
    assert isinstance(q, MeanFieldPosterior if factor is None else LowRankPosterior)
    truth = variances.diag() if factor is None else variances.diag() + factor @ factor.T
    torch.testing.assert_close(covariance_of(q), truth, rtol=1e-8, atol=1e-10)
    assert torch.equal(q.mean, mean)


def test_gaussian_posterior_of_zero_variances_is_finite() -> None:
    q = gaussian_posterior(LAYOUT, torch.zeros(P), torch.zeros(P), torch.randn(P, 2))
    assert bool(q.log_std.isfinite().all())
    assert bool(q.std().isfinite().all())


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        ({"name": "delta"}, P),
        ({"name": "mean_field"}, 2 * P),
        ({"name": "shared_std"}, P + 3),
        ({"name": "k_tied", "rank": 1}, P + 7 + 8 + 8 + 7),
        ({"name": "low_rank", "rank": 3}, 5 * P),
        ({"name": "matrix_normal"}, P + (6 + 10) + (3 + 21) + (3 + 21) + 7),
        ({"name": "full"}, P + P * (P + 1) // 2),
    ],
    ids=lambda value: label(value) if isinstance(value, dict) else "",
)
def test_number_of_variational_parameters(choice: dict[str, Any], count: int) -> None:
    q = start(choice)
    assert num_variational_params(q) == count


def test_scalar_parameters_are_counted() -> None:
    q = start("mean_field")
    q.register_parameter("log_scale", torch.nn.Parameter(torch.zeros(())))
    assert num_variational_params(q) == 2 * P + 1


def test_number_of_parameters_of_sets_of_networks() -> None:
    assert num_variational_params(Empirical(LAYOUT, normal(4, P, seed=1))) == 4 * P
    assert num_variational_params(Mixture([start("full"), start("mean_field")])) == P + P * (P + 1) // 2 + 2 * P
