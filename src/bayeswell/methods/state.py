"""The state of one training run: all parts that a step needs, and what is saved to resume exactly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.errors import SettingError, nearest
from ..core.protocols import Averager, AutoTuned, Likelihood, OptimizerPart, PostHocPart, Prior, Progress, Schedule
from ..nn import BayesianModule
from ..objectives import ELBO
from ..optim import Alternating, Plateau, PlateauState, set_lrs
from .method import Method
from .temperature import AutoTemperature

_STD_GROUPS = ("stds", "noise")


@dataclass
class TrainState:
    """The parts of one run. The training loop of one step is::

        state.before_step()                     # learning rates
        terms = state.objective.step(state.model, batch)
        terms.total.backward()
        state.after_backward()                  # gradient scale, alternating groups, clipping
        state.optimizer.step()
        state.advance()
        if state.averager is not None and state.may_sample(progress_of_the_step): ...

    and ``after_epoch(metrics)`` follows the last step of an epoch. In the first epoch the loop also calls
    ``auto_temperature.observe(targets)`` before each step.

    Args:
        objective: the ELBO, or the ELBO wrapped by sharpness; both have ``step(model, batch) -> Terms``.
        elbo: the ELBO itself; its ``temperature`` is that of the run.
        likelihood: a copy that belongs to this run; learned noise is in it.
        part: the optimizer's settings.
        auto_tuned: the optimizer, if it finds its own step size.
        gradient_factor: gradients are multiplied by it before the step.
        progress: position of the next step.
    """

    method: Method
    model: BayesianModule
    elbo: ELBO
    objective: Any
    likelihood: Likelihood
    optimizer: torch.optim.Optimizer
    part: OptimizerPart
    schedule: Schedule
    progress: Progress
    generator: torch.Generator
    std_schedule: Schedule | None = None
    plateaus: Mapping[str, Plateau] = field(default_factory=dict)
    alternating: Alternating | None = None
    averager: Averager | None = None
    post_hoc: PostHocPart | None = None
    auto_temperature: AutoTemperature | None = None
    auto_tuned: AutoTuned | None = None
    gradient_factor: float = 1.0
    plateau_states: dict[str, PlateauState] = field(default_factory=dict)

    @property
    def clip_norm(self) -> float | None:
        return self.method.clip_norm

    @property
    def temperature(self) -> float:
        """The present temperature of the target."""
        return float(self.elbo.temperature)

    @property
    def epoch(self) -> int:
        """Epochs completed before the next step."""
        return self.progress.step // (self.progress.batches or 1)

    def scaled_prior(self) -> Prior:
        """p' with T KL(q || p') = ... - prior_weight log p: the prior that post-hoc parts and optimizers work with."""
        return scaled_prior(self.model.prior, self.temperature, self.elbo.prior_weight)

    def before_step(self) -> None:
        """Set the learning rates: each group's own, times its schedule, times its plateau."""
        names = {group["name"] for group in self.optimizer.param_groups}
        set_lrs(self.optimizer, {name: self._factor(name) for name in names})

    def _factor(self, group: str) -> float:
        own = self.std_schedule if group in _STD_GROUPS else None
        plateau = self.plateau_states.get(group, PlateauState())
        return (own or self.schedule).factor(self.progress) * plateau.factor

    def after_backward(self) -> None:
        """Scale the gradients, drop those of the group that rests, and clip the rest to ``clip_norm``."""
        resting = frozenset() if self.alternating is None else self.alternating.resting(self.epoch)
        moved = []
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if group["name"] in resting:
                    parameter.grad = None  # A parameter without gradient keeps its moments and step count.
                    continue
                if self.gradient_factor != 1:
                    parameter.grad.mul_(self.gradient_factor)
                moved.append(parameter)
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(moved, self.clip_norm)

    def may_sample(self, progress: Progress) -> bool:
        """Whether the weights after the step at ``progress`` may be kept as a draw."""
        source = self.part if self.auto_tuned is None else self.auto_tuned
        return source.may_sample(progress)

    def advance(self) -> None:
        """Count the step that was taken."""
        step, batches = self.progress.step + 1, self.progress.batches or 1
        self.progress = dataclasses.replace(self.progress, step=step, batch=step % batches)

    def after_epoch(self, metrics: Mapping[str, float]) -> None:
        """Update the temperature and the plateaus after the last step of an epoch.

        Args:
            metrics: means over the epoch ("total", "nll", "kl", "rmse" for real targets), and scores on validation
                data as "validation.nll" and so on.
        """
        if self.auto_temperature is not None:
            self.auto_temperature.after_epoch(self.progress.fraction, metrics)
        resting = frozenset() if self.alternating is None else self.alternating.resting(self.epoch - 1)
        for name, plateau in self.plateaus.items():
            if name in resting:
                continue
            if plateau.metric not in metrics:
                raise SettingError(
                    f"plateau: metric '{plateau.metric}' was not measured in this run; {nearest(plateau.metric, metrics)}"
                )
            value = metrics[plateau.metric]
            value = -value if plateau.metric.endswith("accuracy") else value
            self.plateau_states[name] = plateau.update(self.plateau_states.get(name, PlateauState()), value)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: nested dicts of tensors and plain data (``io.pack_state`` takes it)."""
        return {
            "model": dict(self.model.state_dict()),
            "likelihood": dict(self.likelihood.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "averager": None if self.averager is None else self.averager.state_dict(),
            "plateaus": {name: dataclasses.asdict(state) for name, state in self.plateau_states.items()},
            "auto_temperature": None if self.auto_temperature is None else self.auto_temperature.state_dict(),
            "progress": dataclasses.asdict(self.progress),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Invert ``state_dict`` for a state that was built with the same settings."""
        self.model.load_state_dict(state["model"])
        self.likelihood.load_state_dict(state["likelihood"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.averager is not None:
            self.averager.load_state_dict(state["averager"])
        self.plateau_states = {name: PlateauState(**saved) for name, saved in state["plateaus"].items()}
        if self.auto_temperature is not None:
            self.auto_temperature.load_state_dict(state["auto_temperature"])
        self.progress = Progress(**state["progress"])
        self.generator.set_state(state["generator"])


def scaled_prior(prior: Prior, temperature: float, prior_weight: float | None) -> Prior:
    """Return ``prior`` with stds times sqrt(T / prior_weight); a prior that is not Gaussian stays as it is."""
    if prior_weight is None or prior_weight == temperature or prior.gaussian is None:
        return prior
    return prior.scaled(math.sqrt(temperature / prior_weight))
