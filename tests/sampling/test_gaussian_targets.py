"""Samplers on Gaussian targets: moments by the exact linear recursion, with and without minibatch noise.

Chains run side by side from a wide start, so the draws are independent and z-scores are standard normal. With |z| < 5
each of the tests below fails by chance less than once in 10^5 runs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.core.random import make_generator
from bayeswell.sampling import PSGLD, SGHMC, SGLD, Sampler
from bayeswell.sampling import sampler as sampler_module
from bayeswell.sampling.sampler import SamplerPart
from sampling.chains import Array, run, z_scores

Z, N, CHAINS, TEMPERATURE = 5.0, 40, 20_000, 1.7
MEAN = np.array([0.4, -1.1])
PRECISION = np.array([[9.0, 4.0], [4.0, 14.0]])
NOISE = 0.35  # std of the noise in a gradient of the loss per datum


def gradient(noise: float = 0.0, seed: int = 9) -> Callable[[Tensor], Tensor]:
    """The gradient of (w - m)' A (w - m) / (2 N), with independent noise."""
    precision, mean, generator = torch.from_numpy(PRECISION), torch.from_numpy(MEAN), make_generator(seed)

    def evaluate(weights: Tensor) -> Tensor:
        exact = (weights - mean) @ precision / N
        return exact + noise * torch.randn(weights.shape, dtype=torch.float64, generator=generator)

    return evaluate


def start() -> Tensor:
    return torch.from_numpy(MEAN) + torch.randn(CHAINS, 2, dtype=torch.float64, generator=make_generator(5))


def stationary(part: SGLD | SGHMC, noise: float, temperature: float = TEMPERATURE) -> Array:
    """The covariance of w, from the fixed point of the linear recursion of (w, v)."""
    lr, beta = part.lr, part.momentum
    assert lr is not None
    eye, hessian, zero = np.eye(2), PRECISION / N, np.zeros((2, 2))
    c2 = noise**2
    if isinstance(part, SGLD):  # v' = beta v + g; w' = w - lr v' + xi
        step = np.block([[eye - lr * hessian, -lr * beta * eye], [hessian, beta * eye]])
        grad_in = np.vstack([-lr * eye, eye])
        added = np.block([[2 * lr * temperature / ((1 - beta) * N) * eye, zero], [zero, zero]])
    elif part.integrator == "euler":  # v' = beta v - lr g + xi; w' = w + v'
        step = np.block([[eye - lr * hessian, beta * eye], [-lr * hessian, beta * eye]])
        grad_in = np.vstack([-lr * eye, -lr * eye])
        both = np.vstack([eye, eye])
        added = 2 * (1 - beta) * lr * temperature / N * both @ both.T
    else:  # u = v - lr g; v' = beta u + xi; w' = w + (u + v') / 2
        half = (1 + beta) / 2
        step = np.block([[eye - half * lr * hessian, half * eye], [-beta * lr * hessian, beta * eye]])
        grad_in = np.vstack([-half * lr * eye, -beta * lr * eye])
        both = np.vstack([eye / 2, eye])
        added = (1 - beta**2) * lr * temperature / N * both @ both.T
    forcing = added + c2 * grad_in @ grad_in.T
    solved = np.linalg.solve(np.eye(16) - np.kron(step, step), forcing.reshape(-1)).reshape(4, 4)
    return solved[:2, :2]


PARTS = {
    "sgld": SGLD(lr=1.1),
    "sgld momentum": SGLD(lr=0.3, momentum=0.6),
    "sghmc euler": SGHMC(lr=0.9, momentum=0.6, integrator="euler"),
    "sghmc baoab": SGHMC(lr=1.9, momentum=0.6),
    "sghmc baoab without momentum": SGHMC(lr=1.9, momentum=0.0),
}


@pytest.mark.parametrize("noise", [0.0, NOISE])
@pytest.mark.parametrize("name", PARTS)
def test_moments_of_a_gaussian_target(name: str, noise: float) -> None:
    part = PARTS[name]
    draws, _ = run(part, gradient(noise), start(), 90, dataset_size=N, temperature=TEMPERATURE)
    assert np.abs(z_scores(draws, MEAN, stationary(part, noise))).max() < Z


def test_baoab_is_exact_on_gaussians() -> None:
    exact = TEMPERATURE * np.linalg.inv(PRECISION)
    np.testing.assert_allclose(stationary(PARTS["sghmc baoab"], 0.0), exact, rtol=1e-10)


