"""Stochastic gradient Hamiltonian Monte Carlo: Langevin dynamics with momentum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import check_choice
from ..core.protocols import OptimizerContext
from ..optim.torch_optimizers import check_below_one, check_positive
from .adaptation import AutoTunedSampler, one_chain
from .sampler import Sampler, SamplerPart, gradients


class SGHMCSampler(Sampler):
    """State of a parameter: ``velocity``, zero before the first step."""

    def update(self, group: dict[str, Any], params: list[Tensor], lr: float, noise: list[Tensor] | None) -> None:
        velocity = [self.state[p].setdefault("velocity", torch.zeros_like(p)) for p in params]
        momentum, euler = group["momentum"], group["integrator"] == "euler"
        variance = lr * group["temperature"] / group["dataset_size"]
        variance *= 2 * (1 - momentum) if euler else 1 - momentum**2
        if not euler:
            torch._foreach_add_(velocity, gradients(params), alpha=-lr)
            torch._foreach_add_(params, velocity, alpha=0.5)
        torch._foreach_mul_(velocity, momentum)
        if euler:
            torch._foreach_add_(velocity, gradients(params), alpha=-lr)
        if noise is not None:
            torch._foreach_add_(velocity, noise, alpha=math.sqrt(variance))
        torch._foreach_add_(params, velocity, alpha=1.0 if euler else 0.5)

    def measure(self) -> None:
        """Measure the kinetic temperature before a step.

        N E[v^2] / lr is T for ``baoab``; gradient noise of variance c^2 adds N lr c^2 beta^2 / (1 - beta^2) to it, and
        N lr c^2 (1 + beta) / (4 (1 - beta)) to the temperature of the weights. For ``euler`` N E[v^2] (1 + beta) /
        (2 lr) has the temperature of the weights to first order in lr.
        """
        states = [self.state[p] for p in self.drawn() if "velocity" in self.state.get(p, {})]
        group = next((group for group in self.param_groups if group["noise"]), self.param_groups[0])
        lr, beta, asked = group["lr"] * self.lr_factor(), group["momentum"], group["temperature"]
        if not states or lr == 0:
            return
        square = sum(float(state["velocity"].square().sum()) for state in states)
        found = group["dataset_size"] * square / (lr * sum(state["velocity"].numel() for state in states))
        if group["integrator"] == "euler":
            self.estimate.add(found * (1 + beta) / 2)
        elif beta > 0:
            self.estimate.add(asked + (found - asked) * (1 + beta) ** 2 / (4 * beta**2))


@dataclass(frozen=True)
class SGHMC(SamplerPart):
    """Langevin steps with momentum: crosses narrow valleys faster than ``sgld`` for the same bias.

    With g the gradient of ``total`` = -log joint / N, beta the momentum, xi ~ N(0, I), and v in units of w:

    - ``euler`` (Chen et al. 2014, equation 15, without their estimate of the gradient noise):
      v <- beta v - lr g + sqrt(2 (1 - beta) lr T / N) xi;  w <- w + v.
    - ``baoab`` (Leimkuhler & Matthews 2013): v' = v - lr g;  v <- beta v' + sqrt((1 - beta^2) lr T / N) xi;
      w <- w + (v' + v) / 2.

    beta = 0 with ``euler`` is ``sgld``, with ``baoab`` it is Leimkuhler & Matthews' step of two noises at lr/2;
    beta > 0 moves like ``sgld`` at the rate lr / (1 - beta). Where the posterior is Gaussian with precision lam,
    k = lr lam / N, the variance of w is

    - ``euler``: (T/lam) / (1 - k / (2 (1 + beta))), stable for k < 2 (1 + beta): first order in lr, but at the speed of
      ``sgld`` only (1 - beta) / (1 + beta) of its bias;
    - ``baoab``: T/lam exactly, stable for k < 4, hence the default.

    Gradient noise of variance c^2 adds lr c^2 N / (2 (1 - beta) lam) to first order (``baoab``: (1 + beta) / 2 of it).
    No integrator removes that: with small batches the chain is hot, see ``measured_temperature``.

    ``lr`` None fits learning rate and momentum while training (``AutoTunedSampler``).
    """

    lr: float | None = 0.01
    momentum: float = 0.9
    integrator: str = "baoab"

    name: ClassVar[str] = "sghmc"
    paper: ClassVar[str] = "Chen et al. 2014; Leimkuhler & Matthews 2013"

    def __post_init__(self) -> None:
        check_positive(self, "lr")
        check_below_one(self, "momentum")
        check_choice(self.name, "integrator", self.integrator, ("euler", "baoab"))

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Sampler:
        if self.lr is None:
            return AutoTunedSampler(groups, context, one_chain(context.total_steps), 0.5, momentum=True)
        return SGHMCSampler(groups, {"lr": self.lr, "momentum": self.momentum, "integrator": self.integrator}, context)
