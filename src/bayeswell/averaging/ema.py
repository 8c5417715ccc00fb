"""The exponential moving average of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import SettingError, require_between, require_positive
from ..posteriors import Delta, DeltaPosterior
from ..types import BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart
from .running import Mean
from .snapshots import SnapshotCollector
from .timetable import check_timing, plan

_HALF_LIVES_IN_A_RUN = 20


@dataclass(frozen=True)
class EMA(CollectorPart):
    """The exponential moving average of the weights, as one weight vector.

        w_EMA <- b w_EMA + (1 - b) w,   divided by 1 - b^n after n snapshots

    (Polyak & Juditsky 1992 average uniformly, which ``swa(start=0, cycle=1)`` does; with a decay b it is the "mean
    teacher" of Tarvainen & Valpola 2017). The division takes out the weight b^n of a start at zero, as in Adam:
    snapshot j counts b^(n-j) (1 - b) / (1 - b^n), and these sum to one; Tarvainen & Valpola start at the first
    weights and raise b instead.

    Give ``decay`` = b for each snapshot, or ``half_life``, the steps in which the weight of a snapshot falls to a half
    (b = 2^(-cycle / half_life)); by default a twentieth of the planned steps, since a good length goes with that of
    training (Karras et al. 2024, section 3). ``start`` is the fraction of the planned steps after which snapshots
    begin, ``cycle`` the steps from one to the next: a snapshot reads all weights, so rarer ones are cheaper. Stds of
    the model, if any, are dropped, as in ``swa``.
    """

    decay: float | None = None
    half_life: float | None = None
    start: float = 0.0
    cycle: int = 1

    name: ClassVar[str] = "ema"
    paper: ClassVar[str] = "Tarvainen & Valpola 2017; Karras et al. 2024; Polyak & Juditsky 1992"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)
        if self.decay is not None:
            require_between(self.name, "decay", self.decay, 0, 1, open_high=True)
        if self.half_life is not None:
            require_positive(self.name, "half_life", self.half_life)
        if self.decay is not None and self.half_life is not None:
            raise SettingError(
                f"ema: decay = {self.decay:g} and half_life = {self.half_life:g} both say how fast it forgets; give one"
            )

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        timetable = plan(self.name, self.start, self.cycle, total_steps, batches)
        log_decay = self._log_decay(total_steps)
        average = Mean(model)
        layout, dtype = model.layout, model.posterior.mean_vector().dtype

        def gain(number: int) -> float:
            # (1 - b) / (1 - b^n), with all its digits for b next to 1.
            return math.expm1(log_decay) / math.expm1(number * log_decay)

        def finish() -> tuple[PosteriorPart, Posterior]:
            return Delta(), DeltaPosterior(layout, average.mean.to(dtype))

        return SnapshotCollector(self.name, timetable, model, {"weights": average}, finish, gain=gain)

    def _log_decay(self, total_steps: int) -> float:
        """log b, of one snapshot."""
        if self.decay is not None:
            return math.log(self.decay) if self.decay > 0 else -math.inf
        half_life = total_steps / _HALF_LIVES_IN_A_RUN if self.half_life is None else self.half_life
        return -math.log(2) * self.cycle / half_life
