"""Samplers against exact laws: linear chains, conjugate models, the sharpness-aware posterior.

Many chains run side by side as one parameter (chains, ...), so every moment has a known standard error. ``Z`` = 6 is
exceeded by a right sampler with probability 2e-9 and a calibration ``BAND`` with 1e-7: with about 80 and 5 comparisons
the total rate of false failures under fresh seeds is below 1e-6.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.errors import DivergenceError, FileError, SettingError
from bayeswell.random import LEAST_COUNTED, make_generator
from bayeswell.registry import settings_of
from bayeswell.samplers import PSGLD, SAMPLERS, SGHMC, SGLD, CyclicalSGLD, Sampler
from bayeswell.samplers.stepping import SamplerPart
from bayeswell.types import Progress

Z = 6.0
Array = np.ndarray


def run(
    part: SamplerPart, gradient: Callable[[Tensor], Tensor], start: Tensor, steps: int, dataset_size: int, seed: int = 1
) -> Tensor:
    """Where the chains (first axis of ``start``) stand after so many steps, in float64."""
    weights = nn.Parameter(start.clone())
    sampler = part.build([weights], dataset_size, make_generator(seed), steps)
    for _ in range(steps):
        weights.grad = gradient(weights.detach())
        sampler.step()
    return weights.detach().double()


# ---------------------------------------------------------------------------------------------------------
# Correlated Gaussians: the chain is linear, so its law at every step is known exactly.

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


def z_scores(draws: Tensor, mean: Array, covariance: Array) -> Array:
    """Of the means, the variances and the correlations; draws are independent and Gaussian."""
    values, count = draws.numpy(), len(draws)
    variance = np.diag(covariance)
    found = np.cov(values.T)
    upper = np.triu_indices(len(mean), 1)
    wanted_r, found_r = (c[upper] / np.sqrt(np.outer(np.diag(c), np.diag(c)))[upper] for c in (covariance, found))
    return np.concatenate(
        [
            (values.mean(0) - mean) / np.sqrt(variance / count),
            (np.diag(found) - variance) / (variance * np.sqrt(2 / count)),
            # Fisher's transform: normal with variance 1/(n - 3), whatever the correlation.
            (np.arctanh(found_r) - np.arctanh(wanted_r)) * np.sqrt(count - 3),
        ]
    )


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


# ---------------------------------------------------------------------------------------------------------
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
    """Pearson's chi-square of the ranks of the true means among the draws; chi-square with 9 degrees if calibrated."""
    generator = make_generator(11)
    shape = (REPLICATES, MEANS)
    truth = PRIOR_STD * torch.randn(shape, generator=generator)
    total = SBC_N * truth + NOISE_STD * math.sqrt(SBC_N) * torch.randn(shape, generator=generator)
    weights = nn.Parameter(PRIOR_STD * torch.randn(shape, generator=generator))
    steps = burn_in + DRAWS * thinning
    sampler = part.build([weights], SBC_N, make_generator(12), steps)
    rank, kept = torch.zeros(shape), 0
    for t in range(steps):
        likelihood = (SBC_N * weights.detach() - total) / NOISE_STD**2
        weights.grad = (likelihood + prior_weight * weights.detach() / PRIOR_STD**2) / SBC_N
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


# ---------------------------------------------------------------------------------------------------------
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


# ---------------------------------------------------------------------------------------------------------
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


# ---------------------------------------------------------------------------------------------------------
# Each step, exactly.

PARTS: dict[str, Any] = {
    "sgld": SGLD(lr=0.3, temperature=1.4, gamma=0.6, b=3.0),
    "sghmc euler": SGHMC(lr=0.2, temperature=1.4, momentum=0.7, integrator="euler", gamma=0.8, b=5.0),
    "sghmc baoab": SGHMC(lr=0.2, temperature=1.4, momentum=0.7, integrator="baoab", gamma=0.8, b=5.0),
    "psgld": PSGLD(lr=0.1, temperature=1.4, decay=0.8, damping=0.1, adapt_steps=6, gamma=0.7, b=4.0),
    "cyclical_sgld": CyclicalSGLD(lr=0.2, temperature=1.4, cycles=2, exploration=0.3, collection=0.6),
}
each_part = pytest.mark.parametrize("name", PARTS)


def random_gradients(steps: int, *shapes: tuple[int, ...], seed: int = 21) -> list[list[Tensor]]:
    generator = make_generator(seed)
    return [[torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes] for _ in range(steps)]


