"""Samplers that fit themselves: a descent, a look around, and a chain whose rate follows from what was seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import DivergenceError, FileError, SettingError
from ..finite import all_finite
from .curvature import largest_curvature, row_sizes
from .descent import KEYS, adam_step, unbiased_squares
from .findings import Findings
from .plans import DESCEND, DRAW, LOOK, Plan, descent_rate
from .stepping import Sampler

HOTTEST = 0.5
"""Minibatch noise may add so much to the temperature: at temperature 1, stds are at most 1.22 times too wide."""

DAMPING = 0.03
"""Of the preconditioner, relative to its root mean square: weights that hardly matter now may do so later."""

MEMORIES = 60
MOST_FRICTION, LEAST_FRICTION = 0.2, 0.03
"""1 - momentum of ``sghmc``: so many memories 1 / (1 - momentum) fit into the draws kept, within these bounds."""

LIKELIHOOD_NOISE_FASTER = 5.0
"""A learned noise std has a longer way to go (its log to -3) than weights, in as many steps."""

_ONE_BATCH, _LEAST_CURVATURE, _MOST_RETREATS = 1e-6, 1e-30, 20


@dataclass(frozen=True)
class Dynamics:
    """What a fitted chain is made of: ``reach`` is lr times the largest curvature (stable on a quadratic below 4)."""

    reach: float
    preconditioned: bool = True
    momentum: bool = False


class FittedSampler(Sampler):
    """A sampler whose rate was left open (lr None). Along a ``Plan`` it

    - descends without noise, by Adam, to where the posterior is;
    - stands still for some batches and looks how much their gradients differ;
    - takes a preconditioner G from the descent (scale-adapted SGHMC, Springenberg et al. 2016), ``lr`` = reach /
      (largest eigenvalue of G^1/2 H G^1/2) from power iteration on the curvature H, and in burn-in the smallest such
      rate at several places; lower still if minibatch noise would heat the chain by more than ``HOTTEST``;
    - draws by BAOAB, as ``sghmc``, with lr G in place of lr; momentum 0 makes it the Langevin step of Leimkuhler &
      Matthews 2013, which is exact on quadratics where Euler's ``sgld`` is not.

    From the first draw that may be kept on, all of it is fixed, so that the chain's law is the posterior's. A step in
    burn-in after which the objective is far above where the descent ended, or not finite, is undone: the chain goes
    back to the end of the descent, at half the rate. Parameters without noise move by Adam all the time.

    ``lr`` of a group is a factor on the fitted rate. We leave out Chen et al.'s (2014) correction of the injected noise
    for that of minibatches: over an epoch their gradients sum up to the full one, so slow directions feel far less
    than the variance of one batch, and correcting for it left stds of 0.4 of the right ones.
    """

    def __init__(
        self, name: str, params: ParamsT, settings: dict[str, Any], plan: Plan, dynamics: Dynamics,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.name = name
        self.plan, self.dynamics = plan, dynamics
        self.fit = Findings()
        super().__init__(params, {**settings, "lr": 1.0}, plan, generator)

    def learning_rates(self) -> list[float]:
        """The fitted rate for weights in a chain, else Adam's."""
        drawing = self.plan.stage(self.steps) == DRAW
        return [group["lr"] * self._rate(group, drawing) for group in self.param_groups]

    def _rate(self, group: dict[str, Any], drawing: bool) -> float:
        descent = descent_rate(self.plan.length)
        if not group["noise"]:
            faster = LIKELIHOOD_NOISE_FASTER if group.get("name") == "noise" else 1.0
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
        fit.count(total, max(1, plan.looks))
        stage = plan.stage(step)
        if stage == DESCEND:
            if step and plan.stage(step - 1) == DRAW:
                self._forget()
        elif stage == LOOK:
            self._look(total, first=step == plan.first_look(step))
        else:
            if plan.measures(step):
                if step == plan.first_draw(step):
                    self._begin_chain(gradient)
                self._measure(gradient)
            fine = total <= fit.limit and all_finite(p.grad for p in self._drawn() if p.grad is not None)
            if not fine and self.retreat():
                return False
        if step == plan.first_kept(0):
            fit.warn_of_heat(self.name, self.param_groups[0]["temperature"])
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
        self.plan, self.fit = Plan(**state_dict["plan"]), Findings(**state_dict["fit"])
        self.rate = self.plan

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "plan": self.plan,
            "dynamics": self.dynamics,
            "fit": self.fit,
            "name": self.name,
        }

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
