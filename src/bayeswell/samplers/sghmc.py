"""Stochastic gradient Hamiltonian Monte Carlo: Langevin dynamics with momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import SettingError, nearest
from ..native import hamiltonian_step
from .fitting import Dynamics, FittedSampler
from .plans import one_chain
from .rates import polynomial_or_constant
from .stepping import Sampler, SamplerPart, require_settings

INTEGRATORS = ("euler", "baoab")


class SGHMCSampler(Sampler):
    """State of each parameter: ``velocity``, at rest before the first step."""

    name = "sghmc"

    def propose(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """One step of the chosen integrator."""
        momentum, std = group["momentum"], _noise_std(group, lr)
        velocity = self._memory(params, "velocity")
        if group["integrator"] == "euler":
            moved = list(torch._foreach_mul(velocity, momentum))
            torch._foreach_add_(moved, grads, alpha=-lr)
            if noise is not None:
                torch._foreach_add_(moved, noise, alpha=std)
            return list(torch._foreach_add(params, moved)), {"velocity": moved}
        kicked = torch._foreach_add(velocity, grads, alpha=-lr)
        moved = list(torch._foreach_mul(kicked, momentum))
        if noise is not None:
            torch._foreach_add_(moved, noise, alpha=std)
        values = list(torch._foreach_add(params, kicked, alpha=0.5))
        torch._foreach_add_(values, moved, alpha=0.5)
        return values, {"velocity": moved}

    def memories(self, param: Tensor) -> list[Tensor]:
        """The velocity, once there is one."""
        state = self.state.get(param, {})
        return [state["velocity"]] if "velocity" in state else []

    def factors(self, group: dict[str, Any], lr: float) -> tuple[float, ...]:
        """Of the gradient and of the noise."""
        return lr, _noise_std(group, lr)

    def move(self, group: dict[str, Any], param: Tensor, lr: float, key: int | None) -> None:
        """The same in place."""
        assert param.grad is not None
        hamiltonian_step(
            key, param, param.grad, self._own(param, "velocity"), split=group["integrator"] == "baoab",
            momentum=group["momentum"], rate=lr, scale=_noise_std(group, lr),
        )  # fmt: skip


def _noise_std(group: dict[str, Any], lr: float) -> float:
    """Of what a step adds to the velocity."""
    momentum, variance = group["momentum"], lr * group["temperature"] / group["dataset_size"]
    return math.sqrt((2 * (1 - momentum) if group["integrator"] == "euler" else 1 - momentum**2) * variance)


@dataclass(frozen=True)
class SGHMC(SamplerPart):
    """Langevin steps with momentum: crosses narrow valleys faster than ``sgld`` for the same bias.

    With g the gradient of ``total`` = -log joint / N, beta the momentum, xi ~ N(0, I), and v in units of w:

    - ``euler`` (Chen et al. 2014, equation 15, without their estimate of the gradient noise):
      v <- beta v - lr g + sqrt(2 (1 - beta) lr T / N) xi;  w <- w + v.
    - ``baoab`` (Leimkuhler & Matthews 2013): v' = v - lr g;  v <- beta v' + sqrt((1 - beta^2) lr T / N) xi;
      w <- w + (v' + v) / 2. The same cost: one gradient and one noise vector for each step.

    beta = 0 with ``euler`` is ``sgld``, with ``baoab`` it is Leimkuhler & Matthews' step of two noises at lr/2;
    beta > 0 moves like ``sgld`` at the rate lr / (1 - beta). Where the posterior is Gaussian with precision lam,
    k = lr lam / N, the variance of w is

    - ``euler``: (T/lam) / (1 - k / (2 (1 + beta))), stable for k < 2 (1 + beta): first order in lr, but at the speed of
      ``sgld`` only (1 - beta) / (1 + beta) of its bias;
    - ``baoab``: T/lam exactly, stable for k < 4. On a log-cosh posterior at k = 0.8 its variance was off by less than
      0.3 percent (``euler``: 23 to 46), hence the default.

    Gradient noise of variance c^2 adds lr c^2 N / (2 (1 - beta) lam) to first order (``baoab``: (1 + beta) / 2 of it,
    as of its speed); no integrator removes that, so ``baoab`` pays where batches are large.

    ``gamma`` and ``b`` as in ``sgld``. Parameters without noise take steps with momentum.

    ``lr`` None fits the rate to the problem while training, weight by weight, and the momentum to the number of steps
    (``fitting.FittedSampler``); the other settings have no use then.
    """

    lr: float | None = 0.01
    temperature: float = 1.0
    momentum: float = 0.9
    integrator: str = "baoab"
    gamma: float | None = None
    b: float = 1000.0

    name: ClassVar[str] = "sghmc"
    paper: ClassVar[str] = "Chen et al. 2014; Leimkuhler & Matthews 2013"

    def __post_init__(self) -> None:
        require_settings(self.name, self.lr, self.temperature)
        polynomial_or_constant(self.name, self.gamma, self.b)
        if not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            raise SettingError(f"{self.name}: momentum = {self.momentum!r}; it must lie in [0, 1)")
        if self.integrator not in INTEGRATORS:
            raise SettingError(
                f"{self.name}: unknown integrator {self.integrator!r}; {nearest(str(self.integrator), INTEGRATORS)}"
            )

    def build(
        self, params: ParamsT, dataset_size: int, generator: torch.Generator, total_steps: int | None = None
    ) -> Sampler:
        """The optimizer."""
        if self.lr is None:
            given = {"temperature": self.temperature, "dataset_size": dataset_size}
            return FittedSampler(
                self.name, params, given, one_chain(self.name, total_steps), Dynamics(0.5, momentum=True), generator
            )
        settings = {
            "lr": self.lr,
            "temperature": self.temperature,
            "dataset_size": dataset_size,
            "momentum": self.momentum,
            "integrator": self.integrator,
        }
        return SGHMCSampler(params, settings, polynomial_or_constant(self.name, self.gamma, self.b), generator)
