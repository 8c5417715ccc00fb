"""Steps of the samplers against formulas number by number, cycles, groups without noise, and exact resume."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import OptimizerContext, Progress
from bayeswell.core.random import make_generator
from bayeswell.optim import Power
from bayeswell.sampling import PSGLD, SAMPLERS, SGHMC, SGLD, CyclicalSGLD
from bayeswell.sampling.sampler import SamplerPart
from sampling.chains import build, run

PARTS: dict[str, Any] = {
    "sgld": SGLD(lr=0.3),
    "sgld momentum": SGLD(lr=0.3, momentum=0.4),
    "sghmc euler": SGHMC(lr=0.2, momentum=0.7, integrator="euler"),
    "sghmc baoab": SGHMC(lr=0.2, momentum=0.7),
    "psgld": PSGLD(lr=0.1, decay=0.8, damping=0.1, adapt_steps=6),
    "cyclical_sgld": CyclicalSGLD(lr=0.2, cycles=2, exploration=0.3, collection=0.6),
}
STEPS, T, N = 20, 1.4, 40


def gradients(seed: int = 21, size: int = 7) -> Tensor:
    return torch.randn(STEPS, size, dtype=torch.float64, generator=make_generator(seed))


def take(part: SamplerPart, rows: Tensor) -> Tensor:
    weights = nn.Parameter(torch.ones(rows.shape[1], dtype=torch.float64))
    sampler = build(part, weights, STEPS, temperature=T)
    for row in rows:
        weights.grad = row.clone()
        sampler.step()
    return weights.detach()


def by_number(name: str, rows: np.ndarray, noise: Any) -> np.ndarray:
    """The equations of the docstrings; ``noise()`` is the next standard normal vector."""
    w, v, square = np.ones(rows.shape[1]), np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    count = 0
    for t, g in enumerate(rows):
        if name == "sgld":
            w = w - 0.3 * g + math.sqrt(2 * 0.3 * T / N) * noise()
        elif name == "sgld momentum":
            v = 0.4 * v + g
            w = w - 0.3 * v + math.sqrt(2 * 0.3 * T / (0.6 * N)) * noise()
        elif name == "sghmc euler":
            v = 0.7 * v - 0.2 * g + math.sqrt(2 * 0.3 * 0.2 * T / N) * noise()
            w = w + v
        elif name == "sghmc baoab":
            kicked = v - 0.2 * g
            v = 0.7 * kicked + math.sqrt((1 - 0.49) * 0.2 * T / N) * noise()
            w = w + (kicked + v) / 2
        elif name == "psgld":
            if t < 6:
                square, count = 0.8 * square + 0.2 * g**2, count + 1
            scale = 1 / (0.1 + np.sqrt(square / (1 - 0.8**count)))
            w = w - 0.1 * scale * g + np.sqrt(2 * 0.1 * T * scale / N) * noise()
        else:
            place = (t * 2 % STEPS) / STEPS
            lr = 0.1 * (math.cos(math.pi * place) + 1)
            w = w - lr * g + (math.sqrt(2 * lr * T / N) * noise() if place >= 0.3 else 0.0)
    return w


@pytest.mark.parametrize("name", PARTS)
def test_steps_are_the_published_equations(name: str) -> None:
    rows, generator = gradients(), make_generator(1)
    expected = by_number(name, rows.numpy(), lambda: torch.randn(7, dtype=torch.float64, generator=generator).numpy())
    np.testing.assert_allclose(take(PARTS[name], rows).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("cut", [3, 11])
def test_a_saved_chain_resumes_bit_for_bit(name: str, cut: int) -> None:
    rows = gradients(size=5)
    whole = take(PARTS[name], rows)
    weights = nn.Parameter(torch.ones(5, dtype=torch.float64))
    first = build(PARTS[name], weights, STEPS, temperature=T)
    for row in rows[:cut]:
        weights.grad = row.clone()
        first.step()
    state = copy.deepcopy(first.state_dict())
    resumed = nn.Parameter(weights.detach().clone())
    second = build(PARTS[name], resumed, STEPS, temperature=T, seed=99)
    second.load_state_dict(state)
    for row in rows[cut:]:
        resumed.grad = row.clone()
        second.step()
    assert torch.equal(resumed.detach(), whole)
    assert second.steps == STEPS


def test_groups_without_noise_take_plain_steps() -> None:
    weights, noise = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
    groups = [
        {"name": "means", "params": [weights], "noise": True},
        {"name": "noise", "params": [noise], "lr": 0.5, "noise": False},
    ]
    sampler = SGLD(lr=0.1).build(groups, OptimizerContext(10, 5, 1, make_generator(1)))
    for parameter in (weights, noise):
        parameter.grad = torch.ones_like(parameter)
    sampler.step()
    assert torch.equal(noise.detach(), torch.full((2,), -0.5))
    assert not torch.allclose(weights.detach(), torch.full((3,), -0.1))
    assert sampler.drawn() == [weights]


def test_a_parameter_whose_gradient_appears_later_adapts_on_its_own() -> None:
    late, early = (nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in range(2))
    part = PSGLD(lr=0.1, decay=0.8, damping=0.1, adapt_steps=1)
    sampler = part.build([{"params": [early, late]}], OptimizerContext(10, 5, 1, make_generator(1), temperature=0.0))
    early.grad = torch.full_like(early, 3.0)
    sampler.step()
    late.grad = torch.full_like(late, 2.0)
    sampler.step()
    np.testing.assert_allclose(late.detach().numpy(), -0.1 * 2 / (0.1 + 2), rtol=1e-12)
    np.testing.assert_allclose(early.detach().numpy(), -2 * 0.1 * 3 / (0.1 + 3), rtol=1e-12)


def test_sghmc_moves_groups_without_noise_alone() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGHMC(lr=0.1).build([{"params": [weights], "noise": False}], OptimizerContext(10, 5, 1))
    for _ in range(2):
        weights.grad = torch.ones_like(weights)
        sampler.step()
    np.testing.assert_allclose(weights.detach().numpy(), -0.1 * (0.95 + 0.95 * 1.9), rtol=1e-6)


def test_decaying_rate_is_a_schedule() -> None:
    """Welling & Teh's a (b + t)^-gamma; the noise falls with it."""
    schedule, weights = Power(0.6, 1.0, 3), nn.Parameter(torch.zeros(4, dtype=torch.float64))
    sampler, generator, expected = build(SGLD(lr=0.2), weights, 10), make_generator(1), np.zeros(4)
    for step in range(10):
        sampler.param_groups[0]["lr"] = 0.2 * schedule.factor(Progress(step, 10))
        weights.grad = torch.ones_like(weights)
        sampler.step()
        lr = 0.2 * (1 + step / 3) ** -0.6
        noise = torch.randn(4, dtype=torch.float64, generator=generator).numpy()
        expected = expected - lr + math.sqrt(2 * lr / N) * noise
    np.testing.assert_allclose(weights.detach().numpy(), expected, rtol=1e-12)


