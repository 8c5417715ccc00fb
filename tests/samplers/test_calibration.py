"""Simulation-based calibration, linear regression through the objective, and the sharpness-aware posterior.

A right sampler exceeds ``Z`` = 6 with probability 2e-9 and the calibration ``BAND`` with 1e-7.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.random import make_generator
from bayeswell.samplers import PSGLD, SGHMC, SGLD, CyclicalSGLD
from bayeswell.types import Progress
from samplers.chains import Z, run, z_scores

# Simulation-based calibration on a conjugate normal mean.


REPLICATES, MEANS, DRAWS = 500, 30, 9
"""500 data sets with 30 unknown means each: 15,000 ranks among 9 draws, 1,500 expected for each of 10 ranks."""

SBC_N, PRIOR_STD, NOISE_STD = 5, 0.8, 1.3

SBC_LAM = 1 / PRIOR_STD**2 + SBC_N / NOISE_STD**2

BAND = float(scipy.stats.chi2.isf(1e-7, DRAWS))
"""Exceeded by a calibrated sampler with probability 1e-7."""


def rate_for(k: float) -> float:
    """The lr for which k = lr lam / N."""
    return k * SBC_N / SBC_LAM


SBC_CASES: dict[str, tuple[Any, int, int]] = {
    # sampler, burn-in, steps between draws: e^-4 of a draw is left in the next; the known bias is at most 2 %
    "sgld": (SGLD(lr=rate_for(0.03)), 200, 130),
    "sghmc euler": (SGHMC(lr=rate_for(0.06), momentum=0.6, integrator="euler"), 80, 40),
    "sghmc baoab": (SGHMC(lr=rate_for(0.5), momentum=0.4, integrator="baoab"), 60, 30),
    "psgld": (PSGLD(lr=rate_for(0.03), damping=0.5, decay=0.9, adapt_steps=200), 350, 180),
    "cyclical_sgld": (CyclicalSGLD(lr=rate_for(0.15), cycles=DRAWS, exploration=0.3, collection=0.99), 0, 140),
}


def sbc_statistic(part: Any, burn_in: int, thinning: int, prior_weight: float = 1.0) -> float:
    """Pearson's chi-square of the ranks of the true means among the draws; chi-square with 9 degrees if calibrated.

    The gradient is (N w - sum of data) / (noise var N) + prior_weight w / (prior var N), ``slope`` w - ``pull``.
    """
    generator = make_generator(11)
    shape = (REPLICATES, MEANS)
    truth = PRIOR_STD * torch.randn(shape, generator=generator)
    total = SBC_N * truth + NOISE_STD * math.sqrt(SBC_N) * torch.randn(shape, generator=generator)
    weights = nn.Parameter(PRIOR_STD * torch.randn(shape, generator=generator))
    steps = burn_in + DRAWS * thinning
    sampler = part.build([weights], SBC_N, make_generator(12), steps)
    rank, kept = torch.zeros(shape), 0
    slope = (SBC_N / NOISE_STD**2 + prior_weight / PRIOR_STD**2) / SBC_N
    pull, weights.grad = total / (NOISE_STD**2 * SBC_N), torch.empty(shape)
    for t in range(steps):
        torch.mul(weights.detach(), slope, out=weights.grad).sub_(pull)
        sampler.step()
        if t >= burn_in and (t - burn_in + 1) % thinning == 0:
            assert part.sampling(Progress(t, steps))
            rank += (weights.detach() < truth).float()
            kept += 1
    assert kept == DRAWS
    counts = torch.bincount(rank.long().flatten(), minlength=DRAWS + 1).double()
    expected = truth.numel() / (DRAWS + 1)
    return float(((counts - expected).square() / expected).sum())


@pytest.mark.parametrize("name", SBC_CASES)
def test_simulation_based_calibration(name: str) -> None:
    part, burn_in, thinning = SBC_CASES[name]
    assert sbc_statistic(part, burn_in, thinning) < BAND
    assert sbc_statistic(replace(part, temperature=0.81), burn_in, thinning) > BAND, "noise x 0.9 was not noticed"
    assert sbc_statistic(part, burn_in, thinning, prior_weight=2.0) > BAND, "prior x 2 was not noticed"


# Through the objective: total is -log joint / N.


def test_draws_of_a_linear_regression_through_the_elbo() -> None:
    """Each of 4,000 outputs is a chain of its own with the same targets; the posterior is a closed form."""
    size, chains, noise_std, prior_std = 30, 4_000, 0.6, 0.45
    generator = make_generator(6)
    inputs = torch.randn(size, 2, generator=generator) @ torch.tensor([[1.0, 0.7], [0.0, 0.5]])
    targets = inputs @ torch.tensor([0.8, -0.5]) + noise_std * torch.randn(size, generator=generator)
    x, y = inputs.double().numpy(), targets.double().numpy()
    covariance = np.linalg.inv(x.T @ x / noise_std**2 + np.eye(2) / prior_std**2)
    mean = covariance @ x.T @ y / noise_std**2

    model = bw.bayesian(nn.Linear(2, chains, bias=False), "delta", {"name": "normal", "std": prior_std})
    objective = bw.ELBO({"name": "gaussian", "noise": "known", "std": noise_std}, size)
    # The largest k = lr lam / N is 1: far from small, but this integrator has no bias here.
    lr = size * float(np.linalg.eigvalsh(covariance)[0])
    sampler = SGHMC(lr=lr, momentum=0.5).build(model.named_parameters(), size, make_generator(7))
    for _ in range(150):
        sampler.zero_grad()
        objective(model, inputs, targets[:, None].expand(size, chains)).total.backward()
        sampler.step()
    [(_, weights)] = model.named_parameters()
    scores = z_scores(weights.detach().double().reshape(chains, 2), mean, covariance)
    assert np.abs(scores).max() < Z


# The sharpness-aware posterior in one dimension.


def test_sgld_with_a_sharpness_gradient_reaches_the_closed_form() -> None:
    """q ~ exp(-[a (|t| + rho)^2 + tau t^2] / 2), narrower than the Bayes posterior's 1 / (a + tau)."""
    a, tau, rho, size, chains = 4.0, 1.0, 0.3, 25, 40_000
    precision = a + tau
    m, s = -a * rho / precision, precision**-0.5
    hazard = scipy.stats.norm.pdf(-m / s) / scipy.stats.norm.sf(-m / s)
    exact = m**2 + s**2 + s * m * hazard
    assert exact == pytest.approx(0.13224, abs=5e-6)

    def gradient(t: Tensor) -> Tensor:
        return (a * (t + rho * t.sign()) + tau * t) / size

    start = torch.randn(chains, generator=make_generator(5)) / math.sqrt(precision)
    error, distance = 0.0, {}
    for eps in (0.04, 0.0025):
        draws = run(SGLD(lr=eps * size / 2), gradient, start, round(5 / eps), size)
        error = float(draws.square().std()) / math.sqrt(chains)
        distance[eps] = float(draws.square().mean()) - exact
    # The density has a kink at 0, which a finite step blurs: 0.015 at eps = 0.04, below 0.002 at 0.0025.
    assert distance[0.04] > 0.008
    assert abs(distance[0.0025]) < Z * error + 0.002
    assert 1 / precision - exact > 8 * error + 0.05
