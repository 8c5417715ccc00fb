"""AdaBound and AMSBound: Adam with learning rates clipped to bounds that approach those of SGD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..core.protocols import OptimizerContext, OptimizerPart
from .torch_optimizers import GradientOptimizer, check_below_one, check_positive


def lr_bounds(step: int, final_lr: float, gamma: float) -> tuple[float, float]:
    """Return the lowest and highest learning rate of a weight in this step, counted from 1.

    lowest = final_lr (1 - 1 / (gamma t + 1)), highest = final_lr (1 + 1 / (gamma t)).
    """
    time = gamma * step
    return final_lr * time / (time + 1), final_lr * (time + 1) / time if time > 0 else math.inf


class AdaBoundOptimizer(GradientOptimizer):
    """AdaBound and AMSBound (Luo et al. 2019) as torch optimizers.

    With m and v the moving averages of g and g^2 (betas b1, b2) and t the step count of the parameter::

        rate = lr sqrt(1 - b2^t) / (1 - b1^t) / (sqrt(v) + eps)      # Adam's
        w <- w - clip(rate, lowest, highest) m                       # see lr_bounds

    AMSBound has the running maximum of v in place of v. The bounds are scaled by lr / base_lr, so that a schedule
    still acts once they have closed. gamma = 0 is Adam. t -> inf is SGD with learning rate final_lr on the average m,
    that is heavy-ball momentum b1 with learning rate final_lr (1 - b1).

    This is the authors' code. Their paper, and the thesis' eq. (C.0.8), have gamma = 1 - b2, and the paper divides lr
    by sqrt(t); the thesis' table 3.1 clips 1/sqrt(v) without lr. ``weight_decay`` is an L2 penalty.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], part: AdaBound) -> None:
        super().__init__([dict(group) for group in groups], {**vars(part), "amsbound": part.amsbound})
        for group in self.param_groups:
            group.setdefault("base_lr", group["lr"])

    def update(self, found: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]]) -> None:
        for group, params, grads in found:
            self._move(group, params, grads)

    def _move(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        states = [self._state(parameter, group["amsbound"]) for parameter in params]
        beta1, beta2 = group["betas"]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        if group["amsbound"]:
            largest = [state["max_exp_avg_sq"] for state in states]
            torch._foreach_maximum_(largest, squares)
            squares = largest
        denominators = list(torch._foreach_sqrt(squares))
        torch._foreach_add_(denominators, group["eps"])
        # With s = lr correction, clip(s / d, lo, hi) = s / clip(d, s / hi, s / lo): two passes fewer.
        rates, floors, ceilings = zip(*(_clips(group, state["step"]) for state in states), strict=True)
        torch._foreach_clamp_min_(denominators, floors)
        torch._foreach_clamp_max_(denominators, ceilings)
        torch._foreach_addcdiv_(params, means, denominators, [-rate for rate in rates])

    def _state(self, parameter: Tensor, amsbound: bool) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            for key in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if amsbound else 2]:
                state[key] = torch.zeros_like(parameter)
        state["step"] += 1
        return state


def _clips(group: dict[str, Any], step: int) -> tuple[float, float, float]:
    """Return s = lr correction, and the bounds of the denominator."""
    beta1, beta2 = group["betas"]
    correction = math.sqrt(1 - beta2**step) / (1 - beta1**step)
    lowest, highest = lr_bounds(step, group["final_lr"] / group["base_lr"], group["gamma"])
    return group["lr"] * correction, correction / highest, correction / lowest if lowest > 0 else math.inf


@dataclass(frozen=True)
class AdaBound(OptimizerPart):
    """Adam at first, SGD in the end: learning rates are clipped to bounds that close in on ``final_lr``.

    w <- w - clip(lr_t / (sqrt(v) + eps), lowest_t, highest_t) m; the equations are at ``AdaBoundOptimizer``. With the
    defaults the bounds are [0.05, 0.2] after 1000 steps, so ``final_lr`` and the scale of the loss matter most.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    final_lr: float = 0.1
    gamma: float = 1e-3
    eps: float = 1e-8
    weight_decay: float = 0.0

    name: ClassVar[str] = "adabound"
    paper: ClassVar[str] = "Luo et al. 2019; Book 2020, appendix C"
    amsbound: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive(self, "lr", "final_lr")
        check_below_one(self, "gamma")
        object.__setattr__(self, "betas", tuple(self.betas))

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Optimizer:
        return AdaBoundOptimizer(groups, self)


@dataclass(frozen=True)
class AMSBound(AdaBound):
    """AdaBound with the largest second moment so far in place of the present one."""

    name: ClassVar[str] = "amsbound"
    amsbound: ClassVar[bool] = True