def test_cycles_collect_at_their_ends() -> None:
    part = CyclicalSGLD(cycles=3, exploration=0.4, collection=0.7)
    kept = [step for step in range(90) if part.may_sample(Progress(step, 90))]
    assert kept == [*range(21, 30), *range(51, 60), *range(81, 90)]
    assert CyclicalSGLD(cycles=None).cycles_in(4000) == 2
    assert not PSGLD(adapt_steps=5).may_sample(Progress(4, 90))
    assert PSGLD(adapt_steps=5).may_sample(Progress(5, 90))
    with pytest.raises(SettingError, match="too few"):
        build(CyclicalSGLD(cycles=4), nn.Parameter(torch.zeros(1)), 8)


def test_exploration_draws_no_noise_and_forgets_the_measurement() -> None:
    part = CyclicalSGLD(lr=0.2, cycles=2, exploration=0.5, collection=0.75)
    draws, sampler = run(part, lambda w: w, torch.ones(6, dtype=torch.float64), 10, temperature=1.0)
    expected = np.prod([1 - 0.1 * (math.cos(math.pi * step / 10 * 1.0) + 1) for step in range(0, 10, 2)])
    first, _ = run(part, lambda w: w, torch.ones(6, dtype=torch.float64), 10, temperature=0.0)
    assert draws.std() > 0
    assert first.std() == 0
    assert 0 < float(first[0]) < expected
    assert sampler.estimate.count < 3


@pytest.mark.parametrize(
    "choice",
    [
        {"name": "sgld", "lr": 0.0},
        {"name": "sghmc", "momentum": 1.0},
        {"name": "sghmc", "integrator": "verlet"},
        {"name": "psgld", "damping": 0.0},
        {"name": "cyclical_sgld", "collection": 0.2},
        {"name": "sgld", "lr": None, "momentum": 0.5},
    ],
)
def test_mistakes_are_named(choice: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        SAMPLERS.resolve(choice)
