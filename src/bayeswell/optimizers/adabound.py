"""AdaBound and AMSBound: Adam whose rate of each weight is clipped to bounds that close in on SGD's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from ..errors import require_positive
from ..native import bounded_step
from ..types import ParamGroups, Stepper
from .checks import BETAS, Betas, checked_betas, own, require_at_least_zero, require_below_one
from .stepping import Columns, DenseOptimizer, Group, cache_blocks, decayed, gradients, mark_changed, shared_out


def rate_bounds(step: int, final_lr: float, gamma: float) -> tuple[float, float]:
    """Lowest and highest rate of a weight in this step (counted from 1).

    lowest = final_lr (1 - 1 / (gamma t + 1)), highest = final_lr (1 + 1 / (gamma t)): from (0, inf) to
    (final_lr, final_lr).
    """
    time = gamma * step
    return final_lr * time / (time + 1), final_lr * (time + 1) / time if time > 0 else math.inf


class AdaBoundOptimizer(DenseOptimizer):
    """AdaBound (Luo et al. 2019) as a torch optimizer; ``amsbound`` makes it AMSBound.

    With m and v the moving averages of g and g^2 (betas b1, b2) and t the parameter's own step count::

        rate = lr sqrt(1 - b2^t) / (1 - b1^t) / (sqrt(v) + eps)      # Adam's
        w <- w - clip(rate, lowest, highest) m                       # see rate_bounds

    AMSBound has the running maximum of v in place of v. The bounds are scaled by lr / base_lr, base_lr being
    the group's lr at construction, so that a schedule on ``lr`` also acts once the bounds have closed.
    gamma = 0 is Adam; t -> inf is SGD with rate final_lr on the average m, that is heavy-ball momentum b1 with
    rate final_lr (1 - b1).

    This is the authors' code. Their paper, and the thesis' eq. (C.0.8), have gamma = 1 - b2, and the paper
    divides lr by sqrt(t); the thesis' table 3.1 clips 1/sqrt(v) without lr. Unlike the authors' code base_lr
    and step counts survive a state dict, and gamma = 0 is allowed. ``weight_decay`` is an L2 penalty: it enters
    the gradient.
    """

    label: ClassVar[str] = "adabound"

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, betas: Betas = (0.9, 0.999), final_lr: float = 0.1,
        gamma: float = 1e-3, eps: float = 1e-8, weight_decay: float = 0.0, amsbound: bool = False,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "betas": betas, "final_lr": final_lr, "gamma": gamma, "eps": eps,
            "weight_decay": weight_decay, "amsbound": amsbound,
        }  # fmt: skip
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its lr now is what later values are compared with."""
        settings = {**self.defaults, **param_group}
        _check("amsbound" if settings["amsbound"] else "adabound", settings)
        param_group.setdefault("base_lr", settings["lr"])
        super().add_param_group(param_group)

    def update(self, found: list[tuple[Group, list[Tensor]]]) -> None:
        """One step of every group."""
        for group, params in found:
            alike: dict[tuple[int, torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
            for parameter in params:
                alike[self._count(parameter, group), parameter.device, parameter.dtype].append(parameter)
            for (step, _, _), members in alike.items():
                self._move(group, step, members)

    def _count(self, parameter: Tensor, group: Group) -> int:
        """The number of this step for the parameter, from 1; its state is made in the first."""
        state = self.state[parameter]
        if not state:
            # A plain int: exact (torch's float32 count stops at 2^24), and no tensor operation for each parameter.
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
            if group["amsbound"]:
                state["max_exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return int(state["step"])

    def _move(self, group: Group, step: int, params: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        correction = math.sqrt(1 - beta2**step) / (1 - beta1**step)
        # Clipping the rate is clipping the denominator, which saves two passes: with s = lr correction,
        # clip(s / d, lo, hi) = s / clip(d, s / hi, s / lo). s and the bounds both carry lr: it cancels.
        slowest, fastest = rate_bounds(step, group["final_lr"] / group["base_lr"], group["gamma"])
        floor = correction / fastest
        ceiling = correction / slowest if slowest > 0 else math.inf
        states = [self.state[parameter] for parameter in params]
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsbound"] else [])]
        moments = [[state[name] for state in states] for name in names]
        compiled, others = shared_out([params, gradients(params), *moments])
        rate = group["lr"] * correction
        if compiled is not None:
            bounded_step(
                compiled, largest=group["amsbound"], decay=group["weight_decay"], betas=(beta1, beta2),
                eps=group["eps"], floor=floor, ceiling=ceiling, rate=rate,
            )  # fmt: skip
            mark_changed(compiled.columns[0])
        if others[0]:
            self._move_by_torch(group, others, floor, ceiling, rate)

    def _move_by_torch(self, group: Group, columns: Columns, floor: float, ceiling: float, rate: float) -> None:
        (params, raw, *moments), (beta1, beta2) = columns, group["betas"]
        for weights, grads, means, squares, *largest in cache_blocks(params, decayed(group, params, raw), *moments):
            torch._foreach_lerp_(means, grads, 1 - beta1)
            torch._foreach_mul_(squares, beta2)
            torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
            if largest:
                torch._foreach_maximum_(largest[0], squares)
            denominators = torch._foreach_sqrt(largest[0] if largest else squares)
            torch._foreach_add_(denominators, group["eps"])
            if floor > 0:
                torch._foreach_clamp_min_(denominators, floor)
            if ceiling < math.inf:
                torch._foreach_clamp_max_(denominators, ceiling)
            torch._foreach_addcdiv_(weights, means, denominators, -rate)


def _check(owner: str, settings: dict[str, Any]) -> None:
    # base_lr is divided by, so lr starts above zero; a schedule may bring it to zero later.
    for setting in ("lr", "final_lr"):
        require_positive(owner, setting, settings[setting])
    checked_betas(owner, settings["betas"])
    require_below_one(owner, "gamma", settings["gamma"])
    for setting in ("eps", "weight_decay"):
        require_at_least_zero(owner, setting, settings[setting])


@dataclass(frozen=True)
class AdaBound(Stepper):
    """Adam at first, SGD in the end: the rate of each weight is clipped to bounds that close in on final_lr.

    w <- w - clip(lr_t / (sqrt(v) + eps), lowest_t, highest_t) m; equations at ``AdaBoundOptimizer``. With the
    defaults the bounds are [0.05, 0.2] after 1000 steps: what counts is final_lr (and the scale of the loss),
    hardly lr. ``weight_decay`` is L2. ``beta1`` and ``beta2`` as of Adam.
    """

    lr: float = 1e-3
    betas: Betas = (0.9, 0.999)
    final_lr: float = 0.1
    gamma: float = 1e-3
    eps: float = 1e-8
    weight_decay: float = 0.0

    name: ClassVar[str] = "adabound"
    paper: ClassVar[str] = "Luo et al. 2019; Book 2020, appendix C"
    amsbound: ClassVar[bool] = False
    elements: ClassVar[Mapping[str, tuple[str, int]]] = BETAS

    def __post_init__(self) -> None:
        _check(self.name, vars(self))
        object.__setattr__(self, "betas", checked_betas(self.name, self.betas))

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        return AdaBoundOptimizer(own(param_groups), **vars(self), amsbound=self.amsbound)


@dataclass(frozen=True)
class AMSBound(AdaBound):
    """AdaBound with the largest second moment so far in place of the present one, so that Adam's rates only fall."""

    name: ClassVar[str] = "amsbound"
    amsbound: ClassVar[bool] = True