def test_documented_biases() -> None:
    """One weight of precision lam: the formulas of the docstrings, the exact ones to rounding."""
    lam = np.linalg.eigvalsh(PRECISION)
    for name, variance in (
        ("sgld", lambda k, m: 1 / (1 - k / 2)),
        ("sgld momentum", lambda k, m: (1 + 2 * m * k / ((1 + m) * (1 - m) ** 2)) / (1 - k / (2 * (1 + m)))),
        ("sghmc euler", lambda k, m: 1 / (1 - k / (2 * (1 + m)))),
    ):
        part = PARTS[name]
        found = np.sort(np.linalg.eigvalsh(stationary(part, 0.0)))[::-1]
        k = part.lr * lam / N
        expected = TEMPERATURE / lam * variance(k, part.momentum)
        np.testing.assert_allclose(found, np.sort(expected)[::-1], rtol=1e-9)
    tiny = SGHMC(lr=1e-5, momentum=0.6)
    heat = (np.linalg.eigvalsh(stationary(tiny, NOISE)) - np.linalg.eigvalsh(stationary(tiny, 0.0)))[::-1]
    np.testing.assert_allclose(heat, 1e-5 * NOISE**2 * N * 1.6 / (4 * 0.4 * lam), rtol=1e-3)


def test_zero_temperature_descends() -> None:
    for name in PARTS:
        draws, _ = run(PARTS[name], gradient(), start()[:3], 300, dataset_size=N, temperature=0.0)
        np.testing.assert_allclose(draws.numpy(), np.tile(MEAN, (3, 1)), atol=1e-8)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_a_wrong_noise_scale_is_seen(name: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: with noise times 1.1 the variances are off by 21 percent."""
    normal = sampler_module.standard_normal
    monkeypatch.setattr(
        "bayeswell.sampling.sampler.standard_normal", lambda *args, **settings: factor * normal(*args, **settings)
    )
    part = PARTS[name]
    draws, _ = run(part, gradient(), start(), 90, dataset_size=N, temperature=TEMPERATURE)
    assert np.abs(z_scores(draws, MEAN, stationary(part, 0.0))).max() > 2 * Z


def test_a_constant_preconditioner_leaves_the_target() -> None:
    """G fixed after burn-in: SGLD in the coordinates G^-1/2 w, with covariance of its linear recursion."""
    part = PSGLD(lr=0.2, decay=0.9, damping=0.3, adapt_steps=1)
    first = torch.tensor([0.5, 2.0], dtype=torch.float64)
    exact = gradient()
    calls = iter(range(10**6))

    def with_planned_start(weights: Tensor) -> Tensor:
        return first.expand_as(weights).clone() if next(calls) == 0 else exact(weights)

    draws, _ = run(part, with_planned_start, start(), 120, dataset_size=N, temperature=TEMPERATURE)
    scale = np.diag(1 / (0.3 + first.numpy()))
    step = np.eye(2) - 0.2 * scale @ PRECISION / N
    forcing = 2 * 0.2 * TEMPERATURE / N * scale
    solved = np.linalg.solve(np.eye(4) - np.kron(step, step), forcing.reshape(-1)).reshape(2, 2)
    assert np.abs(z_scores(draws, MEAN, solved)).max() < Z


# Measured temperatures: of the average over chains and time, to a few percent.


def measured(part: SamplerPart, noise: float, steps: int = 1500) -> float:
    _, sampler = run(part, gradient(noise), start()[:500], steps, dataset_size=N, temperature=TEMPERATURE)
    found = sampler.measured_temperature()
    assert found is not None
    return found


@pytest.mark.parametrize("noise", [0.0, NOISE])
@pytest.mark.parametrize(
    "part", [SGHMC(lr=0.2, momentum=0.8), SGHMC(lr=0.05, momentum=0.8, integrator="euler"), SGLD(lr=0.8)]
)
def test_measured_temperature_is_that_of_the_weights(part: SGLD | SGHMC, noise: float) -> None:
    """tr(A Cov) / P, the mean energy: 500 chains of 300 measurements, statistical errors below 2 percent."""
    expected = float(np.trace(PRECISION @ stationary(part, noise)) / 2)
    assert measured(part, noise) == pytest.approx(expected, rel=0.06)
    if noise:
        assert expected > 1.04 * TEMPERATURE


def test_a_hot_chain_warns() -> None:
    part = SGHMC(lr=1.9, momentum=0.9)

    def chain(noise: float) -> Sampler:
        return run(part, gradient(noise), start()[:2000], 400, dataset_size=N, temperature=1.0)[1]

    assert chain(0.0).warnings() == []
    (warning,) = chain(NOISE).warnings()
    assert "minibatch noise" in warning
    assert SGLD(lr=0.1).build([{"params": [torch.zeros(1)]}], _context()).measured_temperature() is None


def _context():
    from bayeswell.core.protocols import OptimizerContext

    return OptimizerContext(10, 10, 1, make_generator(1))
