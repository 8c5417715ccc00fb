"""Noise of Gaussian, Student's t and count likelihoods against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import Gaussian, Poisson

OUTPUTS = torch.tensor([[0.3, -1.2], [2.1, 0.4], [-0.7, 1.9]], dtype=torch.float64)
TARGETS = torch.tensor([[0.9, -0.2], [1.7, 3.4], [-2.1, 1.8]], dtype=torch.float64)
COUNTS = torch.tensor([[0, 3], [7, 1], [2, 12]])


def test_gaussian_nll_matches_scipy() -> None:
    stds = np.array([0.6, 1.7])
    expected = -stats.norm.logpdf(TARGETS.numpy(), OUTPUTS.numpy(), 1.3 * stds).sum(1)
    for noise in ("known", "per_output"):
        found = Gaussian(noise, std=(0.6, 1.7), noise_factor=1.3).nll(OUTPUTS, TARGETS)
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6)
    both = torch.cat([OUTPUTS, torch.tensor(stds).log().expand(3, 2)], dim=1)
    np.testing.assert_allclose(Gaussian("per_input", noise_factor=1.3).nll(both, TARGETS).numpy(), expected, rtol=1e-9)
    cdf = Gaussian("known", std=(0.6, 1.7)).cdf(OUTPUTS, TARGETS)
    np.testing.assert_allclose(cdf.numpy(), stats.norm.cdf(TARGETS.numpy(), OUTPUTS.numpy(), stds), rtol=1e-9)


def test_learned_std_is_that_of_the_residuals_at_the_optimum() -> None:
    likelihood = Gaussian("per_output", outputs=2).double()
    assert likelihood.log_std is not None
    residual_std = (TARGETS - OUTPUTS).square().mean(0).sqrt()
    with torch.no_grad():
        likelihood.log_std.copy_(residual_std.log())
    likelihood.nll(OUTPUTS, TARGETS).mean().backward()
    assert likelihood.log_std.grad is not None
    assert float(likelihood.log_std.grad.abs().max()) < 1e-12


def test_learned_log_std_is_clamped() -> None:
    likelihood = Gaussian()
    assert likelihood.log_std is not None
    with torch.no_grad():
        likelihood.log_std.fill_(-500.0)
    assert bool(likelihood.nll(OUTPUTS.float(), TARGETS.float()).isfinite().all())


def test_poisson_matches_scipy() -> None:
    rate = OUTPUTS.exp().numpy()
    expected = -stats.poisson.logpmf(COUNTS.numpy(), rate).sum(1)
    np.testing.assert_allclose(Poisson().nll(OUTPUTS, COUNTS).numpy(), expected, rtol=1e-10)
    for values in (COUNTS.double(), COUNTS + 0.5, COUNTS - 20.0):
        expected_cdf = stats.poisson.cdf(values.numpy(), rate)
        np.testing.assert_allclose(Poisson().cdf(OUTPUTS, values).numpy(), expected_cdf, rtol=1e-10)


def test_counts_far_off_have_finite_losses_and_gradients_that_lead_back() -> None:
    outputs = torch.tensor([[200.0], [-200.0]], requires_grad=True)
    losses = Poisson().nll(outputs, torch.tensor([3.0, 3.0]))
    losses.sum().backward()
    assert bool(losses.isfinite().all())
    assert outputs.grad is not None
    assert float(outputs.grad[0]) > 0
    assert float(outputs.grad[1]) < 0
    assert bool(Poisson().sample(outputs, make_generator(1)).isfinite().all())


def test_fixed_noise_follows_the_scale_of_the_targets() -> None:
    scale = [2.0, 0.5]
    fixed = Gaussian("known", std=(0.6, 1.7)).for_scaled_targets(scale)
    assert fixed.std == pytest.approx((0.3, 3.4))
    shift = math.log(scale[0]) + math.log(scale[1])
    scaled = fixed.nll(OUTPUTS / torch.tensor(scale), TARGETS / torch.tensor(scale))
    torch.testing.assert_close(scaled + shift, Gaussian("known", std=(0.6, 1.7)).nll(OUTPUTS, TARGETS))
    learned = Gaussian()
    assert learned.for_scaled_targets(scale) is learned
    assert Poisson().for_scaled_targets([2.0]).name == "poisson"
    with pytest.raises(DataError, match="2 numbers"):
        Gaussian("known", std=(1.0, 2.0)).for_scaled_targets([1.0])
