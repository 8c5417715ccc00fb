"""Stochastic gradient Langevin dynamics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import SettingError
from ..native import langevin_step
from .fitting import Dynamics, FittedSampler
from .plans import one_chain
from .rates import polynomial_or_constant
from .stepping import Sampler, SamplerPart, langevin_noise_std, require_settings


class SGLDSampler(Sampler):
    """w <- w - lr g + sqrt(2 lr T / N) xi; no state but the step count and the generator."""

    name = "sgld"

    def propose(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """A gradient step, and noise if there is any."""
        if noise is None:
            return list(torch._foreach_add(params, grads, alpha=-lr)), {}
        torch._foreach_mul_(noise, langevin_noise_std(group, lr))
        torch._foreach_add_(noise, grads, alpha=-lr)
        torch._foreach_add_(noise, params)
        return noise, {}

    def factors(self, group: dict[str, Any], lr: float) -> tuple[float, ...]:
        """Of the gradient and of the noise."""
        return lr, langevin_noise_std(group, lr)

    def move(self, group: dict[str, Any], param: Tensor, lr: float, key: int | None) -> None:
        """The same in place."""
        assert param.grad is not None
        langevin_step(key, param, param.grad, lr, langevin_noise_std(group, lr))


class MomentumSGLDSampler(SGLDSampler):
    """SGD with momentum, and noise beside it: state of each parameter is the ``velocity``, which sees no noise."""

    def propose(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """v <- momentum v + g; w <- w - lr v, and noise if there is any."""
        velocity = list(torch._foreach_mul(self._memory(params, "velocity"), group["momentum"]))
        torch._foreach_add_(velocity, grads)
        values = list(torch._foreach_add(params, velocity, alpha=-lr))
        if noise is not None:
            torch._foreach_add_(values, noise, alpha=self.factors(group, lr)[1])
        return values, {"velocity": velocity}

    def factors(self, group: dict[str, Any], lr: float) -> tuple[float, ...]:
        """Of the gradient and of the noise."""
        return lr, langevin_noise_std(group, lr) / math.sqrt(1 - group["momentum"])

    def _is_safe(self, group: dict[str, Any], param: Tensor, lr: float) -> bool:
        """No compiled step has a velocity without noise."""
        return False


@dataclass(frozen=True)
class SGLD(SamplerPart):
    """Langevin steps: SGD with just enough noise to draw from the posterior.

    w <- w - lr g + sqrt(2 lr T / N) xi, xi ~ N(0, I), g the gradient of ``total`` = -log joint / N on a batch: Welling
    & Teh's equation 4 with eps = 2 lr / N. Targets joint^(1/T); with T as the objective's temperature too,
    likelihood^(1/T) x prior.
    ``gamma`` None keeps ``lr`` constant, else lr_t = lr (1 + t/b)^-gamma, the paper's a (b + t)^-gamma with
    a = lr b^gamma. Draws of a decaying run count alike in a bank, not by lr_t as in the paper.

    Where the posterior is Gaussian with precision lam the chain has variance (T/lam) / (1 - k/2), k = lr lam / N, and
    is stable for k < 2. Gradient noise of variance c^2 makes that (T/lam + lr c^2 N / (2 lam)) / (1 - k/2): both
    biases are of first order in lr, and the second is the larger one for small batches.

    ``momentum`` m > 0 is the step of flat-seeking SGLD (Nguyen et al. 2023), SGD with momentum and noise beside it:

        v <- m v + g;   w <- w - lr v + sqrt(2 lr T / ((1 - m) N)) xi.

    We differ: the noise has the size that momentum, which moves as a rate of lr / (1 - m) does, asks for. (Theirs falls
    by a schedule of its own; with the noise of m = 0 the chain would have the temperature (1 - m) T.) Its variance is
    (T/lam) (1 + 2 m k / ((1 + m) (1 - m)^2)) / (1 - k / (2 (1 + m))): at the same speed a bias some 4 m / (1 - m^2)
    times that of m = 0. To draw with momentum take ``sghmc``, whose velocity has the noise in it.

    ``lr`` None fits the rate to the problem while training (``fitting.FittedSampler``); ``gamma`` has no use then.
    """

    lr: float | None = 0.05
    temperature: float = 1.0
    gamma: float | None = None
    b: float = 1000.0
    momentum: float = 0.0

    name: ClassVar[str] = "sgld"
    paper: ClassVar[str] = "Welling & Teh 2011"

    def __post_init__(self) -> None:
        require_settings(self.name, self.lr, self.temperature)
        polynomial_or_constant(self.name, self.gamma, self.b)
        if not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            raise SettingError(f"{self.name}: momentum = {self.momentum!r}; it must lie in [0, 1)")
        if self.momentum and self.lr is None:
            raise SettingError(
                f"{self.name}: momentum = {self.momentum!r} needs a number for lr; sampler 'sghmc' fits both"
            )

    def build(
        self, params: ParamsT, dataset_size: int, generator: torch.Generator, total_steps: int | None = None
    ) -> Sampler:
        """The optimizer."""
        if self.lr is None:
            given = {"temperature": self.temperature, "dataset_size": dataset_size}
            return FittedSampler(
                self.name,
                params,
                given,
                one_chain(self.name, total_steps),
                Dynamics(1.5, preconditioned=False),
                generator,
            )
        settings = {"lr": self.lr, "temperature": self.temperature, "dataset_size": dataset_size}
        if self.momentum:
            settings["momentum"] = self.momentum
            rate = polynomial_or_constant(self.name, self.gamma, self.b)
            return MomentumSGLDSampler(params, settings, rate, generator)
        return SGLDSampler(params, settings, polynomial_or_constant(self.name, self.gamma, self.b), generator)
