"""Samplers whose learning rate is left open: on regressions in closed form, stiff and slack, untuned."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import OptimizerContext, Progress
from bayeswell.core.random import make_generator
from bayeswell.sampling import PSGLD, SGHMC, SGLD, AutoTunedSampler, CyclicalSGLD
from bayeswell.sampling.adaptation import (
    DRAW,
    ESTIMATE,
    OPTIMIZE,
    Plan,
    hessian_row_norms_squared,
    largest_curvature,
    one_chain,
)

NOISE, FULL = 0.3, 400
PARTS: dict[str, Any] = {
    "sgld": SGLD(lr=None),
    "sghmc": SGHMC(lr=None),
    "psgld": PSGLD(lr=None),
    "cyclical_sgld": CyclicalSGLD(lr=None),
}


@dataclass(frozen=True)
class Linear:
    """y = x w + noise of known std, w ~ N(0, I), at temperature T. Inputs of unequal scales."""

    inputs: Tensor
    targets: Tensor
    temperature: float = 1.0

    @classmethod
    def make(cls, condition: float, weights: int = 6, temperature: float = 1.0) -> Linear:
        generator = make_generator(77)
        scales = torch.logspace(0, -math.log10(condition) / 2, weights, dtype=torch.float64)
        inputs = scales * torch.randn(FULL, weights, dtype=torch.float64, generator=generator)
        truth, noise = (torch.randn(n, dtype=torch.float64, generator=generator) for n in (weights, FULL))
        return cls(inputs, inputs @ truth + NOISE * noise, temperature)

    @property
    def posterior(self) -> tuple[Tensor, Tensor]:
        """Mean and stds of likelihood^(1/T) prior."""
        precision = self.inputs.T @ self.inputs / NOISE**2 / self.temperature
        covariance = torch.linalg.inv(precision + torch.eye(len(precision), dtype=torch.float64))
        mean = covariance @ self.inputs.T @ self.targets / NOISE**2 / self.temperature
        return mean, covariance.diag().sqrt()

    def batches(self, size: int, steps: int, seed: int) -> list[tuple[Tensor, Tensor]]:
        """Passes over the data in random orders."""
        generator, found = make_generator(seed), list[tuple[Tensor, Tensor]]()
        while len(found) < steps:
            order = torch.randperm(FULL, generator=generator)
            found += [(self.inputs[rows], self.targets[rows]) for rows in order.split(size)]
        return found[:steps]

    def slope(self, weights: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[float, Tensor]:
        """The objective -log joint / N of a batch and its gradient; rows of weights are added up."""
        inputs, targets = batch
        error = weights @ inputs.T - targets
        scale = self.temperature / FULL
        total = 0.5 * error.square().sum() / NOISE**2 / len(targets) + 0.5 * scale * weights.square().sum()
        return float(total), error @ inputs / NOISE**2 / len(targets) + scale * weights


class Chain:
    """A sampler driven as the training loop does; rows of the weights are chains that share only the rate."""

    def __init__(self, part: Any, problem: Linear, batch_size: int, steps: int, seed: int = 1, copies: int = 1) -> None:
        self.problem, self.batches = problem, problem.batches(batch_size, steps, seed)
        self.weights = nn.Parameter(torch.zeros(copies, problem.inputs.shape[1], dtype=torch.float64))
        context = OptimizerContext(
            FULL, steps, FULL // batch_size, make_generator(seed), temperature=problem.temperature
        )
        made = part.build([{"name": "means", "params": [self.weights], "noise": True}], context)
        assert isinstance(made, AutoTunedSampler)
        self.sampler, self.draws = made, list[Tensor]()

    def run(self, steps: int | None = None, disturb: Callable[[int], float] | None = None) -> Chain:
        first = self.sampler.steps
        for step in range(first, len(self.batches) if steps is None else first + steps):
            loss = self._gradient(step) + (0.0 if disturb is None else disturb(step))
            if self.sampler.before_step(loss, functools.partial(self._gradient, step)):
                self.sampler.step()
            if self.sampler.may_sample(Progress(step)):
                self.draws.append(self.weights.detach().clone())
        return self

    def _gradient(self, step: int) -> float:
        total, self.weights.grad = self.problem.slope(self.weights.detach(), self.batches[step])
        return total

    def ratios(self) -> tuple[Tensor, Tensor]:
        """Errors of the mean in stds, and std ratios, of the draws kept."""
        mean, std = self.problem.posterior
        draws = torch.stack(self.draws).reshape(-1, len(mean))
        return (draws.mean(0) - mean) / std, draws.std(0) / std


@pytest.mark.parametrize(
    ("name", "condition", "low", "high"),
    [
        # 12 chains of some 400 dependent draws. Slack directions forget the mode late, most of all without momentum.
        ("sghmc", 1e4, 0.7, 1.35),
        ("sghmc", 1.0, 0.7, 1.35),
        ("psgld", 1e4, 0.5, 1.3),
        ("psgld", 1.0, 0.8, 1.2),
        ("sgld", 1.0, 0.8, 1.2),
    ],
)
def test_untuned_stds_are_those_of_the_posterior(name: str, condition: float, low: float, high: float) -> None:
    chain = Chain(PARTS[name], Linear.make(condition), FULL, 700, copies=12).run()
    mean, std = chain.ratios()
    assert bool(((std > low) & (std < high)).all()), std
    assert float(mean.abs().max()) < 0.7, mean
    assert chain.sampler.measured_temperature() == pytest.approx(1.0, abs=0.35)
    assert chain.sampler.warnings() == []


@pytest.mark.parametrize("name", ["sghmc", "psgld"])
def test_minibatches_hardly_widen_the_draws(name: str) -> None:
    """At a rate from curvature alone sghmc would be six times too wide; 1.22 is allowed, and luck."""
    chain = Chain(PARTS[name], Linear.make(1.0), 20, 1000, copies=12).run()
    _, std = chain.ratios()
    assert bool(((std > 0.7) & (std < 1.35)).all()), std
    assert chain.sampler.warnings() == []
    measured = chain.sampler.measured_temperature()
    assert measured is not None
    assert measured < 1.6


@pytest.mark.parametrize("name", ["sgld", "sghmc", "psgld"])
@pytest.mark.parametrize("temperature", [0.1, 0.01])
def test_cold_chains_with_minibatches_are_not_hot(name: str, temperature: float) -> None:
    chain = Chain(PARTS[name], Linear.make(1.0, temperature=temperature), 20, 4000, copies=12).run()
    mean, std = chain.ratios()
    assert bool(((std > 0.6) & (std < 1.3)).all()), std
    assert float(mean.abs().max()) < 2.5, mean  # the descent ends some 50 stds away at T = 0.01
    measured = chain.sampler.measured_temperature()
    assert measured is not None
    assert 0.8 < measured / temperature < 1.7
    assert chain.sampler.warnings() == []


def test_at_temperature_zero_minibatch_noise_stops_the_chain() -> None:
    chain = Chain(SGHMC(lr=None), Linear.make(1.0, temperature=1e-30), 20, 300)
    chain.problem = dataclasses.replace(chain.problem, temperature=0.0)
    chain.sampler.param_groups[0]["temperature"] = 0.0
    chain.run()
    assert chain.sampler.tuner.lr == 0
    torch.testing.assert_close(chain.draws[-1], chain.draws[0], atol=1e-3, rtol=0.0)


def test_cycles_of_draws_alone() -> None:
    part = CyclicalSGLD(lr=None, cycles=2, exploration=0.0, collection=0.0)
    chain = Chain(part, Linear.make(1.0), FULL, 600).run()
    assert len(chain.draws) == 600 - 2 * chain.sampler.plan.num_estimation_batches
    assert bool(torch.stack(chain.draws).isfinite().all())


@pytest.mark.parametrize("name", PARTS)
def test_nothing_changes_once_draws_are_kept(name: str) -> None:
    steps, found = 320, []
    chain = Chain(PARTS[name], Linear.make(30.0), 40, steps)
    for step in range(steps):
        chain.run(1)
        if chain.sampler.may_sample(Progress(step)):
            scale = float(chain.sampler.state[chain.weights]["scale"].sum())
            found.append((chain.sampler.tuner.lr, chain.sampler.momentum, scale))
    assert len(found) >= 40
    assert len(set(found)) == chain.sampler.plan.cycles


CUTS = [30, 170, 210, 250]
"""In the descent, in the estimation, in burn-in and among the draws."""


def chain_to_cut(name: str) -> Chain:
    return Chain(PARTS[name], Linear.make(30.0), 40, 280)


@functools.cache
def whole_chain(name: str) -> tuple[Tensor, dict[int, tuple[Tensor, Any]]]:
    """The end of a chain that is never cut, and the weights and states on its way."""
    chain, saved = chain_to_cut(name), {}
    for cut in CUTS:
        chain.run(cut - chain.sampler.steps)
        saved[cut] = chain.weights.detach().clone(), copy.deepcopy(chain.sampler.state_dict())
    return chain.run().weights.detach(), saved


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("cut", CUTS)
def test_a_saved_chain_resumes_bit_for_bit(name: str, cut: int) -> None:
    end, saved = whole_chain(name)
    weights, state = saved[cut]
    chain = chain_to_cut(name)
    with torch.no_grad():
        chain.weights.copy_(weights)
    chain.sampler.load_state_dict(copy.deepcopy(state))
    assert not torch.equal(chain.weights, end)
    assert torch.equal(chain.run().weights, end)


def test_a_chain_that_diverges_in_burn_in_goes_back_at_half_the_rate() -> None:
    chain = Chain(SGHMC(lr=None), Linear.make(30.0), FULL, 400)
    at = chain.sampler.plan.first_draw(0) + 5
    chain.run(at)
    end, lr = chain.sampler.state[chain.weights]["descent_end"].clone(), chain.sampler.tuner.lr
    chain.run(1, disturb=lambda step: math.inf)
    assert torch.equal(chain.weights.detach(), end)
    assert chain.sampler.tuner.lr == pytest.approx(lr / 2)
    assert chain.sampler.steps == at + 1
    chain.run()
    assert not chain.sampler.rollback()  # draws have been kept
    assert bool(torch.stack(chain.draws).isfinite().all())


def test_curvature_of_a_quadratic() -> None:
    generator = make_generator(3)
    root = torch.randn(9, 9, dtype=torch.float64, generator=generator)
    matrix, scale = root @ root.T, torch.rand(9, dtype=torch.float64, generator=generator) + 0.1
    weights = nn.Parameter(torch.randn(9, dtype=torch.float64, generator=generator))
    before = weights.detach().clone()

    def gradient() -> None:
        weights.grad = matrix @ weights.detach()

    found = largest_curvature(weights, scale, gradient, make_generator(1), count=200)
    scaled = scale.sqrt()[:, None] * matrix * scale.sqrt()
    assert found == pytest.approx(float(torch.linalg.eigvalsh(scaled).max()), rel=1e-5)
    rows = hessian_row_norms_squared(weights, gradient, make_generator(2), count=4000)
    assert rows.tolist() == pytest.approx(matrix.square().sum(1).tolist(), rel=0.15)  # std 2 percent
    assert torch.equal(weights.detach(), before)


def test_probes_leave_the_gradients_of_the_batch() -> None:
    """Also of parameters without noise, whose step follows."""
    chain = Chain(SGHMC(lr=None), Linear.make(1.0), 40, 200)
    step = chain.sampler.plan.first_draw(0)
    chain.run(step)
    chain._gradient(step)
    grad = chain.weights.grad.clone()
    assert chain.sampler.before_step(1.0, functools.partial(chain._gradient, step))
    assert chain.sampler.tuner.lr > 0
    assert torch.equal(chain.weights.grad, grad)


@pytest.mark.parametrize("steps", [1, 2, 7, 19, 20, 100, 5000])
def test_every_plan_has_draws(steps: int) -> None:
    plan = one_chain(steps)
    stages = [plan.stage(step) for step in range(steps)]
    order = [OPTIMIZE, ESTIMATE, DRAW]
    assert [order.index(stage) for stage in stages] == sorted(order.index(stage) for stage in stages)
    assert any(step >= plan.first_kept(step) and plan.stage(step) == DRAW for step in range(steps))
    assert any(plan.measures(step) for step in range(steps))
    assert Plan(steps, 1, plan.descent, plan.collection).stage(3 * steps) == DRAW  # a longer run keeps drawing


def test_learned_noise_is_moved_by_adam_and_finds_its_value() -> None:
    """One log std, with gradient 1 - mean square error / noise^2 per datum."""
    steps, log_std = 800, nn.Parameter(torch.zeros(1))
    weights = nn.Parameter(torch.zeros(4))
    context = OptimizerContext(50, steps, 1, make_generator(1))
    groups = [
        {"name": "means", "params": [weights], "noise": True},
        {"name": "noise", "params": [log_std], "noise": False},
    ]
    sampler = SGHMC(lr=None).build(groups, context)
    assert isinstance(sampler, AutoTunedSampler)

    def gradient() -> None:
        weights.grad = weights.detach().clone()
        log_std.grad = 1 - 0.04 * (-2 * log_std.detach()).exp()

    for _ in range(steps):
        gradient()
        if sampler.before_step(0.5, gradient):
            sampler.step()
    np.testing.assert_allclose(log_std.detach().exp().item(), 0.2, rtol=0.02)


def test_mistakes_are_named() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGLD(lr=None).build([{"params": [weights]}], OptimizerContext(5, 30, 1, make_generator(1)))
    weights.grad = torch.ones(2)
    for _ in range(sampler.plan.first_draw(0)):
        sampler.step()
    with pytest.raises(SettingError, match="give `lr` a number"):
        sampler.step()
    with pytest.raises(SettingError, match="one flat vector"):
        SGLD(lr=None).build([{"params": [weights, nn.Parameter(torch.zeros(3))]}], OptimizerContext(5, 30, 1))


@pytest.mark.slow
def test_minibatch_chain_of_a_logistic_regression_is_not_hot() -> None:
    """Gradient noise is larger along this chain than at the mode, where it is first estimated.

    Mean energy above that of full batches, in temperatures: 2 (E - E_full) / P. Without the temperature measured in
    burn-in it is 1.3.
    """
    inputs, labels = (torch.from_numpy(array[:426]).double() for array in load_breast_cancer(return_X_y=True))
    inputs = torch.cat([(inputs - inputs.mean(0)) / inputs.std(0), torch.ones(426, 1)], 1).double()

    def energy(batch_size: int, steps: int) -> tuple[float, float]:
        weights = nn.Parameter(torch.zeros(31, dtype=torch.float64))
        batches = math.ceil(426 / batch_size)
        context = OptimizerContext(426, steps, batches, make_generator(11))
        sampler = SGHMC(lr=None).build([{"name": "means", "params": [weights], "noise": True}], context)
        assert isinstance(sampler, AutoTunedSampler)

        def loss(rows: Tensor) -> float:
            w = weights.detach()
            logits = inputs[rows] @ w
            weights.grad = inputs[rows].T @ (torch.sigmoid(logits) - labels[rows]) / len(rows) + w / 426
            nll = nn.functional.binary_cross_entropy_with_logits(logits, labels[rows])
            return float(nll + 0.5 * w.square().sum() / 426)

        generator, found, parts = make_generator(1), list[float](), tuple[Tensor, ...]()
        for step in range(steps):
            if step % batches == 0:
                parts = torch.randperm(426, generator=generator).split(batch_size)
            rows = parts[step % batches]
            if sampler.before_step(loss(rows), functools.partial(loss, rows)):
                sampler.step()
            if sampler.may_sample(Progress(step)):
                found.append(426 * loss(torch.arange(426)))
        measured = sampler.measured_temperature()
        assert measured is not None
        return float(np.mean(found)), measured

    full, cool = energy(426, 6000)
    small, measured = energy(32, 7000)
    assert cool == pytest.approx(1.0, abs=0.2)
    assert 2 * (small - full) / 31 < 0.6
    assert measured < 1.6