def take(sampler: Sampler, params: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]]) -> None:
    for row in gradients:
        for param, grad in zip(params, row, strict=True):
            param.grad = grad.clone()
        sampler.step()


@each_part
def test_twelve_steps_against_the_equations(name: str) -> None:
    part, size, steps = PARTS[name], 7, 12
    weights = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))
    sampler = part.build([weights], size, make_generator(22), steps)
    noise, gradients = make_generator(22), random_gradients(steps, (2,))
    w, v, average = (np.array(x, dtype=float) for x in ([0.3, -0.2], [0, 0], [0, 0]))
    for t, [grad] in enumerate(gradients):
        take(sampler, [weights], [[grad]])
        g = grad.numpy()
        place = t % 6 / 6
        draws_noise = name != "cyclical_sgld" or place >= 0.3
        xi = torch.randn(2, dtype=torch.float64, generator=noise).numpy() if draws_noise else np.zeros(2)
        if name == "sgld":
            lr = 0.3 * 3.0**0.6 * (3.0 + t) ** -0.6  # a (b + t)^-gamma
            w = w - lr * g + math.sqrt(2 * lr * 1.4 / size) * xi
        elif name == "sghmc euler":
            lr = 0.2 * (1 + t / 5.0) ** -0.8
            v = 0.7 * v - lr * g + math.sqrt(2 * 0.3 * lr * 1.4 / size) * xi
            w = w + v
        elif name == "sghmc baoab":
            lr = 0.2 * (1 + t / 5.0) ** -0.8
            v = v - lr * g  # B B
            w = w + v / 2  # A
            v = 0.7 * v + math.sqrt((1 - 0.7**2) * lr * 1.4 / size) * xi  # O
            w = w + v / 2  # A
        elif name == "psgld":
            lr = 0.1 * (1 + t / 4.0) ** -0.7
            if t < 6:
                average = 0.8 * average + 0.2 * g**2
            scale = 1 / (0.1 + np.sqrt(average / (1 - 0.8 ** min(t + 1, 6))))
            w = w - lr * scale * g + np.sqrt(2 * lr * 1.4 * scale / size) * xi
        else:
            lr = 0.1 * (math.cos(math.pi * place) + 1)
            w = w - lr * g + math.sqrt(2 * lr * 1.4 / size) * xi
        np.testing.assert_allclose(weights.detach().numpy(), w, rtol=1e-12, err_msg=f"step {t}")


@each_part
def test_groups_without_noise_take_plain_steps(name: str) -> None:
    """They take the steps of temperature 0, draw nothing, and leave the noise of the other group as it is."""
    part, gradients = PARTS[name], random_gradients(8, (3,), (2, 2))

    def finish(groups: Callable[[nn.Parameter, nn.Parameter], list[dict[str, Any]]]) -> list[Tensor]:
        params = [nn.Parameter(torch.full(s, 0.5, dtype=torch.float64)) for s in ((3,), (2, 2))]
        sampler = part.build(groups(*params), 11, make_generator(23), 8)
        take(sampler, params, gradients)
        return [param.detach() for param in params]

    mixed = finish(lambda a, b: [{"params": [b], "noise": False, "lr": 0.05}, {"params": [a]}])
    cold = finish(lambda a, b: [{"params": [b], "temperature": 0.0, "lr": 0.05}, {"params": [a]}])
    assert torch.equal(mixed[0], cold[0])
    assert torch.equal(mixed[1], cold[1])
    alone = finish(lambda a, b: [{"params": [a]}])
    assert torch.equal(mixed[0], alone[0])
    if name == "sgld":
        plain = 0.5 - sum(0.05 * (1 + t / 3.0) ** -0.6 * row[1] for t, row in enumerate(gradients))
        torch.testing.assert_close(mixed[1], plain, rtol=1e-12, atol=0)


def test_schedulers_of_torch_change_the_rate() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGLD(lr=0.3, gamma=1.0, b=4.0).build([weights], 5, make_generator(1))
    scheduler = torch.optim.lr_scheduler.StepLR(sampler, step_size=1, gamma=0.5)
    assert sampler.learning_rates() == [0.3]
    take(sampler, [weights], [[torch.ones(2)]])
    scheduler.step()
    assert sampler.learning_rates() == [pytest.approx(0.15 / 1.25)]


