"""Averages of the weights: stochastic weight averaging and the exponential moving average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..core.errors import SettingError
from ..core.protocols import POINT, Averager, BayesianModel, Posterior
from ..posteriors import Delta, DeltaPosterior
from .snapshots import SnapshotAverager, SnapshotPart, SnapshotSchedule


class MeanAverager(SnapshotAverager):
    """The mean of the snapshots as one weight vector; ``log_decay`` = log b weighs snapshot j with b^(n - j)."""

    def __init__(self, owner: str, model: BayesianModel, schedule: SnapshotSchedule, log_decay: float = 0.0) -> None:
        super().__init__(owner, model, schedule)
        self.log_decay = log_decay

    def gain(self, number: int) -> float:
        """(1 - b) / (1 - b^n), with all its digits for b next to 1."""
        if self.log_decay == 0:
            return super().gain(number)
        return math.expm1(self.log_decay) / math.expm1(number * self.log_decay)

    def result(self) -> Posterior:
        return DeltaPosterior(Delta(), self.layout, self.mean.to(self.like.dtype))


@dataclass(frozen=True)
class SWA(SnapshotPart):
    """The average of the weights along the end of training, as one weight vector.

        w_SWA <- (n w_SWA + w) / (n + 1)  at each snapshot

    (Izmailov et al. 2018, algorithm 1), with n counted explicitly. ``start`` is the fraction of the planned steps
    after which snapshots begin, ``cycle`` the steps from one to the next (None: one epoch). ``start=0, cycle=1`` is
    Polyak-Ruppert averaging. Stds of the model are dropped: ``hwa`` keeps them.
    """

    name: ClassVar[str] = "swa"
    paper: ClassVar[str] = "Izmailov et al. 2018"
    provides: ClassVar[frozenset[str]] = frozenset({POINT})

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        return MeanAverager(self.name, model, self.schedule(total_steps, batches))


@dataclass(frozen=True)
class EMA(SnapshotPart):
    """The exponential moving average of the weights, as one weight vector.

        w_EMA <- b w_EMA + (1 - b) w,   divided by 1 - b^n after n snapshots

    With a decay b this is the "mean teacher" of Tarvainen & Valpola 2017. The division takes out the weight b^n of a
    start at zero, as in Adam: snapshot j counts b^(n-j) (1 - b) / (1 - b^n). Tarvainen & Valpola start at the first
    weights and raise b instead. Stds of the model are dropped.

    ``decay`` is b for each snapshot. None: the weight of a snapshot halves in a twentieth of the planned steps, as a
    good length goes with that of training (Karras et al. 2024, section 3).
    """

    start: float = 0.0
    cycle: int | None = 1
    decay: float | None = None

    name: ClassVar[str] = "ema"
    paper: ClassVar[str] = "Tarvainen & Valpola 2017; Karras et al. 2024; Polyak & Juditsky 1992"
    provides: ClassVar[frozenset[str]] = frozenset({POINT})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay is not None and not 0 <= self.decay < 1:
            raise SettingError(f"ema: `decay` must be at least 0 and below 1, got {self.decay!r}")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        schedule = self.schedule(total_steps, batches)
        log_decay = -math.log(2) * schedule.cycle / (total_steps / 20)
        if self.decay is not None:
            log_decay = math.log(self.decay) if self.decay > 0 else -math.inf
        return MeanAverager(self.name, model, schedule, log_decay)
