"""Samplers that fit themselves: a descent, a look around, and a chain whose rate follows from what was seen."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import BayeswellWarning, DivergenceError, FileError, SettingError
from ..finite import all_finite
from .curvature import largest_curvature
from .descent import KEYS, adam_step, unbiased_squares
from .plans import DESCEND, DRAW, LOOK, Plan, descent_rate
from .stepping import Sampler

RHO = 0.1
POW = 0.5
SOURCE = "v"
EXCESS = math.inf
REACH = 0.0
DAMP = 60.0
MOST_FRICTION, LEAST_FRICTION = 0.2, 0.03
NOISE_FASTER = 5.0
_MOST_RETREATS = 20


@dataclass(frozen=True)
class Dynamics:
    """What a fitted chain is made of.

    ``reach`` is lr times the largest curvature (stable below 4 with momentum, below 2 without).
    """

    reach: float
    preconditioned: bool = True
    momentum: bool = False


class FittedSampler(Sampler):
    """..."""

    def __init__(
        self, name: str, params: ParamsT, settings: dict[str, Any], plan: Plan, dynamics: Dynamics,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.name = name
        self.plan, self.dynamics = plan, dynamics
        self.fit = Fit()
        super().__init__(params, {**settings, "lr": 1.0}, plan, generator)

    def learning_rates(self) -> list[float]:
        """The fitted rate for weights in a chain, else Adam's."""
        drawing = self.plan.stage(self.steps) == DRAW
        return [group["lr"] * self._rate(group, drawing) for group in self.param_groups]

    def _rate(self, group: dict[str, Any], drawing: bool) -> float:
        descent = descent_rate(self.plan.length)
        if not group["noise"]:
            faster = NOISE_FASTER if group.get("name") == "noise" else 1.0
            return faster * descent * self.plan.factor_without_noise(self.steps)
        return (self.fit.rate if drawing else descent) * self.plan.factor(self.steps)

    def collects(self, step: int) -> bool:
        """Whether the weights after this step are a draw."""
        return self.plan.collects(step)

    def observe(self, total: float, gradient: Callable[[], None]) -> bool:
        """Look at the objective and the gradient before a step; False if the step is not to be taken.

        ``gradient()`` puts the gradient of the same batch at whatever the parameters then are into their ``.grad``.
        """
        step, plan, fit = self.steps, self.plan, self.fit
        fit.count(total, plan.looks)
        stage = plan.stage(step)
        if stage == DESCEND:
            if step and plan.stage(step - 1) == DRAW:
                self._forget()
        elif stage == LOOK:
            self._look(total, first=step == plan.first_look(step))
        else:
            if plan.measures(step):
                if step == plan.first_draw(step):
                    self._begin_chain()
                self._measure(gradient)
            fine = total <= fit.limit and all_finite(p.grad for p in self._drawn() if p.grad is not None)
            if not fine and self.retreat():
                return False
        if step == plan.length - 1:
            fit.warn_if_nothing_was_learned(self.name)
        return True

    def retreat(self) -> bool:
        """Go back to where the descent ended, to go on at half the rate; False if draws are being kept already."""
        if self.plan.stage(self.steps) != DRAW or self.plan.collects(self.steps) or not self.fit.rate:
            return False
        if self.fit.halvings >= _MOST_RETREATS:
            return False
        with torch.no_grad():
            for param in self._drawn():
                state = self.state[param]
                if "home" in state:
                    param.copy_(state["home"])
                    state["velocity"].zero_()
        self.fit.halvings += 1
        self._set_rate()
        self.steps += 1
        return True

    def step(self, closure: Any = None) -> Any:
        """As every sampler's; in burn-in a step that would diverge is a retreat."""
        try:
            return super().step(closure)
        except DivergenceError:
            if not self.retreat():
                raise
            return None

    def propose(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """A step of Adam, none at all, or one of the chain."""
        stage = self.plan.stage(self.steps)
        if stage == LOOK and group["noise"]:
            return [param.detach().clone() for param in params], {}
        if stage == DESCEND or not group["noise"]:
            counts = [self.state.get(param, {}).get("step", torch.zeros(())) for param in params]
            memory = {key: self._memory(params, key) for key in ("average", "average_square")}
            return adam_step(params, grads, lr, {**memory, "step": counts})
        if not self.fit.rate:
            raise SettingError(f"{self.name}: lr = None is fitted while `fit` trains; give lr a number")
        return self._chain_step(group, params, grads, lr, noise)

    def _chain_step(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """Of ``sghmc`` (BAOAB) or of ``sgld``, in coordinates w / sqrt(scale)."""
        beta, unit = self.fit.momentum, lr * group["temperature"] / group["dataset_size"]
        states = [self.state[param] for param in params]
        kicks = torch._foreach_mul(grads, -lr)
        if self.dynamics.preconditioned:
            torch._foreach_mul_(kicks, [state["scale"] for state in states])
        shakes = None
        if noise is not None:
            torch._foreach_mul_(noise, [state["shake"] for state in states])
            torch._foreach_mul_(noise, math.sqrt((1 - beta**2 if self.dynamics.momentum else 2.0) * unit))
            shakes = noise
        if not self.dynamics.momentum:
            if shakes is not None:
                torch._foreach_add_(kicks, shakes)
            return list(torch._foreach_add(params, kicks)), {}
        torch._foreach_add_(kicks, [state["velocity"] for state in states])
        moved = list(torch._foreach_mul(kicks, beta))
        if shakes is not None:
            torch._foreach_add_(moved, shakes)
        values = list(torch._foreach_add(params, kicks, alpha=0.5))
        torch._foreach_add_(values, moved, alpha=0.5)
        return values, {"velocity": moved}

    def factors(self, group: dict[str, Any], lr: float) -> tuple[float, ...]:
        """None that compiled code knows: steps are always computed beside the parameters."""
        return (math.inf,)

    def move(self, group: dict[str, Any], param: Tensor, lr: float, key: int | None) -> None:
        """Never asked for."""
        raise AssertionError("a fitted sampler has no step in place")

    def state_dict(self) -> dict[str, Any]:
        """As every sampler's, with the plan and what was fitted."""
        return {**super().state_dict(), "plan": dataclasses.asdict(self.plan), "fit": dataclasses.asdict(self.fit)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The inverse. The plan is the loaded one: a chain that goes on longer than it was planned keeps its rate."""
        if "fit" not in state_dict:
            raise FileError(f"{self.name}: the state to load was made with a number as lr; give the same lr")
        super().load_state_dict(state_dict)
        self.plan, self.fit = Plan(**state_dict["plan"]), Fit(**state_dict["fit"])
        self.rate = self.plan

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "plan": self.plan, "dynamics": self.dynamics, "fit": self.fit, "name": self.name}

    def _drawn(self) -> list[Tensor]:
        """The parameters with noise that are trained."""
        return [param for group in self.param_groups if group["noise"] for param in group["params"]]

    def _forget(self) -> None:
        """Of the chain that has ended, as the next cycle begins."""
        for param in self._drawn():
            self.state[param] = {}

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

    def _begin_chain(self) -> None:
        """The preconditioner, the spread of gradients over batches, and where to go back to."""
        looks = self.plan.looks
        for param in self._drawn():
            state = self.state[param]
            if "sum" not in state:
                continue
            spread = (state.pop("squares") - state.pop("sum").square() / looks).clamp_(min=0) / (looks - 1)
            if self.dynamics.preconditioned:
                squares = unbiased_squares(state["average_square"], state["step"])
                if SOURCE != "v" and float(spread.sum()) > 1e-6 * float(squares.sum()):
                    squares = spread
                size = (squares + (RHO * RHO if POW == 0.5 else RHO) * squares.mean() + 1e-20).pow(POW)
                state["scale"] = size.mean() / size
            state["spread"], state["home"] = spread, param.detach().clone()
            state["velocity"] = torch.zeros_like(param)
            for key in KEYS:
                state.pop(key, None)
        group = self.param_groups[0]
        thermal = group["temperature"] * sum(p.numel() for p in self._drawn()) / (2 * group["dataset_size"])
        self.fit.begin(thermal)

    def _moving(self) -> list[Tensor]:
        return [param for param in self._drawn() if "spread" in self.state.get(param, {})]

    def _measure(self, gradient: Callable[[], None]) -> None:
        moving = self._moving()
        scales = [self.state[param]["scale"] for param in moving] if self.dynamics.preconditioned else None
        found = largest_curvature(moving, scales, gradient, self.generator)
        self.fit.curvature = max(self.fit.curvature, found)
        self._set_rate()

    def _set_rate(self) -> None:
        fit, group, moving = self.fit, self.param_groups[0], self._moving()
        rate = (REACH or self.dynamics.reach) / max(fit.curvature, 1e-30) * 0.5**fit.halvings
        draws = self.plan.length / self.plan.cycles * (1 - self.plan.collection)
        beta = 1 - min(MOST_FRICTION, max(LEAST_FRICTION, DAMP / draws)) if self.dynamics.momentum else 0.0
        speed = (1 + beta) / (2 * (1 - beta)) if self.dynamics.momentum else 1.0
        heat = speed * group["dataset_size"] / (2 * group["temperature"]) if group["temperature"] > 0 else math.inf
        weighted = [self.state[param]["spread"] * self.state[param].get("scale", 1.0) for param in moving]
        mean = sum(float(part.sum()) for part in weighted) / max(1, sum(part.numel() for part in weighted))
        excess = rate * heat * mean if mean else 0.0
        fit.raw = excess
        if excess > EXCESS:
            rate, excess = rate * EXCESS / excess, EXCESS
        fit.rate, fit.momentum, fit.excess = rate, beta, excess
        for param, part in zip(moving, weighted, strict=True):
            left = (1 - rate * heat * part).clamp_(min=0) if excess else torch.ones_like(part)
            self.state[param]["shake"] = (left * self.state[param].get("scale", 1.0)).sqrt()


@dataclass
class Fit:
    """What was found so far; plain numbers, saved with the sampler."""

    rate: float = 0.0
    momentum: float = 0.0
    curvature: float = 0.0
    excess: float = 0.0
    raw: float = 0.0
    limit: float = math.inf
    halvings: int = 0
    start: float = 0.0
    now: float = 0.0
    seen: int = 0
    totals: list[float] = dataclasses.field(default_factory=list)

    def count(self, total: float, looks: int) -> None:
        """The objective at the start (mean of the first batches) and now (a moving average)."""
        self.seen += 1
        if self.seen <= looks:
            self.start += (total - self.start) / self.seen
        if math.isfinite(total):
            self.now += (total - self.now) / min(self.seen, looks)

    def begin(self, thermal: float) -> None:
        """A new chain: above which objective it has left the region it began in.

        At temperature T a chain of P weights stands about T P / (2 N) above the mode.
        """
        level = torch.tensor(self.totals, dtype=torch.float64)
        self.limit = float(level.mean()) + 5 * (1 + thermal) + 10 * float(level.std())
        self.curvature = 0.0

    def warn_if_nothing_was_learned(self, name: str) -> None:
        """Of the whole run, in its last step."""
        if not self.now < self.start:
            warnings.warn(
                f"{name}: the objective began at {self.start:.3g} and ended at {self.now:.3g}: nothing was learned; "
                "look at the data and their scale, or train for more epochs",
                BayeswellWarning, stacklevel=6,
            )  # fmt: skip