def test_a_closure_is_called_with_gradients_on() -> None:
    weights = nn.Parameter(torch.tensor([0.4]))
    sampler = SGLD(lr=0.1, temperature=0.0).build([weights], 5, make_generator(1))

    def closure() -> float:
        sampler.zero_grad()
        loss = weights.square().sum()
        loss.backward()
        return float(loss.detach())

    assert sampler.step(closure) == pytest.approx(0.16)
    assert float(weights.detach()) == pytest.approx(0.32)


def test_parameters_without_gradient_stay() -> None:
    moved, still, empty = (nn.Parameter(torch.zeros(n)) for n in (2, 3, 0))
    sampler = SGLD().build([moved, still, empty], 5, make_generator(1))
    moved.grad, empty.grad = torch.ones(2), torch.zeros(0)
    sampler.step()
    assert torch.equal(still.detach(), torch.zeros(3))
    assert bool((moved.detach() != 0).all())


# ---------------------------------------------------------------------------------------------------------
# State.


@each_part
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_resumed_chain_goes_on_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    part = PARTS[name]
    gradients = [[g.to(dtype) for g in row] for row in random_gradients(10, (4,), (2, 3))]

    def begin(seed: int) -> tuple[Sampler, list[nn.Parameter]]:
        params = [nn.Parameter(torch.zeros(s, dtype=dtype)) for s in ((4,), (2, 3))]
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
        return part.build(groups, 9, make_generator(seed), 10), params

    whole, params = begin(31)
    take(whole, params, gradients[:4])
    saved = copy.deepcopy((whole.state_dict(), [param.detach() for param in params]))
    twin, twin_params = copy.deepcopy((whole, params))  # a copy of the live optimizer is whole too
    take(whole, params, gradients[4:])
    resumed, others = begin(99)
    with torch.no_grad():
        for param, value in zip(others, saved[1], strict=True):
            param.copy_(value)
    assert saved[0]["generator"].dtype == torch.uint8
    resumed.load_state_dict(saved[0])
    for again, again_params in ((resumed, others), (twin, twin_params)):
        assert again.steps == 4
        take(again, again_params, gradients[4:])
        for param, other in zip(params, again_params, strict=True):
            assert torch.equal(param, other)
        assert all(
            torch.equal(whole.state[p][key], again.state[q][key])
            for p, q in zip(params, again_params, strict=True)
            for key in whole.state[p]
        )
        assert torch.equal(whole.generator.get_state(), again.generator.get_state())


def test_the_state_of_another_optimizer_is_refused() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGLD().build([weights], 5, make_generator(1))
    with pytest.raises(FileError, match=r"no 'step'.*sampler"):
        sampler.load_state_dict(torch.optim.SGD([weights], lr=0.1).state_dict())


# ---------------------------------------------------------------------------------------------------------
# Divergence.


@each_part
@pytest.mark.parametrize("fault", [math.nan, math.inf])
def test_a_step_that_would_diverge_is_not_taken(name: str, fault: float) -> None:
    part, gradients = PARTS[name], random_gradients(8, (3,), (2, 2))

    def begin() -> tuple[Sampler, list[nn.Parameter]]:
        params = [nn.Parameter(torch.full(s, 0.5, dtype=torch.float64)) for s in ((3,), (2, 2))]
        groups = [{"params": [("first", params[0])]}, {"params": [("second", params[1])]}]
        return part.build(groups, 11, make_generator(23), 8), params

    calm, wanted = begin()
    take(calm, wanted, gradients)
    sampler, params = begin()
    take(sampler, params, gradients[:5])
    before = copy.deepcopy((sampler.state_dict(), [param.detach() for param in params]))
    bad = [gradients[5][0], gradients[5][1].clone()]
    bad[1][1, 0] = fault
    with pytest.raises(DivergenceError) as caught:
        take(sampler, params, [bad])
    assert "step 5 would make" in str(caught.value)
    assert "parameter 'second' NaN or inf at index (1, 0)" in str(caught.value)
    assert "gradient is NaN or inf already" in str(caught.value)
    assert "\n" not in str(caught.value)
    after = sampler.state_dict()
    assert torch.equal(before[0]["generator"], after["generator"])
    assert all(torch.equal(a, b) for a, b in zip(before[1], params, strict=True))
    take(sampler, params, gradients[5:])  # as if nothing had been
    assert all(torch.equal(a, b) for a, b in zip(wanted, params, strict=True))


