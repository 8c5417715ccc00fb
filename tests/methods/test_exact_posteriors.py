"""Every method on linear regression finds what it must find in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from bayeswell.metrics.chains import ess
from linear_models import Folded, SigmaPoints, covariance_of
from methods.known_posteriors import LINEAR, assert_moments, chains_of, linear_fit, moments
from truths.linear_regression import LinearRegression

EXACT = {
    "stepper": {"name": "sgd", "lr": 0.4, "momentum": 0.4},
    "std_multiplier": 30.0,
    "rate": "constant",
    "epochs": 60,
}
"""For losses without noise: heavy-ball descent made for curvatures of 0.33 to 6.1 leaves errors of 1e-8 stds."""

COPIES = 200
NOISY = {
    "stepper": {"name": "adam", "lr": 0.1},
    "std_multiplier": 1.0,
    "rate": "cosine",
    "epochs": 80,
    "copies": COPIES,
}
"""For losses with noise: side by side, and averaged."""

IVON = {
    "stepper": {"name": "ivon", "lr": 0.6, "hess_init": 1.0, "beta2": 0.95}, "rate": "cosine", "epochs": 80,
    "copies": COPIES,
}  # fmt: skip
SGD = {"stepper": {"name": "sgd", "lr": 0.03, "momentum": 0.9}, "rate": "constant", "batch_size": 20, "epochs": 60}


@pytest.mark.parametrize(
    ("method", "settings", "mean_tolerance", "std_tolerance"),
    [
        ("bbb", NOISY | {"estimator": {"name": "weight_sampling", "draws": 2}}, 0.08, 0.06),
        ("bbb", EXACT | {"estimator": SigmaPoints()}, 0.01, 0.01),
        ("sgvb-lrt", NOISY, 0.05, 0.05),
        ("flipout", NOISY | {"estimator": {"name": "flipout", "draws": 2}}, 0.05, 0.05),
        ("vl", NOISY, 0.1, 0.05),
        ("ivon", IVON | {"estimator": {"name": "weight_sampling", "draws": 2}}, 0.05, 0.05),
        # Nothing random in it: the optimum of MAP, and the curvature of a quadratic.
        ("laplace", EXACT | {"post_hoc": {"name": "laplace", "structure": "diagonal"}}, 1e-3, 1e-6),
    ],
)
def test_mean_field_methods_find_the_conditional_stds(
    method: str, settings: dict[str, Any], mean_tolerance: float, std_tolerance: float
) -> None:
    """1/sqrt(Lambda_ii), not the marginal stds, which are 39 % wider and more: that is the error of mean-field.

    Tolerances are twice the largest error over three seeds and more, as noisy steps leave some noise; ``SigmaPoints``
    has exact expectations, and none.
    """
    result = linear_fit(method, **settings)
    copies = settings.get("copies", 1)
    assert_moments(result, LINEAR.mean(), LINEAR.mean_field_std(), mean_tolerance, std_tolerance, copies)


def test_k_tied_finds_what_mean_field_does_where_its_rank_suffices() -> None:
    """Every positive 2 x 3 matrix is a sum of two products of positive vectors."""
    problem = LinearRegression.make(5, count=60, dimension=6, mixing=0.5)
    descent = {"stepper": {"name": "sgd", "lr": 0.25, "momentum": 0.45}, "std_multiplier": 60.0, "epochs": 80}
    result = linear_fit("k-tied", problem, Folded(2, 3), **EXACT | descent, estimator=SigmaPoints())
    assert_moments(result, problem.mean(), problem.mean_field_std(), 0.01, 0.02)


LOW_RANK = {"std_stepper": {"name": "adam", "lr": 0.3}, "rate": "cosine", "epochs": 130}


@pytest.mark.parametrize(
    ("method", "settings", "tolerance"),
    [
        # Rank 2 = 3 - 1: the covariance less its smallest eigenvalue times I has no more.
        ("low-rank", EXACT | LOW_RANK | {"estimator": SigmaPoints()}, 0.02),
        ("bbb", EXACT | {"posterior": "full", "estimator": SigmaPoints()}, 0.02),
        ("laplace", EXACT | {"post_hoc": {"name": "laplace", "structure": "full"}}, 1e-3),
    ],
)
def test_joint_methods_find_the_exact_posterior(method: str, settings: dict[str, Any], tolerance: float) -> None:
    """Mean, marginal stds and correlations (these to twice the tolerance, absolutely)."""
    result = linear_fit(method, **settings)
    covariance = LINEAR.covariance()
    std = np.sqrt(np.diag(covariance))
    assert_moments(result, LINEAR.mean(), std, tolerance, tolerance)
    scale = np.outer(std, std)
    np.testing.assert_allclose(covariance_of(result.model) / scale, covariance / scale, atol=2 * tolerance)


@pytest.mark.parametrize(
    ("method", "stepper", "burn_in", "epochs"),
    [
        ("sgld", {"name": "sgld", "lr": 0.2}, 110, 160),
        ("sghmc", {"name": "sghmc", "lr": 0.3, "momentum": 0.7}, 70, 110),
    ],
)
def test_samplers_draw_from_the_exact_posterior(
    method: str, stepper: dict[str, Any], burn_in: int, epochs: int
) -> None:
    """100 chains from the prior: means and variances by z-tests with the effective number of draws, rate 1e-6 each.

    The stationary law is known: SGLD's variance along an eigenvector of precision lam is (1/lam) / (1 - lr lam / 2N),
    SGHMC's (baoab) is 1/lam exactly. Burn-in leaves less than 0.001 of the start in the slowest direction.
    """
    members, copies = 2, 50
    bank = {"name": "bank", "burn_in": burn_in, "max_draws": epochs}
    result = linear_fit(
        method, copies=copies, epochs=epochs, stepper=stepper, members=members, means="prior", collector=bank
    )
    draws = chains_of(result, members, copies)
    assert draws.shape[:2] == (members * copies, epochs - burn_in)
    values, vectors = np.linalg.eigh(LINEAR.precision())
    widening = 1 / (1 - stepper["lr"] * values / (2 * len(LINEAR.y))) if method == "sgld" else 1.0
    variance = np.diag(vectors @ np.diag(widening / values) @ vectors.T)
    centred = draws - torch.from_numpy(LINEAR.mean())
    squares = centred.square()
    limit = stats.norm.isf(1e-6 / (2 * 3))
    mean_error_std = np.sqrt(variance / ess(draws, rank_normalised=False).numpy())
    square_error_std = variance * np.sqrt(2 / ess(squares, rank_normalised=False).numpy())
    assert np.all(np.abs(centred.mean((0, 1)).numpy()) < limit * mean_error_std)
    assert np.all(np.abs(squares.mean((0, 1)).numpy() - variance) < limit * square_error_std)
    # The test can see: the variances of the mean-field posterior would fail it.
    assert np.any(variance - LINEAR.mean_field_std() ** 2 > 2 * limit * square_error_std)


@pytest.mark.parametrize(
    ("method", "settings", "tolerance"),
    [
        ("map", EXACT, 1e-3),
        ("swa", SGD, 0.1),
        ("swag", SGD, 0.1),
        ("swag-diag", SGD, 0.1),
        ("hwa", NOISY, 0.1),
    ],
)
def test_averages_find_the_mean(method: str, settings: dict[str, Any], tolerance: float) -> None:
    """In posterior stds. Nothing is asked of the spread of SGD's path: learning rate and batch size set it."""
    mean, _ = moments(linear_fit(method, **settings), settings.get("copies", 1))
    assert np.max(np.abs(mean - LINEAR.mean()) / np.sqrt(np.diag(LINEAR.covariance()))) < tolerance


