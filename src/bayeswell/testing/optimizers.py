"""Checks of optimizers, samplers, learning-rate schedules and KL weights."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import OptimizerContext, Progress
from ..core.random import make_generator
from ..optim import parameter_groups
from .problems import make_model, network, normal
from .report import applies, require, require_same

STEPS, DATASET_SIZE = 40, 50


class Track:
    """An optimizer or sampler of the posterior of a small network with the loss |parameters - aims|^2 / 2."""

    def __init__(self, part: Any, seed: int = 1) -> None:
        self.model = make_model(network(3, 2).float(), "delta" if part.samples else "mean_field")
        self.parameters = dict(self.model.posterior.named_parameters())
        aims = {name: 0.5 * (1 + normal(*p.shape, seed=9).abs()) for name, p in self.parameters.items()}
        self.aims = {name: parameter.detach() + aims[name].float() for name, parameter in self.parameters.items()}
        groups = parameter_groups(self.model, lr=part.lr)
        self.generator = make_generator(seed)
        self.optimizer = build(part, groups, self.generator, self.model.prior)

    def loss(self) -> Tensor:
        return sum((0.5 * (p - self.aims[name]).square().sum() for name, p in self.parameters.items()), torch.zeros(()))

    def steps(self, count: int) -> float:
        """Take steps; return the loss at the end."""
        for _ in range(count):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()
        return self.loss().item()

    def values(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.parameters.items()}


def build(
    part: Any, groups: Any, generator: torch.Generator, prior: Any, total_steps: int = STEPS, size: int = DATASET_SIZE
) -> torch.optim.Optimizer:
    context = OptimizerContext(size, total_steps, max(1, total_steps // 4), generator, prior)
    optimizer: torch.optim.Optimizer = part.build(groups, context)
    require(isinstance(optimizer, torch.optim.Optimizer), f"build returns a {type(optimizer).__name__}")
    return optimizer


def check_resume(part: Any) -> None:
    """A state loaded into a new optimizer ends as an uninterrupted run."""
    whole, first, second = (Track(part) for _ in range(3))
    whole.steps(12)
    first.steps(7)
    with torch.no_grad():
        for name, value in first.values().items():
            second.parameters[name].copy_(value)
    second.generator.set_state(first.generator.get_state())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.steps(5)
    require_same("the parameters of a resumed run", second.values(), whole.values())


class OptimizerChecks:
    """An optimizer with a learning rate for a run of ``STEPS`` steps."""

    def __init__(self, part: Any) -> None:
        self.part = part.planned(STEPS)
        Track(self.part)

    def check_first_step_goes_downhill(self) -> None:
        applies(not self.part.handles_kl, "it adds prior and entropy itself, so the loss alone need not fall")
        track = Track(self.part)
        before, start = track.values(), track.loss().item()
        track.steps(1)
        for name, value in track.parameters.items():
            along = float(((value.detach() - before[name]) * (track.aims[name] - before[name])).sum())
            require(along > 0, f"the first step moves '{name}' by {along:.3g} downhill, expected more than 0")
        end = track.steps(STEPS - 1)
        require(end < start, f"{STEPS} steps bring a quadratic loss from {start:.5g} to {end:.5g}")

    def check_resumes_exactly(self) -> None:
        check_resume(self.part)

    def check_learning_rates_of_groups_count(self) -> None:
        track = Track(self.part)
        track.steps(2)
        track.optimizer.param_groups[0]["lr"] = 0.0
        before = track.values()["mean"]
        track.steps(1)
        require_same("the means after a step at a learning rate of 0", track.values()["mean"], before)


COORDINATES, CHAIN = 4000, 2000
STEP_TIMES_CURVATURE = 0.1


class SamplerChecks:
    """A sampler; ``tolerance`` is that of the std of its draws."""

    def __init__(self, part: Any, tolerance: float = 0.1) -> None:
        self.part, self.tolerance = part.planned(STEPS), tolerance
        require(self.part.samples is True, "`samples` must be True: the iterates are draws")
        Track(self.part)

    def check_resumes_exactly(self) -> None:
        check_resume(self.part)

    def check_generator_decides(self) -> None:
        first, again, other = Track(self.part), Track(self.part), Track(self.part, seed=2)
        for track in (first, again, other):
            track.steps(STEPS)
        require_same("a second chain with the same generator", again.values(), first.values())
        differ = not torch.equal(first.values()["mean"], other.values()["mean"])
        require(differ, "chains with different generators are the same")

    def check_adds_no_noise_to_other_parameters(self) -> None:
        ends = []
        for seed in (1, 2):
            weights = nn.Parameter(normal(8, seed=5))
            drawn = nn.Parameter(normal(8, seed=6))
            groups = [{"params": [p], "lr": self.part.lr, "noise": p is drawn} for p in (drawn, weights)]
            optimizer = build(self.part, groups, make_generator(seed), None)
            for _ in range(STEPS):
                for parameter in (drawn, weights):
                    parameter.grad = parameter.detach().clone()
                optimizer.step()
            ends.append(weights.detach())
        require_same("a group with noise=False under another generator", *ends)

    def check_draws_have_the_moments_of_the_target(self) -> None:
        curvature = STEP_TIMES_CURVATURE / self.part.lr
        size = max(1, round(curvature))  # gradients of size one
        expected = math.sqrt(1 / (size * curvature))
        weights = nn.Parameter(2 * expected * normal(COORDINATES, seed=7))
        optimizer = build(self.part, [{"params": [weights]}], make_generator(3), None, CHAIN, size)
        kept = []
        for step in range(CHAIN):
            weights.grad = curvature * weights.detach()
            optimizer.step()
            if step >= CHAIN // 2 and step % 10 == 9 and self.part.may_sample(Progress(step, CHAIN)):
                kept.append(weights.detach().clone())
        require(bool(kept), "no step of the second half of a run may be kept")
        draws = torch.stack(kept)
        std, mean = float(draws.square().mean().sqrt()), float(draws.mean())
        error = std / expected - 1
        target = f"draws from N(0, {expected:.4g}^2) have"
        require(abs(error) <= self.tolerance, f"{target} a std of {std:.4g}, off by {error:.0%}")
        limit = 5 * expected / math.sqrt(COORDINATES)
        require(abs(mean) <= limit, f"{target} a mean of {mean:.2g}, above {limit:.2g}")


BATCHES = 8
RUN = [Progress(step, STEPS, step % BATCHES, BATCHES) for step in range(STEPS)]


class ScheduleChecks:
    """A schedule over a run of 40 steps."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def _value(self, part: Any, progress: Progress) -> Any:
        return part.factor(progress)

    def check_finite_and_not_negative(self) -> None:
        values = [self._value(self.part, progress) for progress in RUN]
        for step, value in enumerate(values):
            number = isinstance(value, int | float) and math.isfinite(value) and value >= 0
            require(number, f"step {step} gives {value!r}, expected a finite number >= 0")
        require(any(values), f"all {STEPS} steps of a run give 0")

    def check_depends_on_progress_alone(self) -> None:
        """Equal values in any order and from a copy: a resumed run gets the right number."""
        copied, first = copy.deepcopy(self.part), [self._value(self.part, progress) for progress in RUN]
        backwards = [self._value(self.part, progress) for progress in reversed(RUN)][::-1]
        require(backwards == first, "asked backwards it gives other values")
        require([self._value(copied, progress) for progress in RUN] == first, "a copy gives other values")


class KLWeightChecks(ScheduleChecks):
    """A KL weight over the same run."""

    def _value(self, part: Any, progress: Progress) -> Any:
        return part(progress)