def test_an_unstable_chain_is_reported_before_it_overflows() -> None:
    weights = nn.Parameter(torch.tensor([0.3, 0.1]))
    sampler = SGLD(lr=40.0).build([weights], 3, make_generator(1))

    def climb() -> None:
        for _ in range(1000):
            weights.grad = weights.detach().clone()
            sampler.step()

    with pytest.raises(DivergenceError, match=r"sgld: step \d+ would make parameter 0 .*lower lr \(now 40\)"):
        climb()
    assert bool(weights.isfinite().all())
    assert 20 < sampler.steps < 30  # float32 ends at 39^24


def test_large_but_finite_numbers_are_no_divergence() -> None:
    """Their sum overflows, they do not."""
    weights = nn.Parameter(torch.full((4,), 3e38))
    sampler = SGLD(lr=0.1).build([weights], 3, make_generator(1))
    take(sampler, [weights], [[torch.zeros(4)]])
    assert sampler.steps == 1


def test_a_preconditioner_that_overflows_is_a_divergence() -> None:
    """Its scale would be 0 ever after: a chain that stands still, with no NaN to be seen in the weights."""
    weights = nn.Parameter(torch.zeros(2))
    sampler = PSGLD().build([weights], 3, make_generator(1))
    with pytest.raises(DivergenceError, match="the square_average of parameter 0 of its group NaN or inf at index"):
        take(sampler, [weights], [[torch.tensor([1.0, 1e25])]])
    assert torch.equal(weights.detach(), torch.zeros(2))
    assert not sampler.state_dict()["state"]


# ---------------------------------------------------------------------------------------------------------
# Long float32 vectors: compiled, and by torch's operations.

LONG = LEAST_COUNTED + 77
compiled = pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")


def long_chain(name: str) -> tuple[Sampler, list[nn.Parameter]]:
    """Two long parameters, one of them without noise, and short ones in between."""
    generator = make_generator(41)
    shapes = [(LONG,), (4, 3), (2, LONG), (5,)]
    params = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    groups = [{"params": params[:2]}, {"params": params[2:], "noise": False, "lr": 0.03}]
    return PARTS[name].build(groups, 9, make_generator(42), 10), params


def long_gradients(steps: int) -> list[list[Tensor]]:
    generator = make_generator(43)
    shapes = [(LONG,), (4, 3), (2, LONG), (5,)]
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(steps)]


@compiled
@each_part
def test_compiled_steps_are_those_of_torch(name: str) -> None:
    """Ten steps: the scale of psgld is fixed after six, and cyclical_sgld explores in some without noise."""
    gradients = long_gradients(10)
    sampler, params = long_chain(name)
    take(sampler, params, gradients)
    with native.disabled():
        other, others = long_chain(name)
        take(other, others, gradients)
    assert torch.equal(sampler.generator.get_state(), other.generator.get_state())
    for param, expected in zip(params, others, strict=True):
        torch.testing.assert_close(param, expected, rtol=2e-5, atol=1e-5)
        assert sampler.state[param].keys() == other.state[expected].keys()
        for key, value in sampler.state[param].items():
            torch.testing.assert_close(value, other.state[expected][key], rtol=2e-5, atol=1e-5, msg=key)


@compiled
@each_part
def test_long_vectors_go_on_bit_for_bit_and_are_never_half_changed(name: str) -> None:
    """A bad gradient in the second long vector, when the first would already have moved."""
    gradients = long_gradients(6)
    calm, wanted = long_chain(name)
    take(calm, wanted, gradients)
    sampler, params = long_chain(name)
    for fault in (math.nan, -math.inf):  # before there is any state, too
        bad = [grad.clone() for grad in gradients[0]]
        bad[2][1, -1] = fault
        with pytest.raises(DivergenceError, match=rf"parameter 0 of its group NaN or inf at index \(1, {LONG - 1}\)"):
            take(sampler, params, [bad])
        assert not sampler.state_dict()["state"]
    take(sampler, params, gradients[:3])
    with pytest.raises(DivergenceError, match="step 3 would make"):
        take(sampler, params, [bad])
    saved, values = copy.deepcopy((sampler.state_dict(), [param.detach() for param in params]))
    resumed, others = long_chain(name)
    take(resumed, others, gradients[3:4])
    with torch.no_grad():
        for param, value in zip(others, values, strict=True):
            param.copy_(value)
    resumed.load_state_dict(saved)
    take(resumed, others, gradients[3:])
    take(sampler, params, gradients[3:])
    for param, other, expected in zip(params, others, wanted, strict=True):
        assert torch.equal(param, expected)
        assert torch.equal(other, expected)