def test_an_ensemble_has_no_spread_where_there_is_one_optimum() -> None:
    """Members from starts 10 posterior stds apart meet: the right mean, and nothing to take for uncertainty."""
    mean, std = moments(linear_fit("deep-ensemble", members=3, **EXACT))
    marginal = np.sqrt(np.diag(LINEAR.covariance()))
    assert np.max(np.abs(mean - LINEAR.mean()) / marginal) < 0.05
    assert np.max(std / marginal) < 0.05


@pytest.mark.parametrize(
    ("method", "settings", "mean_tolerance", "std_tolerance"),
    [
        ("bbb", EXACT | {"estimator": SigmaPoints()}, 0.02, 0.02),
        ("laplace", EXACT | {"post_hoc": {"name": "laplace", "structure": "diagonal"}}, 1e-3, 1e-6),
        ("ivon", IVON, 0.05, 0.05),
    ],
)
def test_temperature_reaches_the_mean_field_methods(
    method: str, settings: dict[str, Any], mean_tolerance: float, std_tolerance: float
) -> None:
    """At T = 0.3, where stds are about half of those at T = 1."""
    result = linear_fit(method, **settings, temperature=0.3)
    copies = settings.get("copies", 1)
    assert_moments(result, LINEAR.mean(0.3), LINEAR.mean_field_std(0.3), mean_tolerance, std_tolerance, copies)


def test_temperature_reaches_the_samplers() -> None:
    """Some 500 effective draws: 0.25 stds and 17 % are about five standard errors; T = 1 would be 80 % above."""
    stepper, bank = {"name": "sghmc", "lr": 0.3, "momentum": 0.7}, {"name": "bank", "burn_in": 70, "max_draws": 40}
    copies = 100
    drawn = linear_fit("sghmc", copies=copies, epochs=110, stepper=stepper, collector=bank, temperature=0.3)
    draws = chains_of(drawn, 1, copies).flatten(0, 1)
    mean, std = LINEAR.mean(0.3), np.sqrt(np.diag(LINEAR.covariance(0.3)))
    assert np.max(np.abs(draws.mean(0).numpy() - mean) / std) < 0.25
    assert np.max(np.abs(draws.std(0).numpy() / std - 1)) < 0.17
