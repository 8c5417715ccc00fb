"""SWAG with a diagonal covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import require_positive
from ..types import BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart
from .gaussians import diagonal
from .running import Moments
from .snapshots import SnapshotCollector
from .timetable import check_timing, plan


@dataclass(frozen=True)
class SWAGDiagonal(CollectorPart):
    """Independent Gaussian weights with the mean and variance of the snapshots.

        q = N(mean, scale diag(mean(w^2) - mean(w)^2))

    (Maddox et al. 2019, section 3.2; variances divide by n, are computed by Welford's update in float64 and are at
    least 1e-30). What the spread means, and what it does not, is said at ``swag``. ``scale`` 1 as theirs; ``start``
    and ``cycle`` as in ``swa``.
    """

    start: float = 0.75
    cycle: int | None = None
    scale: float = 1.0

    name: ClassVar[str] = "swag_diag"
    paper: ClassVar[str] = "Maddox et al. 2019"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)
        require_positive(self.name, "scale", self.scale)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        timetable = plan(self.name, self.start, self.cycle, total_steps, batches, least=2)
        moments, layout, like = Moments(model), model.layout, model.posterior.mean_vector().detach()

        def finish() -> tuple[PosteriorPart, Posterior]:
            return diagonal(layout, like, moments.mean, self.scale * moments.variance)

        return SnapshotCollector(self.name, timetable, model, {"weights": moments}, finish, least=2)
