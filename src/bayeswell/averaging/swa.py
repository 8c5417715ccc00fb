"""Stochastic weight averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..posteriors import Delta, DeltaPosterior
from ..types import BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart
from .running import Mean
from .snapshots import SnapshotCollector
from .timetable import check_timing, plan


@dataclass(frozen=True)
class SWA(CollectorPart):
    """The average of the weights along the end of training, as one weight vector.

        w_SWA <- (n w_SWA + w) / (n + 1)  at each snapshot

    (Izmailov et al. 2018, algorithm 1), with n counted explicitly. ``start`` is the fraction of the planned steps
    after which snapshots begin, ``cycle`` the steps from one to the next (None: one epoch). ``start=0, cycle=1``
    is Polyak-Ruppert averaging. Stds of the model, if it has any, are dropped: ``hwa`` keeps them.
    """

    start: float = 0.75
    cycle: int | None = None

    name: ClassVar[str] = "swa"
    paper: ClassVar[str] = "Izmailov et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        timetable = plan(self.name, self.start, self.cycle, total_steps, batches)
        average = Mean(model)
        layout, dtype = model.layout, model.posterior.mean_vector().dtype

        def finish() -> tuple[PosteriorPart, Posterior]:
            return Delta(), DeltaPosterior(layout, average.mean.to(dtype))

        return SnapshotCollector(self.name, timetable, model, {"weights": average}, finish)
