"""Samplers on correlated Gaussians: the chain is linear, so its law at every step is known exactly.

Many chains run side by side as one parameter (chains, ...), so every moment has a known standard error. ``Z`` = 6 is
exceeded by a right sampler with probability 2e-9: with about 80 comparisons the rate of false failures under fresh
seeds is below 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor

from bayeswell.random import make_generator
from bayeswell.samplers import PSGLD, SGHMC, SGLD, CyclicalSGLD
from bayeswell.samplers.stepping import SamplerPart
from samplers.chains import Array, Z, run, z_scores

N, TEMPERATURE = 50, 1.7

MEAN = np.array([0.7, -1.3, 0.4])

COVARIANCE = np.array([[0.09, 0.05, -0.02], [0.05, 0.06, 0.01], [-0.02, 0.01, 0.04]])

PRECISION = np.linalg.inv(COVARIANCE)

LAM, AXES = np.linalg.eigh(PRECISION)

START = np.array([1.4, -0.9, 0.1])

CHAINS = 40_000

Map = tuple[Array, Array]
"""One step of a linear chain: x <- F x + noise of covariance Q, for x = (w - mean, velocity)."""


def quadratic(weights: Tensor) -> Tensor:
    """The gradient of total = (w - mean)' precision (w - mean) / (2 N)."""
    mean, precision = (torch.from_numpy(a).to(weights.dtype) for a in (MEAN, PRECISION))
    return (weights - mean) @ precision / N


def langevin(lr: float, scale: Array | float = 1.0, temperature: float = TEMPERATURE) -> Map:
    """w - lr G g + sqrt(2 lr T G / N) xi."""
    scaled = np.diag(np.broadcast_to(scale, 3))
    return np.eye(3) - lr * scaled @ PRECISION / N, 2 * lr * temperature / N * scaled


def momentum_euler(lr: float, beta: float, gradient_std: float = 0.0) -> Map:
    k, eye = lr * PRECISION / N, np.eye(3)
    variance = 2 * (1 - beta) * lr * TEMPERATURE / N + (lr * gradient_std) ** 2
    return np.block([[eye - k, beta * eye], [-k, beta * eye]]), variance * np.kron(np.ones((2, 2)), eye)


def momentum_baoab(lr: float, beta: float, gradient_std: float = 0.0) -> Map:
    k, eye, half = lr * PRECISION / N, np.eye(3), 0.5 * (1 + beta)
    noise = (1 - beta**2) * lr * TEMPERATURE / N * np.outer([0.5, 1], [0.5, 1])
    noise = noise + (lr * gradient_std) ** 2 * np.outer([half, beta], [half, beta])
    return np.block([[eye - half * k, half * eye], [-beta * k, beta * eye]]), np.kron(noise, eye)


def law(maps: Sequence[Map]) -> tuple[Array, Array]:
    """Mean and covariance of w after these steps from START at rest."""
    size = len(maps[0][0])
    mean, covariance = np.zeros(size), np.zeros((size, size))
    mean[:3] = START - MEAN
    for forward, noise in maps:
        mean, covariance = forward @ mean, forward @ covariance @ forward.T + noise
    return MEAN + mean[:3], covariance[:3, :3]


def stationary(step: Map) -> Array:
    return scipy.linalg.solve_discrete_lyapunov(*step)[:3, :3]


@dataclass(frozen=True)
class Case:
    part: SamplerPart
    maps: list[Map]
    stationary: Array | None = None


def closed_form(variance: Callable[[Array], Array]) -> Array:
    """A covariance that has the eigenvectors of the precision, from its eigenvalues."""
    return (AXES * variance(LAM)) @ AXES.T