@compiled
@each_part
def test_numbers_that_are_large_but_finite_are_no_divergence_in_long_vectors(name: str) -> None:
    """They are beyond what compiled code takes; the step is the same."""
    gradients = long_gradients(2)
    sampler, params = long_chain(name)
    with torch.no_grad():
        params[0][5] = 3e38
    take(sampler, params, gradients)
    other, others = long_chain(name)
    take(other, others, gradients)
    assert float(params[0][5].detach()) == pytest.approx(3e38)
    torch.testing.assert_close(params[0][6:], others[0][6:], rtol=2e-5, atol=1e-5)


@compiled
def test_a_finite_step_that_overflows_is_refused_in_long_vectors() -> None:
    """Weights and gradients are fine, and so are their magnitudes: it is the rate that is too much."""
    weights = nn.Parameter(torch.ones(LONG))
    sampler = SGLD(lr=1e38, temperature=1e-9).build([weights], 3, make_generator(1))
    with pytest.raises(DivergenceError, match="lower lr"):
        take(sampler, [weights], [[torch.full((LONG,), 7.0)]])
    assert torch.equal(weights.detach(), torch.ones(LONG))


@compiled
def test_autograd_knows_of_compiled_steps() -> None:
    weights = nn.Parameter(torch.ones(LONG))
    sampler = SGLD().build([weights], 3, make_generator(1))
    stale = weights.square().sum()
    take(sampler, [weights], [[torch.ones(LONG)]])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


