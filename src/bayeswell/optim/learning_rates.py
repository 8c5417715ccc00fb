"""Learning rates of all groups along a run: schedules, plateaus and turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from ..core.errors import SettingError, nearest
from ..core.protocols import Progress, Schedule
from .groups import MEANS, NOISE, OTHER, STDS, Alternating, hold_inactive, set_lrs
from .plateau import Plateau, PlateauState


class LearningRates:
    """Set the learning rate of each group before a step and hold the groups that rest.

    Args:
        optimizer: its groups have names.
        schedule: factor on all learning rates.
        std_schedule: factor on those of stds and noise; None: ``schedule``.
        plateaus: by group name; "other" follows "means" unless it has its own.
        alternating: turns of means and stds.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        std_schedule: Schedule | None = None,
        plateaus: Mapping[str, Plateau] | None = None,
        alternating: Alternating | None = None,
    ) -> None:
        self.optimizer, self.schedule, self.std_schedule = optimizer, schedule, std_schedule or schedule
        self.plateaus, self.alternating = dict(plateaus or {}), alternating
        self.states = {name: PlateauState() for name in self.plateaus}
        self.names = list(dict.fromkeys(str(group["name"]) for group in optimizer.param_groups))
        for name in self.plateaus:
            if name not in self.names:
                raise SettingError(f"plateau: there is no parameter group '{name}'; {nearest(name, self.names)}")

    def before_step(self, progress: Progress) -> None:
        common, stds = self.schedule.factor(progress), self.std_schedule.factor(progress)
        factors = {name: stds if name in (STDS, NOISE) else common for name in self.names}
        set_lrs(self.optimizer, {name: factor * self._plateau(name) for name, factor in factors.items()})

    def after_backward(self, epoch: int) -> None:
        if self.alternating is not None:
            hold_inactive(self.optimizer, {self.alternating.active(epoch)})

    def after_epoch(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Update the plateaus; a group that rested in this epoch says nothing about its learning rate."""
        for name, plateau in self.plateaus.items():
            turn = MEANS if name == OTHER else name
            if self.alternating is not None and turn in (MEANS, STDS) and self.alternating.active(epoch) != turn:
                continue
            if plateau.metric not in metrics:
                raise SettingError(f"plateau: no metric '{plateau.metric}'; {nearest(plateau.metric, metrics)}")
            self.states[name] = plateau.update(self.states[name], metrics[plateau.metric])

    def current(self) -> dict[str, float]:
        """Return the learning rate of each group by name."""
        return {str(group["name"]): float(group["lr"]) for group in self.optimizer.param_groups}

    def state_dict(self) -> dict[str, Any]:
        return {name: dataclasses.asdict(state) for name, state in self.states.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.states = {name: PlateauState(**values) for name, values in state.items()}

    def _plateau(self, name: str) -> float:
        followed = MEANS if name == OTHER and name not in self.states else name
        return self.states[followed].factor if followed in self.states else 1.0
