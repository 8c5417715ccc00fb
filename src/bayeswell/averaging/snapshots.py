"""The collector that all averages share: it knows when to look, counts, and feeds running statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError
from ..types import BayesianModel, Posterior, PosteriorPart, Progress
from .running import Deterministic, Snapshot, Statistic
from .timetable import REMEDY, Timetable

Finish = Callable[[], tuple[PosteriorPart, Posterior]]
Feedback = Callable[[BayesianModel, int, bool], None]
"""What is done to the model after a step: given the number of snapshots, and whether one was just taken."""
Gain = Callable[[int], float]
"""n -> the weight of snapshot n (1, 2, ...) relative to that of the first n together: 1 for the first, then 0 to 1."""


def uniform(number: int) -> float:
    """1/n: all snapshots count alike."""
    return 1 / number


class SnapshotCollector:
    """Takes a snapshot at each due step and ends with the posterior that ``finish`` makes of the statistics.

    Statistics are updated in their order. ``least`` is the number of snapshots below which there is no result. ``gain``
    weighs the snapshots, for all statistics and for the network's other parameters alike.
    """

    def __init__(
        self,
        owner: str,
        timetable: Timetable,
        model: BayesianModel,
        statistics: Mapping[str, Statistic],
        finish: Finish,
        *,
        least: int = 1,
        feedback: Feedback | None = None,
        gain: Gain = uniform,
    ) -> None:
        self.owner, self.timetable, self.least, self.gain = owner, timetable, least, gain
        self.snapshots = 0
        self._averages = Deterministic(model)
        self._statistics: dict[str, Statistic] = {**statistics, "deterministic": self._averages}
        self._finish, self._feedback = finish, feedback

    def observe(self, model: BayesianModel, at: Progress) -> None:
        """Look at the model after step ``at.step``; take a snapshot if one is due."""
        due = self.timetable.due(at)
        with torch.no_grad():
            if due:
                number = self.snapshots + 1
                snapshot = Snapshot(self.owner, model, at, number, self.gain(number))
                for statistic in self._statistics.values():
                    statistic.add(snapshot)
                self.snapshots += 1
            if self._feedback is not None and self.snapshots:
                self._feedback(model, self.snapshots, due)

    def require_offered(self, offered: Callable[[int], bool]) -> None:
        """Refuse, before training, a sampler that offers too few of the steps at which a snapshot is due.

        ``offered(step)`` says whether the weights after that step may be kept.
        """
        count = sum(offered(step) for step in self.timetable.steps())
        if count < self.least:
            raise SettingError(
                f"{self.owner}: {count} snapshots can be taken of a sampler that offers its draws at certain steps "
                f"only, and at least {self.least} are needed (the plan: {self.timetable}); {REMEDY}, or use collector "
                "'bank'"
            )

    def result(self) -> tuple[PosteriorPart, Posterior]:
        """The posterior that the snapshots make, with the settings that describe it."""
        if self.snapshots < self.least:
            raise SettingError(
                f"{self.owner}: {self.snapshots} snapshots were taken, and at least {self.least} are needed (the plan: "
                f"{self.timetable}); {REMEDY}"
            )
        with torch.no_grad():
            return self._finish()

    def deterministic(self) -> dict[str, Tensor]:
        """Averages, over the same snapshots with the same weights, of the trained parameters without a posterior.

        An average of weights belongs with the average of the normalisation layers' scales and offsets, not with
        their last values. Empty where every trained parameter is Bayesian.
        """
        return self._averages.result() if self.snapshots else {}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on."""
        state: dict[str, Any] = {"snapshots": self.snapshots}
        for name, statistic in self._statistics.items():
            state.update({f"{name}.{key}": value for key, value in statistic.state_dict().items()})
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        if "snapshots" not in state:
            raise SettingError(f"{self.owner}: the state has no 'snapshots'; it is not the state of a collector")
        for name, statistic in self._statistics.items():
            prefix = f"{name}."
            statistic.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        self.snapshots = int(state["snapshots"])
