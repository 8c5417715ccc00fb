"""The base of all samplers: noise from one generator, exact state, and the temperature of the chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..core.protocols import OptimizerContext, OptimizerPart
from ..core.random import standard_normal

_EVERY = 3
"""Steps from one measurement of the temperature to the next."""
_LEAST_MEASURES = 40
_TOO_WIDE = 1.3


@dataclass
class TemperatureEstimate:
    """A running mean in which measurement n of n has weight 4 / (n + 3): the first quarter hardly counts."""

    value: float = 0.0
    count: int = 0

    def gain(self) -> float:
        """Count one more measurement and return its weight."""
        self.count += 1
        return 4 / (self.count + 3)

    def add(self, measured: float) -> None:
        self.value += self.gain() * (measured - self.value)


class SamplerPart(OptimizerPart):
    """The settings of a sampler of exp(-N total / T), where ``total`` is the objective and T the context's temperature.

    With T in the weight of the objective's prior term too, that is exp(-(NLL + prior_weight * -log p(w)) / T). Groups
    with ``noise=False`` (learned noise, parameters without a posterior) are moved without noise.
    """

    samples: ClassVar[bool] = True


class Sampler(Optimizer):
    """A torch optimizer whose steps are a Markov chain; the gradients are those of ``total`` = -log joint / N."""

    def __init__(self, groups: Sequence[dict[str, Any]], settings: dict[str, Any], context: OptimizerContext) -> None:
        target = {"temperature": context.temperature, "dataset_size": context.dataset_size}
        super().__init__([dict(group) for group in groups], {**settings, **target, "noise": True})
        self.generator = context.generator
        self.steps = 0
        self.estimate = TemperatureEstimate()

    def update(self, group: dict[str, Any], params: list[Tensor], lr: float, noise: list[Tensor] | None) -> None:
        """Move the parameters of one group in place; ``noise`` is standard normal and may be overwritten."""
        raise NotImplementedError

    def lr_factor(self) -> float:
        return 1.0

    def adds_noise(self) -> bool:
        """Return whether the next step is one of the chain."""
        return True

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        if not self.adds_noise():
            self.estimate = TemperatureEstimate()
        elif self.steps % _EVERY == 0:
            self.measure()
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            noisy = group["noise"] and group["temperature"] > 0 and self.adds_noise()
            noise = [standard_normal(p.shape, like=p, generator=self.generator) for p in params] if noisy else None
            if params:
                self.update(group, params, group["lr"] * self.lr_factor(), noise)
        self.steps += 1
        return loss

    def measure(self) -> None:
        """Measure T = N E[(w - E w) . g] / P, the virial theorem, before a step.

        Integration by parts gives E[(w - a) . dU/dw] = P T under exp(-U / T), for every constant a. The noise of the
        present batch is independent of w. Directions in which the chain has not mixed count too little.
        """
        drawn = [parameter for parameter in self.drawn() if parameter.grad is not None]
        if not drawn:
            return
        gain, virial = self.estimate.gain(), 0.0
        for parameter in drawn:
            state, (grad,) = self.state[parameter], gradients([parameter])
            if "mean" not in state or gain == 1:
                state["mean"], state["mean_grad"] = parameter.clone(), grad.clone()
                continue
            away, grad_away = parameter - state["mean"], grad - state["mean_grad"]
            virial += float((away * grad_away).sum())
            state["mean"].add_(away, alpha=gain)
            state["mean_grad"].add_(grad_away, alpha=gain)
        group = self.param_groups[0]
        scale = group["dataset_size"] / sum(parameter.numel() for parameter in drawn)
        self.estimate.value = (1 - gain) * (self.estimate.value + gain * scale * virial)

    def measured_temperature(self) -> float | None:
        """Return the chain's temperature; minibatch noise and large steps raise it. None before it is known."""
        return self.estimate.value if self.estimate.count >= _LEAST_MEASURES else None

    def warnings(self) -> list[str]:
        asked, measured = self.param_groups[0]["temperature"], self.measured_temperature()
        if measured is None or asked == 0 or measured < _TOO_WIDE**2 * asked:
            return []
        width = math.sqrt(measured / asked)
        found = f"the chain has temperature {measured:.2g}, not {asked:.2g}: minibatch noise makes the draws about"
        return [f"{found} {width:.2g} times too wide; use a larger batch_size or a smaller lr"]

    def drawn(self) -> list[Tensor]:
        """Return the parameters that are moved with noise."""
        return [parameter for group in self.param_groups if group["noise"] for parameter in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        generator = None if self.generator is None else self.generator.get_state()
        return {**super().state_dict(), "step": self.steps, "generator": generator, "estimate": asdict(self.estimate)}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.steps, self.estimate = int(state_dict["step"]), TemperatureEstimate(**state_dict["estimate"])
        if self.generator is not None and state_dict["generator"] is not None:
            self.generator.set_state(state_dict["generator"].cpu())


def gradients(params: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in params if parameter.grad is not None]


def langevin_std(group: dict[str, Any], lr: float) -> float:
    """sqrt(2 lr T / N): the noise of a Langevin step."""
    return math.sqrt(2 * lr * group["temperature"] / group["dataset_size"])
