"""Stochastic gradient Langevin dynamics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import SettingError
from ..core.protocols import OptimizerContext
from ..optim.torch_optimizers import check_below_one, check_positive
from .adaptation import AutoTunedSampler, one_chain
from .sampler import Sampler, SamplerPart, gradients, langevin_std


class SGLDSampler(Sampler):
    """w <- w - lr g + sqrt(2 lr T / N) xi; with momentum the state of a parameter is ``velocity``."""

    def update(self, group: dict[str, Any], params: list[Tensor], lr: float, noise: list[Tensor] | None) -> None:
        step, momentum = gradients(params), group["momentum"]
        if momentum:
            velocity = [self.state[p].setdefault("velocity", torch.zeros_like(p)) for p in params]
            torch._foreach_mul_(velocity, momentum)
            torch._foreach_add_(velocity, step)
            step = velocity
        torch._foreach_add_(params, step, alpha=-lr)
        if noise is not None:
            torch._foreach_add_(params, noise, alpha=langevin_std(group, lr) / math.sqrt(1 - momentum))


@dataclass(frozen=True)
class SGLD(SamplerPart):
    """Langevin steps: SGD with just enough noise to draw from the posterior.

    w <- w - lr g + sqrt(2 lr T / N) xi, xi ~ N(0, I), g the gradient of ``total`` = -log joint / N on a batch: Welling
    & Teh's equation 4 with eps = 2 lr / N. Their decaying rate is schedule "power" with ``shift=1``. Draws of a
    decaying run count alike in a bank, not by lr_t as in the paper.

    Where the posterior is Gaussian with precision lam the chain has variance (T/lam) / (1 - k/2), k = lr lam / N, and
    is stable for k < 2. Gradient noise of variance c^2 makes that (T/lam + lr c^2 N / (2 lam)) / (1 - k/2): both
    biases are of first order in lr, and the second is the larger one for small batches.

    ``momentum`` m > 0 is the step of flat-seeking SGLD (Nguyen et al. 2023): SGD with momentum, and noise that the
    momentum does not repeat:

        v <- m v + g;   w <- w - lr v + sqrt(2 lr T / ((1 - m) N)) xi.

    We differ: the factor 1 / (1 - m) keeps the temperature at T. (Theirs falls by a schedule; without the factor it
    would be (1 - m) T.) The variance of w is (T/lam) (1 + 2 m k / ((1 + m) (1 - m)^2)) / (1 - k / (2 (1 + m))). At
    the same speed its bias is about 4 m / (1 - m^2) times that of m = 0.

    ``lr`` None fits the learning rate while training (``AutoTunedSampler``).
    """

    lr: float | None = 0.05
    momentum: float = 0.0

    name: ClassVar[str] = "sgld"
    paper: ClassVar[str] = "Welling & Teh 2011"

    def __post_init__(self) -> None:
        check_positive(self, "lr")
        check_below_one(self, "momentum")
        if self.momentum and self.lr is None:
            raise SettingError("sgld: `momentum` needs a number for `lr`, got None; 'sghmc' fits both")

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Sampler:
        if self.lr is None:
            return AutoTunedSampler(groups, context, one_chain(context.total_steps), 1.5, preconditioned=False)
        return SGLDSampler(groups, {"lr": self.lr, "momentum": self.momentum}, context)
