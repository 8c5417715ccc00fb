"""The state of one training run: all parts that a step needs, and what is saved to resume exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.protocols import AutoTuned, Averager, Likelihood, OptimizerPart, PostHocPart, Progress
from ..nn import BayesianModule
from ..objectives import ELBO
from ..optim import LearningRates, hold_inactive
from .method import Method
from .temperature import AutoTemperature


@dataclass
class TrainState:
    """The parts of one run. One step is::

        state.before_step(targets)  # learning rates
        terms = state.objective.step(state.model, batch)
        terms.total.backward()
        state.after_backward()  # scale and clip gradients, hold the group that rests
        state.optimizer.step()
        if state.averager is not None and state.may_sample(state.progress):
            state.averager.after_step(state.model, state.progress)
        state.advance()

    ``after_epoch(metrics)`` follows the last ``advance`` of an epoch.

    Args:
        elbo: its ``temperature`` is that of the run.
        objective: the ELBO, or the ELBO wrapped by sharpness; both have ``step(model, batch) -> Terms``.
        likelihood: a copy that belongs to this run, with its learned noise.
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
    learning_rates: LearningRates
    progress: Progress
    generator: torch.Generator
    averager: Averager | None = None
    post_hoc: PostHocPart | None = None
    auto_temperature: AutoTemperature | None = None
    auto_tuned: AutoTuned | None = None
    gradient_factor: float = 1.0

    @property
    def temperature(self) -> float:
        return float(self.elbo.temperature)

    @property
    def epoch(self) -> int:
        """Epochs completed before the next step."""
        return self.progress.step // (self.progress.batches or 1)

    def before_step(self, targets: Tensor | None = None) -> None:
        """Set the learning rates: each group's own, times its schedule, times its plateau.

        An automatic temperature also observes the targets of the first epoch.
        """
        if self.auto_temperature is not None and targets is not None and self.epoch == 0:
            self.auto_temperature.spread.observe(self.likelihood, targets)
        self.learning_rates.before_step(self.progress)

    def after_backward(self) -> None:
        """Scale and clip the gradients; drop those of the group that rests."""
        alternating, clip_norm = self.learning_rates.alternating, self.method.clip_norm
        if alternating is not None:
            hold_inactive(self.optimizer, {alternating.active(self.epoch)})
        if self.gradient_factor == 1 and clip_norm is None:
            return
        moved = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        torch._foreach_mul_([p.grad for p in moved], self.gradient_factor)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(moved, clip_norm)

    def may_sample(self, progress: Progress) -> bool:
        """Return whether the weights after the step at ``progress`` may be kept as a draw."""
        return (self.auto_tuned or self.part).may_sample(progress)

    def advance(self) -> None:
        """Count the step that was taken."""
        step, batches = self.progress.step + 1, self.progress.batches
        self.progress = Progress(step, self.progress.total_steps, step % (batches or 1), batches)

    def after_epoch(self, metrics: Mapping[str, float]) -> None:
        """Update the temperature and the plateaus after the last step of an epoch.

        Args:
            metrics: means over the epoch ("total", "nll", "kl", "rmse" for real targets), and scores on validation
                data as "validation.nll" and so on.
        """
        if self.auto_temperature is not None:
            self.auto_temperature.after_epoch(self.progress.fraction, metrics)
        # A plateau waits for a lower value.
        lower = {name: -value if name.endswith("accuracy") else value for name, value in metrics.items()}
        self.learning_rates.after_epoch(lower, self.epoch - 1)

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: nested dicts of tensors and plain data (``io.pack_state`` takes it)."""
        return {
            "model": dict(self.model.state_dict()),
            "likelihood": dict(self.likelihood.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "learning_rates": self.learning_rates.state_dict(),
            "averager": None if self.averager is None else self.averager.state_dict(),
            "auto_temperature": None if self.auto_temperature is None else self.auto_temperature.state_dict(),
            "progress": dataclasses.asdict(self.progress),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Invert ``state_dict`` for a state that was built with the same settings."""
        self.model.load_state_dict(state["model"])
        self.likelihood.load_state_dict(state["likelihood"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.learning_rates.load_state_dict(state["learning_rates"])
        if self.averager is not None:
            self.averager.load_state_dict(state["averager"])
        if self.auto_temperature is not None:
            self.auto_temperature.load_state_dict(state["auto_temperature"])
        self.progress = Progress(**state["progress"])
        self.generator.set_state(state["generator"].clone())
