"""Samplers that fit themselves: a descent, a look around, and a chain whose rate follows from what was seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import DivergenceError, FileError, SettingError
from ..finite import all_finite
from .descent import adam_step
from .findings import Findings
from .fitted_chain import Dynamics, FittedChain
from .plans import DESCEND, DRAW, LOOK, Plan, descent_rate

LIKELIHOOD_NOISE_FASTER = 10.0
"""A learned noise std has a longer way to go (its log to -3) than weights, in as many steps; as in other methods."""

_MOST_RETREATS = 20


class FittedSampler(FittedChain):
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

    finds_temperature: bool = False
    """Whether the run finds its temperature by itself: then nobody has asked for that of the first step."""

    def rates_at(self, step: int) -> list[float]:
        """The fitted rate for weights in a chain, else Adam's."""
        return [group["lr"] * self._rate(group, step) for group in self.param_groups]

    def _rate(self, group: dict[str, Any], step: int) -> float:
        descent = descent_rate(self.plan.length)
        if not group["noise"]:
            faster = LIKELIHOOD_NOISE_FASTER if group.get("name") == "noise" else 1.0
            return faster * descent * self.plan.factor_without_noise(step)
        return (self.fit.rate if self.plan.stage(step) == DRAW else descent) * self.plan.factor(step)

    def collects(self, step: int) -> bool:
        """Whether the weights after this step are a draw."""
        return self.plan.collects(step)

    def observe(self, total: float, gradient: Callable[[], None]) -> bool:
        """Look at the objective and the gradient before a step; False if the step is not to be taken.

        ``gradient()`` puts the gradient of the same batch at whatever the parameters then are into their ``.grad``.
        """
        step, plan, fit = self.steps, self.plan, self.fit
        fit.count(total, max(1, plan.looks))
        if step == 0 and not self.finds_temperature:
            fit.asked = self.param_groups[0]["temperature"]
        stage = plan.stage(step)
        if stage == DESCEND:
            if step and plan.stage(step - 1) == DRAW:
                self._forget()
        elif stage == LOOK:
            self._look(total, first=step == plan.first_look(step))
        else:
            if plan.measures(step):
                # The probes put gradients at displaced weights into every parameter; the step is to be taken with
                # those that were met, also by what is no draw (learned noise).
                every = [param for group in self.param_groups for param in group["params"]]
                met = [param.grad for param in every]
                if step == plan.first_draw(step):
                    self._begin_chain(gradient)
                self._measure(gradient)
                for param, grad in zip(every, met, strict=True):
                    param.grad = grad
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
            "finds_temperature": self.finds_temperature,
        }

    def _forget(self) -> None:
        """Of the chain that has ended, as the next cycle begins."""
        for param in self._drawn():
            self.state[param] = {}


__all__ = ["Dynamics", "FittedSampler"]
