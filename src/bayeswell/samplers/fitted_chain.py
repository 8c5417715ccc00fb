"""The chain of a sampler that fits itself: what it looks at before it moves, its rate, and its step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .curvature import largest_curvature, row_sizes
from .descent import KEYS, unbiased_squares
from .findings import Findings
from .plans import Plan
from .stepping import Sampler

HOTTEST = 0.5
"""Minibatch noise may add so much to the temperature: at temperature 1, stds are at most 1.22 times too wide."""

DAMPING = 0.03
"""Of the preconditioner, relative to its root mean square: weights that hardly matter now may do so later."""

MEMORIES = 60
MOST_FRICTION, LEAST_FRICTION = 0.2, 0.03
"""1 - momentum of ``sghmc``: so many memories 1 / (1 - momentum) fit into the draws kept, within these bounds."""

_ONE_BATCH, _LEAST_CURVATURE = 1e-6, 1e-30


@dataclass(frozen=True)
class Dynamics:
    """What a fitted chain is made of: ``reach`` is lr times the largest curvature (stable on a quadratic below 4)."""

    reach: float
    preconditioned: bool = True
    momentum: bool = False


class FittedChain(Sampler):
    """State of each parameter: ``velocity``, ``scale`` (G), ``spread`` (the variance of its gradient over batches) and
    ``home``, where the descent ended. A step that would diverge is undone at once (``FittedSampler.retreat``), so that
    the numbers of every step are read, also those of an accelerator.
    """

    may_look_later = False

    def __init__(
        self, name: str, params: ParamsT, settings: dict[str, Any], plan: Plan, dynamics: Dynamics,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.name = name
        self.plan, self.dynamics = plan, dynamics
        self.fit = Findings()
        super().__init__(params, {**settings, "lr": 1.0}, plan, generator)

    def _chain_step(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """BAOAB as in ``sghmc``, with lr scaled weight by weight: lr G in place of lr, in the noise too."""
        beta, unit = self.fit.momentum, lr * group["temperature"] / group["dataset_size"]
        states = [self.state[param] for param in params]
        kicked = torch._foreach_mul(grads, -lr)
        if self.dynamics.preconditioned:
            torch._foreach_mul_(kicked, [state["scale"] for state in states])
        torch._foreach_add_(kicked, [state["velocity"] for state in states])
        moved = list(torch._foreach_mul(kicked, beta))
        if noise is not None:
            if self.dynamics.preconditioned:
                torch._foreach_mul_(noise, [state["scale"].sqrt() for state in states])
            torch._foreach_add_(moved, noise, alpha=math.sqrt((1 - beta**2) * unit))
        values = list(torch._foreach_add(params, kicked, alpha=0.5))
        torch._foreach_add_(values, moved, alpha=0.5)
        return values, {"velocity": moved}

    def _drawn(self) -> list[Tensor]:
        """The parameters with noise that are trained."""
        return [param for group in self.param_groups if group["noise"] for param in group["params"]]

    def _look(self, total: float, first: bool) -> None:
        """Sums of the gradients of several batches at one place."""
        if first:
            self.fit.totals = []
        self.fit.totals.append(total)
        for param in self._drawn():
            if param.grad is None:
                continue
            state = self.state[param]
            if first or "sum" not in state:
                state["sum"], state["squares"] = torch.zeros_like(param), torch.zeros_like(param)
            state["sum"] += param.grad
            state["squares"].addcmul_(param.grad, param.grad)

    def _begin_chain(self, gradient: Callable[[], None]) -> None:
        """The spread of gradients over batches, the preconditioner, and where to go back to."""
        looks, drawn = self.plan.looks, self._drawn()
        for param in drawn:
            state = self.state[param]
            spread = torch.zeros_like(param)
            if "sum" in state:
                spread = (state.pop("squares") - state.pop("sum").square() / looks).clamp_(min=0) / (looks - 1)
            state["spread"], state["home"] = spread, param.detach().clone()
            state["velocity"] = torch.zeros_like(param)
        if self.dynamics.preconditioned:
            self._precondition(drawn, gradient)
        for param in drawn:
            for key in KEYS:
                self.state[param].pop(key, None)
        group = self.param_groups[0]
        self.fit.begin_chain(group["temperature"] * sum(p.numel() for p in drawn) / (2 * group["dataset_size"]))

    def _precondition(self, drawn: list[Tensor], gradient: Callable[[], None]) -> None:
        """G = 1 / (sqrt(V) + damping), with a mean of 1 / G of one; V as in ``psgld``, held fixed from here on.

        Where all data are in each batch the squared gradients of the descent vanish with it, fastest where curvature is
        largest: there V is that of gradients around the place that was reached.
        """
        squares = [
            unbiased_squares(state["average_square"], state["step"]) if "average_square" in state else state["spread"]
            for state in (self.state[param] for param in drawn)
        ]
        spread = sum(float(self.state[param]["spread"].sum()) for param in drawn)
        if spread <= _ONE_BATCH * sum(float(part.sum()) for part in squares):
            squares = row_sizes(drawn, gradient, self.generator)
        for param, part in zip(drawn, squares, strict=True):
            size = part.sqrt()
            size += DAMPING * part.mean().sqrt() + torch.finfo(size.dtype).tiny
            self.state[param]["scale"] = size.mean() / size

    def _moving(self) -> list[Tensor]:
        return [param for param in self._drawn() if "spread" in self.state.get(param, {})]

    def _measure(self, gradient: Callable[[], None]) -> None:
        moving = self._moving()
        scales = [self.state[param]["scale"] for param in moving] if self.dynamics.preconditioned else None
        found = largest_curvature(moving, scales, gradient, self.generator)
        self.fit.curvature = max(self.fit.curvature, found)
        self._set_rate()

    def _set_rate(self) -> None:
        """From the curvature, and lower where minibatches would heat the chain far beyond its temperature."""
        fit, group, moving = self.fit, self.param_groups[0], self._moving()
        fit.momentum = 1 - self._friction()
        rate = self.dynamics.reach / max(fit.curvature, _LEAST_CURVATURE) * 0.5**fit.halvings
        # Noise of variance c^2 in a gradient is worth that of a temperature lr N c^2 (1 + beta) / (4 (1 - beta)).
        worth = rate * group["dataset_size"] * (1 + fit.momentum) / (4 * (1 - fit.momentum))
        worth *= self.plan.factor(self.plan.first_kept(self.steps))
        sums = [float((self.state[p]["spread"] * self.state[p].get("scale", 1.0)).sum()) for p in moving]
        heat = worth * sum(sums) / max(1, sum(param.numel() for param in moving))
        lower = min(1.0, HOTTEST / heat) if heat > 0 else 1.0
        fit.rate, fit.heat = rate * lower, heat * lower

    def _friction(self) -> float:
        """1 - momentum: small for slow directions, but many memories 1 / (1 - momentum) long are the draws kept."""
        if not self.dynamics.momentum:
            return 1.0
        draws = self.plan.length / self.plan.cycles * (1 - self.plan.collection)
        return min(MOST_FRICTION, max(LEAST_FRICTION, MEMORIES / max(1.0, draws)))
