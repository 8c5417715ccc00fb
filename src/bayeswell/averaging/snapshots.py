"""When snapshots are taken, and the running statistics that averagers make of them, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import DivergenceError, SettingError
from ..core.protocols import BayesianModel, Posterior, Progress
from ..nn import trained_params

MIN_VARIANCE = 1e-30
"""Maddox's floor: a weight that never moved has std 1e-15, so its logarithm and the entropy stay finite."""


@dataclass(frozen=True)
class SnapshotSchedule:
    """A snapshot after every ``cycle``-th step, counted from the start of training, once ``burn_in`` are past.

    A cycle of one epoch takes them at the ends of epochs, and a cyclic learning rate with the same cycle is met at its
    lowest (Izmailov et al. 2018, algorithm 1; HWA's algorithm 1 takes them one step later).
    """

    burn_in: int
    cycle: int
    total_steps: int

    def is_due(self, step: int) -> bool:
        """Return whether a snapshot follows this step, counted from 0."""
        return step >= self.burn_in and (step + 1) % self.cycle == 0

    @property
    def planned(self) -> int:
        return self.total_steps // self.cycle - self.burn_in // self.cycle


@dataclass(frozen=True)
class SnapshotPart:
    """``start`` is the fraction of the planned steps after which snapshots begin, ``cycle`` the steps between them."""

    start: float = 0.75
    cycle: int | None = None

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise SettingError(f"{self.name}: `start` must be at least 0 and below 1, got {self.start!r}")

    def schedule(self, total_steps: int, batches: int, least: int = 1) -> SnapshotSchedule:
        """Return the schedule of a run; ``cycle`` None is one epoch. Fewer than ``least`` snapshots are refused."""
        cycle = batches if self.cycle is None else self.cycle
        schedule = SnapshotSchedule(round(self.start * total_steps), cycle, total_steps)
        if schedule.planned < least:
            found = f"start = {self.start:g} and cycle = {cycle} give {schedule.planned} snapshots of at least {least}"
            raise SettingError(f"{self.name}: {found}; train longer, start earlier or shorten the cycle")
        return schedule


class SnapshotAverager:
    """Weighted running means of the weights and of the other trained parameters, over the snapshots of a schedule.

    With the gain g_n of snapshot n (g_1 = 1; 1/n is a uniform mean), m_n = m_(n-1) + g_n (w_n - m_(n-1)). Snapshot j
    ends with weight g_j (1 - g_(j+1)) ... (1 - g_n), and these sum to one. Tensors are replaced, never changed in
    place, so a state that was handed out stays as it was.
    """

    least = 1
    """Snapshots that a result needs."""

    def __init__(self, owner: str, model: BayesianModel, schedule: SnapshotSchedule) -> None:
        self.owner, self.schedule, self.snapshots = owner, schedule, 0
        self.layout, self.like = model.layout, model.posterior.mean.detach()
        self.mean = torch.zeros_like(self.like, dtype=torch.float64)
        self.other = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in trained_params(model.net).items()}
        self.dtypes = {name: parameter.dtype for name, parameter in trained_params(model.net).items()}

    def gain(self, number: int) -> float:
        return 1 / number

    @torch.no_grad()
    def after_step(self, model: BayesianModel, progress: Progress) -> None:
        """Take a snapshot after the step at ``progress`` if one is due."""
        due = self.schedule.is_due(progress.step)
        if due:
            number = self.snapshots + 1
            self.add(model, self.gain(number), number)
            self.snapshots = number
        if self.snapshots:
            self.feedback(model, due)

    def add(self, model: BayesianModel, gain: float, number: int) -> None:
        """Add a snapshot to the statistics."""
        weights = model.posterior.mean.detach().double()
        check_finite(self.owner, weights)
        self.update(weights, gain)
        for name, parameter in trained_params(model.net).items():
            mean = self.other[name]
            self.other[name] = mean + gain * (parameter.detach().double() - mean)

    def update(self, weights: Tensor, gain: float) -> None:
        self.mean = self.mean + gain * (weights - self.mean)

    def feedback(self, model: BayesianModel, due: bool) -> None:
        """Change the model after a step; ``due`` says whether a snapshot was just taken."""

    def result(self) -> Posterior:
        raise NotImplementedError

    def finalize(self, model: BayesianModel) -> Posterior:
        if self.snapshots < self.least:
            raise SettingError(f"{self.owner}: {self.snapshots} snapshots were taken, but {self.least} are needed")
        with torch.no_grad():
            return self.result()

    def other_params(self) -> Mapping[str, Tensor]:
        """The averages of the trained parameters without a posterior, in their own dtypes."""
        return {name: mean.to(self.dtypes[name]) for name, mean in self.other.items()} if self.snapshots else {}

    def state_dict(self) -> dict[str, Any]:
        return {"snapshots": self.snapshots, "mean": self.mean, "other": dict(self.other)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.snapshots, self.mean, self.other = int(state["snapshots"]), state["mean"], dict(state["other"])


class MomentsAverager(SnapshotAverager):
    """Mean and variance of the snapshots by Welford's update, and the last ``columns`` deviations D.

    With d = w_n - m_(n-1):  m_n = m_(n-1) + d / n  and  v_n = v_(n-1) + (d (w_n - m_n) - v_(n-1)) / n. That is SWAG's
    mean(w^2) - mean(w)^2, which loses all digits where |mean| >> std. Deviations are w_n - m_n, from the mean after
    its update (SWAG, algorithm 1): the first is zero and counts among the columns all the same.
    """

    least = 2

    def __init__(self, owner: str, model: BayesianModel, schedule: SnapshotSchedule, columns: int = 0) -> None:
        super().__init__(owner, model, schedule)
        self.columns = columns
        self.variance = torch.zeros_like(self.mean)
        self.deviations = self.like.new_zeros(0, self.like.numel())

    def update(self, weights: Tensor, gain: float) -> None:
        away = weights - self.mean
        super().update(weights, gain)
        self.variance = self.variance + gain * (away * (weights - self.mean) - self.variance)
        if self.columns:
            # A difference keeps its digits in the model's own dtype, at half the memory.
            newest = (weights - self.mean).to(self.like.dtype)
            self.deviations = torch.cat([self.deviations, newest[None]])[-self.columns :]

    def factor(self, scale: float) -> Tensor | None:
        """(P, k): F with F F' = scale D D' / (k - 1)."""
        if not self.columns:
            return None
        return self.deviations.double().T * math.sqrt(scale / (len(self.deviations) - 1))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "variance": self.variance, "deviations": self.deviations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.variance, self.deviations = state["variance"], state["deviations"]


def planned_columns(owner: str, setting: str, columns: int | None, schedule: SnapshotSchedule) -> int:
    """Return the number of columns asked for; None: 20 (Maddox et al. 2019, section 4), or all planned snapshots."""
    if columns is None:
        return min(20, schedule.planned)
    if not 2 <= columns <= schedule.planned:
        raise SettingError(
            f"{owner}: `{setting}` = {columns}; it must be 2 to the {schedule.planned} planned snapshots"
        )
    return columns


def check_finite(owner: str, values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise DivergenceError(f"{owner}: a snapshot has NaN or inf; it was not added")