def gaussian_cases() -> dict[str, Case]:
    lr, beta, steps = 0.6, 0.6, 150
    k = lr * LAM / N
    psgld = PSGLD(lr=0.25, temperature=TEMPERATURE, damping=0.2, decay=0.9, adapt_steps=1)
    first = quadratic(torch.from_numpy(START)).numpy()
    scale = 1 / (0.2 + np.abs(first))
    cyclical = CyclicalSGLD(lr=1.1, temperature=TEMPERATURE, cycles=3, exploration=0.4, collection=0.9)
    cycle = []
    for t in range(160):
        place = 3 * t / 160 % 1
        step_map = langevin(0.55 * (math.cos(math.pi * place) + 1))
        cycle.append((step_map[0], step_map[1] * (place >= 0.4)))
    eps = 2 * lr / N
    return {
        "sgld": Case(
            SGLD(lr=lr, temperature=TEMPERATURE),
            [langevin(lr)] * steps,
            closed_form(lambda lam: TEMPERATURE / (lam * (1 - eps * lam / 4))),
        ),
        "sghmc euler": Case(
            SGHMC(lr=lr, temperature=TEMPERATURE, momentum=beta, integrator="euler"),
            [momentum_euler(lr, beta)] * steps,
            closed_form(lambda lam: TEMPERATURE / lam / (1 - k / (2 * (1 + beta)))),
        ),
        "sghmc baoab": Case(
            SGHMC(lr=lr, temperature=TEMPERATURE, momentum=beta, integrator="baoab"),
            [momentum_baoab(lr, beta)] * steps,
            TEMPERATURE * COVARIANCE,
        ),
        "psgld": Case(psgld, [langevin(0.25, scale)] * steps),
        "cyclical_sgld": Case(cyclical, cycle),
    }


CASES = gaussian_cases()

each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_the_law_of_a_linear_chain(name: str) -> None:
    """A variance that is wrong by 5 %, or a mean by 4 % of a std, is found; the planted bug is noise x 0.9 (19 %)."""
    case = CASES[name]
    mean, covariance = law(case.maps)
    start = torch.from_numpy(START).float().expand(CHAINS, 3)
    draws = run(case.part, quadratic, start, len(case.maps), N)
    assert np.abs(z_scores(draws, mean, covariance)).max() < Z
    planted = replace(case.part, temperature=0.81 * TEMPERATURE)  # type: ignore[type-var]
    draws = run(planted, quadratic, start, len(case.maps), N)
    assert np.abs(z_scores(draws, mean, covariance)).max() > 2 * Z


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.stationary is not None])
def test_the_stationary_law_is_the_closed_form(name: str) -> None:
    """And the chains above have reached it: what they forgot is less than 1/10 of a standard error."""
    case = CASES[name]
    exact = stationary(case.maps[0])
    np.testing.assert_allclose(case.stationary, exact, rtol=1e-9)
    mean, covariance = law(case.maps)
    assert np.abs(covariance / exact - 1).max() < 0.1 * math.sqrt(2 / CHAINS)
    assert np.abs((mean - MEAN) / np.sqrt(np.diag(exact))).max() < 0.1 * math.sqrt(1 / CHAINS)


@pytest.mark.parametrize("part", [case.part for case in CASES.values()], ids=list(CASES))
def test_temperature_scales_the_covariance(part: Any) -> None:
    """On a quadratic, from its minimum: the same noise gives deviations that are exactly sqrt(T) times as large."""
    start = torch.from_numpy(MEAN).expand(20, 3)
    low, high = (
        run(replace(part, temperature=t), quadratic, start, 40, N) - torch.from_numpy(MEAN) for t in (0.4, 2.5)
    )
    if isinstance(part, PSGLD):  # at the minimum its first gradient is zero for both
        assert float(high.abs().min()) > 0
    torch.testing.assert_close(high, low * math.sqrt(2.5 / 0.4), rtol=1e-9, atol=1e-12)


