"""torch's own optimizers by name, in their fused form where the device has one.

``weight_decay`` is an L2 penalty in all but AdamW. The prior is already in the objective, so a Bayesian network
needs none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..eager import eager
from ..errors import SettingError, require_positive
from ..types import ParamGroups, Stepper
from .checks import BETAS, Betas, checked_betas, fused_for, own, require_at_least_zero, require_below_one


def _ready(param_groups: ParamGroups) -> tuple[list[dict[str, Any]], bool | None]:
    """The groups, their parameters as lists, and whether fused kernels take them."""
    groups = own(param_groups)
    for group in groups:
        params: Tensor | Iterable[Any] = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
    return groups, fused_for([parameter for group in groups for parameter in group["params"]])


@dataclass(frozen=True)
class SGD(Stepper):
    """Stochastic gradient descent with momentum: m <- momentum m + g; w <- w - lr m.

    torch keeps lr outside the buffer; the thesis (3.1.2) has it inside, which is the same for a constant lr. The
    steady step is lr / (1 - momentum) times the gradient.
    """

    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    name: ClassVar[str] = "sgd"
    paper: ClassVar[str] = "Robbins & Monro 1951; Polyak 1964"

    def __post_init__(self) -> None:
        require_positive(self.name, "lr", self.lr)
        require_below_one(self.name, "momentum", self.momentum)
        require_at_least_zero(self.name, "weight_decay", self.weight_decay)
        if self.nesterov and self.momentum == 0:
            raise SettingError("sgd: nesterov = True needs a momentum above 0; it is 0")

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        groups, fused = _ready(param_groups)
        return eager(torch.optim.SGD)(groups, **vars(self), fused=fused)


def rate_for(total_steps: int) -> float:
    """The learning rate of Adam for a run of so many steps: 0.4 / sqrt(steps), at most 0.01.

    Along a decaying schedule a weight can travel about lr * steps / 2: a short run needs large steps to get anywhere at
    all, a long one can afford small ones. 0.01 up to 1,600 steps, 0.005 at 6,400, 0.001 at 160,000.
    """
    return min(0.01, 0.4 / math.sqrt(total_steps))


@dataclass(frozen=True)
class Adam(Stepper):
    """Rates scaled by the root of the second moment: w <- w - lr m^ / (sqrt(v^) + eps).

    m^ and v^ are the moving averages of g and g^2, debiased. No weight moves by much more than lr in a step.

    ``lr`` None fits the length of the run: 0.4 / sqrt(steps), at most 0.01 (``rate_for``; a method at a given
    temperature of 0.1 or more plans 0.6 / sqrt(steps) for posteriors with stds). Without a plan (``build`` alone) it is
    torch's 0.001. In tables of settings (``stepper={"name": "adam", "beta2": 0.99}``, TOML, ``--set
    stepper.beta2=0.99``) ``beta1`` and ``beta2`` set one of the ``betas``.
    """

    lr: float | None = None
    betas: Betas = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    name: ClassVar[str] = "adam"
    paper: ClassVar[str] = "Kingma & Ba 2015"
    step_bound: ClassVar[float | None] = 1.0
    elements: ClassVar[Mapping[str, tuple[str, int]]] = BETAS

    def __post_init__(self) -> None:
        if self.lr is not None:
            require_positive(self.name, "lr", self.lr)
        object.__setattr__(self, "betas", checked_betas(self.name, self.betas))
        require_at_least_zero(self.name, "eps", self.eps)
        require_at_least_zero(self.name, "weight_decay", self.weight_decay)

    def planned(self, total_steps: int) -> Adam:
        """With the rate that fits so many steps, unless it has one."""
        return self if self.lr is not None else dataclasses.replace(self, lr=rate_for(total_steps))

    def _settings(self) -> dict[str, Any]:
        return {**vars(self), "lr": 1e-3 if self.lr is None else self.lr}

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        groups, fused = _ready(param_groups)
        return eager(torch.optim.Adam)(groups, **self._settings(), fused=fused)


@dataclass(frozen=True)
class AMSGrad(Adam):
    """Adam with the largest second moment so far in place of the present one.

    torch takes the maximum of v and debiases after it; Reddi et al. do not debias.
    """

    name: ClassVar[str] = "amsgrad"
    paper: ClassVar[str] = "Reddi et al. 2018"

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        groups, fused = _ready(param_groups)
        return eager(torch.optim.Adam)(groups, **self._settings(), amsgrad=True, fused=fused)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: w <- (1 - lr weight_decay) w before the step.

    The decay is torch's default. A network with a prior does not need it, and it would pull a log std towards 0.
    """

    weight_decay: float = 0.01

    name: ClassVar[str] = "adamw"
    paper: ClassVar[str] = "Loshchilov & Hutter 2019"

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        groups, fused = _ready(param_groups)
        return eager(torch.optim.AdamW)(groups, **self._settings(), fused=fused)


@dataclass(frozen=True)
class RAdam(Adam):
    """Adam that waits with its second moment until the variance of its rate is known to be finite.

    rho_t = rho_inf - 2 t b2^t / (1 - b2^t), rho_inf = 2 / (1 - b2) - 1. torch rectifies where rho_t > 5: with
    b2 = 0.999 from step 6 on (the paper's threshold of 4 would be step 5). Before that it steps by lr m^, plain
    SGD on the debiased average, as the authors' first releases did; their later ones make no step at all. So the
    first five steps scale with the gradient: keep lr |g| small. torch has no fused form.
    """

    name: ClassVar[str] = "radam"
    paper: ClassVar[str] = "Liu et al. 2020"

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        return eager(torch.optim.RAdam)(own(param_groups), **self._settings())