# ---------------------------------------------------------------------------------------------------------
# Settings.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGLD(lr=0.0), "sgld: lr = 0.0; it must be a finite number above 0"),
        (lambda: SGLD(lr=math.inf), "sgld: lr = inf"),
        (lambda: SGLD(temperature=-0.1), "sgld: temperature = -0.1; it must be a finite number of at least 0"),
        (lambda: SGLD(gamma=0.5), "sgld: gamma = 0.5; it must lie in (0.5, 1], or be None for a constant rate"),
        (lambda: SGLD(gamma=1.01), "sgld: gamma = 1.01"),
        (lambda: SGLD(gamma=math.nan), "sgld: gamma = nan"),
        (lambda: SGLD(b=0.0), "sgld: b = 0.0"),
        (lambda: SGHMC(lr=-1.0), "sghmc: lr = -1.0"),
        (lambda: SGHMC(momentum=1.0), "sghmc: momentum = 1.0; it must lie in [0, 1)"),
        (lambda: SGHMC(integrator="eulr"), "unknown integrator 'eulr'; did you mean 'euler'? allowed: baoab, euler"),
        (lambda: PSGLD(decay=1.0), "psgld: decay = 1.0; it must lie in [0, 1)"),
        (lambda: PSGLD(damping=0.0), "psgld: damping = 0.0"),
        (lambda: PSGLD(adapt_steps=0), "psgld: adapt_steps = 0"),
        (lambda: CyclicalSGLD(cycles=0), "cyclical_sgld: cycles = 0"),
        (lambda: CyclicalSGLD(exploration=1.0), "cyclical_sgld: exploration = 1.0; it must lie in [0, 1)"),
        (lambda: CyclicalSGLD(exploration=0.6, collection=0.5), "collection = 0.5; it must lie in [0.6, 1)"),
        (lambda: CyclicalSGLD().sampling(Progress(3)), "Progress(total_steps=...)"),
        (lambda: built(SGLD(), dataset_size=0), "sgld: dataset_size = 0; it must be a whole number of at least 1"),
        (lambda: built(SGLD(), dataset_size=2.5), "sgld: dataset_size = 2.5"),
        (lambda: built(SGLD(), generator=None), "sgld: generator = None; it must be a torch.Generator"),
        (lambda: built(SGLD(), lr=-0.1), "sgld: lr = -0.1"),
        (lambda: built(SGLD(), noise=0), "sgld: noise = 0; it must be True or False"),
        (lambda: built(SGLD(), params=[nn.Parameter(torch.zeros(2, device="meta"))]), "parameter 0 of its group is on"),
        (
            lambda: built(SGLD(), name="means", params=[nn.Parameter(torch.zeros(2, device="meta"))]),
            "sgld: parameter 0 of group 'means' is on meta, but the generator draws on cpu",
        ),
        (lambda: built(CyclicalSGLD()), "cyclical_sgld needs the planned number of steps: total_steps=..."),
        (lambda: built(CyclicalSGLD(), total_steps=12), "12 steps in 4 cycles never reach the place collection = 0.75"),
        (lambda: SAMPLERS.resolve("sgdl"), "unknown sampler 'sgdl'; did you mean 'sgld'?"),
        (lambda: SAMPLERS.resolve({"name": "sgld", "tmperature": 1.0}), "did you mean 'temperature'?"),
    ],
)
def test_bad_settings_are_one_line(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(SettingError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def built(
    part: Any,
    dataset_size: Any = 10,
    generator: Any = "fresh",
    total_steps: int | None = None,
    params: list[nn.Parameter] | None = None,
    **group: Any,
) -> Sampler:
    chosen = make_generator(1) if generator == "fresh" else generator
    members = params or [nn.Parameter(torch.zeros(2))]
    made: Sampler = part.build([{"params": members, **group}], dataset_size, chosen, total_steps)
    return made


def test_a_sparse_gradient_is_refused() -> None:
    layer = nn.Embedding(4, 2, sparse=True)
    sampler = SGLD().build(layer.named_parameters(), 5, make_generator(1))
    layer(torch.tensor([1])).sum().backward()
    with pytest.raises(SettingError, match="parameter 'weight' has a sparse gradient"):
        sampler.step()


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_every_registered_sampler(name: str) -> None:
    part = SAMPLERS.resolve(name)
    assert SAMPLERS.resolve(settings_of(part)) == part
    summary, paper = SAMPLERS.summaries()[name]
    assert summary
    assert paper
    weights = nn.Parameter(torch.zeros(3))
    sampler = part.build([("weights", weights)], 100, make_generator(1), total_steps=1000)
    assert isinstance(sampler, torch.optim.Optimizer)
    take(sampler, [weights], [[torch.ones(3)]])
    assert bool((weights.detach() != 0).all())
    assert any(part.sampling(Progress(step, 1000)) for step in range(1000))


@pytest.mark.parametrize(("cycles", "total"), [(4, 100), (3, 100), (7, 61)])
def test_cycles_fill_the_run_and_draws_come_from_their_ends(cycles: int, total: int) -> None:
    part = CyclicalSGLD(lr=0.3, cycles=cycles, exploration=0.4, collection=0.7)
    sampler = part.build([nn.Parameter(torch.zeros(1))], 5, make_generator(1), total)
    rates, keeps, noisy = [], [], []
    for step in range(total):
        sampler.steps = step
        rates += sampler.learning_rates()
        keeps.append(part.sampling(Progress(step, total)))
        noisy.append(sampler.rate.noisy(step))
    starts = [0] + [t for t in range(1, total) if rates[t] > rates[t - 1]]
    assert len(starts) == cycles
    lengths = np.diff([*starts, total])
    assert lengths.max() - lengths.min() <= 1  # no stump at the end
    assert rates[0] == 0.3
    assert all(
        rate <= 0.15 * (math.cos(0.7 * math.pi) + 1) + 1e-12 for rate, keep in zip(rates, keeps, strict=True) if keep
    )
    assert all(noise for noise, keep in zip(noisy, keeps, strict=True) if keep)
    assert sum(noisy) == pytest.approx(0.6 * total, abs=cycles)
    assert sum(keeps) == pytest.approx(0.3 * total, abs=cycles)


def test_psgld_keeps_draws_once_its_scale_is_fixed() -> None:
    part = PSGLD(adapt_steps=50)
    assert [part.sampling(Progress(step)) for step in (0, 49, 50, 500)] == [False, False, True, True]
    assert PSGLD().sampling(Progress(0))


@pytest.mark.parametrize("size", [5, LEAST_COUNTED])
def test_psgld_refuses_a_gradient_that_comes_after_the_averaging(size: int) -> None:
    """Nothing was averaged for it: its preconditioner would be 0/0. Nothing is changed, compiled or not."""
    early, late = torch.nn.Parameter(torch.ones(5)), torch.nn.Parameter(torch.ones(size))
    sampler = PSGLD(lr=1e-3, adapt_steps=1).build([early, late], 100, bw.make_generator(0))
    early.grad = torch.full((5,), 0.3)
    sampler.step()
    late.grad = torch.full((size,), 0.2)
    before = early.detach().clone(), late.detach().clone()
    with pytest.raises(DivergenceError):
        sampler.step()
    assert torch.equal(early, before[0])
    assert torch.equal(late, before[1])
