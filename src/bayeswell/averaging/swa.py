"""Averages of the weights: stochastic weight averaging and the exponential moving average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..core.errors import SettingError, check_number
from ..core.protocols import POINT, Averager, BayesianModel, Posterior
from ..posteriors import Delta, DeltaPosterior
from .snapshots import SnapshotAverager, SnapshotSchedule, check_timing, snapshot_schedule


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
class SWA:
    """The average of the weights along the end of training, as one weight vector.

        w_SWA <- (n w_SWA + w) / (n + 1)  at each snapshot

    (Izmailov et al. 2018, algorithm 1), with n counted explicitly. ``start`` is the fraction of the planned steps
    after which snapshots begin, ``cycle`` the steps from one to the next (None: one epoch). ``start=0, cycle=1`` is
    Polyak-Ruppert averaging. Stds of the model are dropped: ``hwa`` keeps them.
    """

    start: float = 0.75
    cycle: int | None = None

    name: ClassVar[str] = "swa"
    paper: ClassVar[str] = "Izmailov et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset({POINT})

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        schedule = snapshot_schedule(self.name, self.start, self.cycle, total_steps, batches)
        return MeanAverager(self.name, model, schedule)


@dataclass(frozen=True)
class EMA:
    """The exponential moving average of the weights, as one weight vector.

        w_EMA <- b w_EMA + (1 - b) w,   divided by 1 - b^n after n snapshots

    With a decay b this is the "mean teacher" of Tarvainen & Valpola 2017. The division takes out the weight b^n of a
    start at zero, as in Adam: snapshot j counts b^(n-j) (1 - b) / (1 - b^n). Tarvainen & Valpola start at the first
    weights and raise b instead. Stds of the model are dropped.

    Args:
        decay: b for each snapshot.
        half_life: steps in which the weight of a snapshot halves (b = 2^(-cycle / half_life)). By default a twentieth
            of the planned steps: a good length goes with that of training (Karras et al. 2024, section 3).
        start: fraction of the planned steps after which snapshots begin.
        cycle: steps from one snapshot to the next.
    """

    decay: float | None = None
    half_life: float | None = None
    start: float = 0.0
    cycle: int = 1

    name: ClassVar[str] = "ema"
    paper: ClassVar[str] = "Tarvainen & Valpola 2017; Karras et al. 2024; Polyak & Juditsky 1992"
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset({POINT})

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)
        if self.decay is not None and check_number(self.name, "decay", self.decay, 0, 1) == 1:
            raise SettingError("ema: `decay` must be below 1, got 1")
        if self.half_life is not None:
            check_number(self.name, "half_life", self.half_life, 0, above=True)
        if self.decay is not None and self.half_life is not None:
            raise SettingError(f"ema: give `decay` or `half_life`, got {self.decay:g} and {self.half_life:g}")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        schedule = snapshot_schedule(self.name, self.start, self.cycle, total_steps, batches)
        return MeanAverager(self.name, model, schedule, self._log_decay(total_steps))

    def _log_decay(self, total_steps: int) -> float:
        if self.decay is not None:
            return math.log(self.decay) if self.decay > 0 else -math.inf
        half_life = total_steps / 20 if self.half_life is None else self.half_life
        return -math.log(2) * self.cycle / half_life
