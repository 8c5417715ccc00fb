"""Divergences and densities checked against torch.distributions, scipy.stats and plain summation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from .arrays import generic_gaussian
from .gaussian import (
    expected_log_density,
    kl_by_quadrature,
    kl_diagonal,
    kl_full,
    kl_to_laplace,
    log_density_laplace,
    log_density_normal,
    log_density_scale_mixture,
)

MEAN, STD = np.array([0.3, -1.2, 0.02, 4.0]), np.array([0.5, 0.07, 0.9, 1.7])


def test_gaussian_kl_against_torch_and_quadrature() -> None:
    q = torch.distributions.Normal(torch.tensor(MEAN), torch.tensor(STD))
    p = torch.distributions.Normal(torch.tensor([0.1, 0.2, -0.4, 1.1]).double(), torch.tensor(0.8).double())
    truth = float(torch.distributions.kl_divergence(q, p).sum())
    assert kl_diagonal(MEAN, STD, p.mean, p.stddev) == pytest.approx(truth, rel=1e-12)
    assert kl_diagonal(p.mean, p.stddev, MEAN, STD) != pytest.approx(truth, rel=0.1), "a direction can be told"
    by_quadrature = kl_by_quadrature(MEAN, STD, lambda w: log_density_normal(w, 0.8, 0.35))
    assert by_quadrature == pytest.approx(kl_diagonal(MEAN, STD, 0.35, 0.8), rel=1e-10)


def test_full_gaussian_kl_against_torch() -> None:
    parts = [torch.from_numpy(a) for a in (*generic_gaussian(4, 12, 0.7), *generic_gaussian(4, 13, 1.1))]
    q, p = (torch.distributions.MultivariateNormal(m, c) for m, c in (parts[:2], parts[2:]))
    truth = float(torch.distributions.kl_divergence(q, p))
    assert kl_full(*parts) == pytest.approx(truth, rel=1e-9)
    diagonal = kl_full(MEAN, np.diag(STD**2), MEAN + 0.3, 0.64 * np.eye(4))
    assert diagonal == pytest.approx(kl_diagonal(MEAN, STD, MEAN + 0.3, 0.8), rel=1e-12)


def test_kl_to_laplace_against_quadrature() -> None:
    for location in (0.0, 0.7):
        closed = kl_to_laplace(MEAN, STD, 0.6, location)
        numeric = kl_by_quadrature(MEAN, STD, lambda w, c=location: log_density_laplace(w, 0.6, c), [location])
        assert closed == pytest.approx(numeric, rel=1e-10)
    np.testing.assert_allclose(log_density_laplace(MEAN, 0.6, 0.7), stats.laplace(0.7, 0.6).logpdf(MEAN))


@pytest.mark.parametrize("narrow_std", [0.3, 0.0025])
def test_scale_mixture_density_and_expectation(narrow_std: float) -> None:
    direct = np.log(0.25 * stats.norm(0, 1.4).pdf(MEAN) + 0.75 * stats.norm(0, narrow_std).pdf(MEAN))
    np.testing.assert_allclose(log_density_scale_mixture(MEAN, 0.25, 1.4, narrow_std), direct, rtol=1e-12)
    z = np.linspace(-10, 10, 2_000_001)
    for mean, std in zip(MEAN[:3], STD[:3], strict=True):
        values = log_density_scale_mixture(mean + std * z, 0.25, 1.4, narrow_std) * stats.norm.pdf(z)
        found = expected_log_density(mean, std, lambda w: log_density_scale_mixture(w, 0.25, 1.4, narrow_std))
        assert found == pytest.approx(integrate.trapezoid(values, z), abs=1e-7)