def test_halving_the_step_halves_the_bias() -> None:
    """The relative bias of SGLD's variance is k/2 + O(k^2): 0.111 at k = 0.2 and 0.053 at 0.1, each seen at 20 stds."""
    lam, size, chains = 8.0, 30, 300_000
    start = torch.randn(chains, generator=make_generator(3)) / math.sqrt(lam)
    error = math.sqrt(2 / chains)
    bias = {}
    for k in (0.2, 0.1):
        draws = run(SGLD(lr=k * size / lam), lambda w: w * lam / size, start, round(8 / k), size)
        bias[k] = float(draws.var()) * lam - 1
        assert abs(bias[k] - (1 / (1 - k / 2) - 1)) < Z * error / (1 - k / 2)
        assert bias[k] > 3 * Z * error
    assert 1.8 < bias[0.2] / bias[0.1] < 2.5


@pytest.mark.parametrize("name", ["sgld", "sghmc euler", "sghmc baoab"])
def test_gradient_noise_widens_the_chain_as_the_formula_says(name: str) -> None:
    lr, beta, gradient_std = 0.6, 0.6, 0.15
    eps, variance = 2 * lr / N, (N * gradient_std) ** 2
    if name == "sgld":
        # algorithm of Welling & Teh with gradient noise of variance Cg on N total
        exact = closed_form(lambda lam: (eps * TEMPERATURE + eps**2 * variance / 4) / (1 - (1 - eps * lam / 2) ** 2))
        k = lr * LAM / N
        documented = (TEMPERATURE / LAM + lr * gradient_std**2 * N / (2 * LAM)) / (1 - k / 2)
        np.testing.assert_allclose(exact, (AXES * documented) @ AXES.T, rtol=1e-12)
    else:
        step = momentum_euler if name == "sghmc euler" else momentum_baoab
        exact = stationary(step(lr, beta, gradient_std))
        # The documented first order: what noise adds, at a step so small that nothing else counts.
        small = stationary(step(1e-3 * lr, beta, gradient_std)) - stationary(step(1e-3 * lr, beta))
        speed = 1.0 if name == "sghmc euler" else 0.5 * (1 + beta)
        added = speed * 1e-3 * lr * gradient_std**2 * N / (2 * (1 - beta)) * COVARIANCE
        np.testing.assert_allclose(small, added, rtol=2e-3, atol=1e-7)
    noise = make_generator(8)

    def noisy(weights: Tensor) -> Tensor:
        return quadratic(weights) + gradient_std * torch.randn(weights.shape, generator=noise)

    start = torch.from_numpy(START).float().expand(CHAINS, 3)
    draws = run(CASES[name].part, noisy, start, 150, N)
    assert np.abs(z_scores(draws, MEAN, exact)).max() < Z
    without = CASES[name].stationary
    assert without is not None
    assert np.abs(z_scores(draws, MEAN, without)).max() > 2 * Z


def test_psgld_without_its_gamma_term_leans_to_steep_places() -> None:
    """With alpha = 0 and small steps the law is joint x (damping + |g|): E w^2 = s^2 (d + 2c) / (d + c), not s^2."""
    lam, size, damping, chains = 9.0, 40, 0.05, 20_000
    c = math.sqrt(lam) / size * math.sqrt(2 / math.pi)
    exact = (damping + 2 * c) / (damping + c) / lam
    start = torch.randn(chains, generator=make_generator(4)) / math.sqrt(lam)
    draws = run(PSGLD(lr=0.004, damping=damping, decay=0.0), lambda w: w * lam / size, start, 700, size)
    # The law has lighter tails than its moments' Gaussian suggests; 3 % is for the finite step.
    error = float(draws.square().std()) / math.sqrt(chains)
    assert abs(float(draws.square().mean()) - exact) < Z * error + 0.03 * exact
    assert exact * lam > 1.5
    frozen = PSGLD(lr=0.004, damping=damping, decay=0.0, adapt_steps=1)
    start = torch.full((chains,), 1 / math.sqrt(lam))
    draws = run(frozen, lambda w: w * lam / size, start, 700, size)
    k = 0.004 / (damping + math.sqrt(lam) / size) * lam / size
    assert abs(float(draws.square().mean()) * lam * (1 - k / 2) - 1) < Z * math.sqrt(2 / chains)
