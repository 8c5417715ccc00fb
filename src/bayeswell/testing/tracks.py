"""A stepper at work: the posterior of a small network in a quadratic bowl."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..optimizers import parameter_groups
from ..random import make_generator
from .problems import lifted, network, normal
from .report import Omitted, require

STEPS = 40
_N = 50


class Case:
    """A stepper; ``tolerance`` is that of the spread of a sampler."""

    def __init__(self, part: Any, tolerance: float = 0.1) -> None:
        plan = getattr(part, "planned", None)  # a rate that depends on the length has a number from here on
        self.part, self.tolerance = part if plan is None else plan(STEPS), tolerance
        Track(self.part)

    def only(self, samples: bool) -> None:
        """Leave a check out that is about the other kind."""
        if self.part.samples != samples:
            raise Omitted("it samples" if self.part.samples else "it does not sample")


class Track:
    """A stepper at work: the posterior of a small network in a quadratic bowl."""

    def __init__(self, part: Any, seed: int = 1) -> None:
        self.part = part
        self.model = lifted(network(3, 2).float(), "delta" if part.samples else "mean_field")
        self.parameters = dict(self.model.posterior.named_parameters())
        self.aims = {
            name: p.detach() + 0.5 * (1 + normal(*p.shape, seed=9).abs()) for name, p in self.parameters.items()
        }
        self.idle = nn.Parameter(normal(5, seed=8).float())
        groups = parameter_groups(self.model, part.lr)
        groups[0]["params"] = [*groups[0]["params"], self.idle]
        self.generator = make_generator(seed)
        self.optimizer = build(part, groups, self.generator, self.model.prior)

    def loss(self) -> Tensor:
        """1/2 |parameters - aims|^2."""
        return torch.stack([0.5 * (p - self.aims[name]).square().sum() for name, p in self.parameters.items()]).sum()

    def steps(self, count: int) -> list[float]:
        """So many steps; the losses before each of them, and at the end."""
        losses = []
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            losses.append(loss.item())
            self.optimizer.step()
        return [*losses, self.loss().item()]

    def values(self) -> dict[str, Tensor]:
        """Copies of all numbers."""
        return {name: value.detach().clone() for name, value in {**self.parameters, "idle": self.idle}.items()}


def build(
    part: Any, groups: Any, generator: torch.Generator, prior: Any, total_steps: int = STEPS, size: int = _N
) -> Optimizer:
    """The torch optimizer, with what the part wants."""
    offered = {"dataset_size": size, "total_steps": total_steps, "generator": generator, "prior": prior}
    unknown = set(part.wants) - set(offered)
    require(not unknown, f"`wants` names {sorted(unknown)}; there are {sorted(offered)}")
    made = part.build(groups, **{name: value for name, value in offered.items() if name in part.wants})
    require(isinstance(made, Optimizer), f"build gives a {type(made).__name__}, expected a torch.optim.Optimizer")
    optimizer: Optimizer = made
    return optimizer
