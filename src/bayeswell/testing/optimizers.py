"""Checks of optimizers on a quadratic loss."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import OptimizerContext
from ..core.random import make_generator
from ..optim import parameter_groups
from .problems import make_model, network, normal
from .report import Omitted, require, require_same

STEPS, DATASET_SIZE, WARM_UP = 40, 50, 10


class Track:
    """An optimizer or sampler of the posterior of a small network with the loss |parameters - aims|^2 / 2."""

    def __init__(self, part: Any, seed: int = 1) -> None:
        self.model = make_model(network(3, 2).float(), "delta" if part.samples else "mean_field")
        self.parameters = dict(self.model.posterior.named_parameters())
        aims = {name: 0.5 * (1 + normal(*p.shape, seed=9).abs()) for name, p in self.parameters.items()}
        self.aims = {name: parameter.detach() + aims[name].float() for name, parameter in self.parameters.items()}
        self.idle = nn.Parameter(normal(5, seed=8).float())
        groups = parameter_groups(self.model, lr=part.lr)
        if not part.handles_kl:  # such an optimizer takes means and stds in pairs
            groups[0]["params"] = [*groups[0]["params"], self.idle]
        self.generator = make_generator(seed)
        self.optimizer = build(part, groups, self.generator, self.model.prior)

    def loss(self) -> Tensor:
        return sum((0.5 * (p - self.aims[name]).square().sum() for name, p in self.parameters.items()), torch.zeros(()))

    def steps(self, count: int) -> list[float]:
        """Take steps; return the losses before each and at the end."""
        losses = []
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            losses.append(loss.item())
            self.optimizer.step()
        return [*losses, self.loss().item()]

    def values(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in {**self.parameters, "idle": self.idle}.items()}


def build(
    part: Any, groups: Any, generator: torch.Generator, prior: Any, total_steps: int = STEPS, size: int = DATASET_SIZE
) -> torch.optim.Optimizer:
    context = OptimizerContext(size, total_steps, max(1, total_steps // 4), generator, prior)
    found = part.build(groups, context)
    require(isinstance(found, torch.optim.Optimizer), f"build returns a {type(found).__name__}")
    optimizer: torch.optim.Optimizer = found
    return optimizer


def check_resume(part: Any) -> None:
    """A state loaded into a new optimizer ends as an uninterrupted run."""
    whole, first, second = (Track(part) for _ in range(3))
    whole.steps(12)
    first.steps(7)
    with torch.no_grad():
        for name, value in first.values().items():
            {**second.parameters, "idle": second.idle}[name].copy_(value)
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
        if self.part.handles_kl:
            raise Omitted("it adds prior and entropy itself, so the loss alone need not fall")
        track = Track(self.part)
        before, losses = track.values(), track.steps(1)
        for name, value in track.parameters.items():
            along = float(((value.detach() - before[name]) * (track.aims[name] - before[name])).sum())
            require(along > 0, f"the first step moves '{name}' by {along:.3g} downhill, expected more than 0")
        end = track.steps(STEPS - 1)[-1]
        require(end < losses[0], f"{STEPS} steps bring a quadratic loss from {losses[0]:.5g} to {end:.5g}")

    def check_leaves_parameters_without_gradient(self) -> None:
        track = Track(self.part)
        before = track.values()["idle"]
        track.steps(5)
        require_same("a parameter without a gradient after 5 steps", track.idle.detach(), before)

    def check_resumes_exactly(self) -> None:
        check_resume(self.part)

    def check_learning_rates_of_groups_count(self) -> None:
        track = Track(self.part)
        track.steps(2)
        track.optimizer.param_groups[0]["lr"] = 0.0
        before = track.values()["mean"]
        track.steps(1)
        require_same("the means after a step at a learning rate of 0", track.values()["mean"], before)

    def check_step_bound_holds(self) -> None:
        """No step of the stds under a steady gradient is longer than ``step_bound`` learning rates."""
        bound = self.part.step_bound
        if bound is None:
            raise Omitted("it has no `step_bound`")
        for size in (1e-4, 1.0, 1e4):
            track = Track(self.part)
            for step in range(STEPS):
                before = track.values()
                for value in track.parameters.values():
                    value.grad = torch.full_like(value, size)
                track.optimizer.step()
                moved = float((track.parameters["log_std"].detach() - before["log_std"]).abs().max()) / self.part.lr
                fits = step < WARM_UP or moved <= bound * 1.001
                require(fits, f"step {step} moves a log std by {moved:.4g} learning rates; step_bound is {bound:g}")
