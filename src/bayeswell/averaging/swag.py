"""SWAG: a Gaussian fitted to the path of SGD, its covariance diagonal plus low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import require_positive
from ..types import BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart
from .columns import Columns, check_rank, chosen_rank
from .gaussians import low_rank
from .running import Moments, Statistic
from .snapshots import SnapshotCollector
from .timetable import check_timing, plan


@dataclass(frozen=True)
class SWAG(CollectorPart):
    """A Gaussian with the snapshots' mean and a covariance that is half their variances, half low rank.

        q = N(mean, scale (diag(mean(w^2) - mean(w)^2) + D D' / (k - 1)))

    D has the deviations of the last ``rank`` snapshots from the mean as it stood after each (Maddox et al. 2019,
    algorithm 1), k of them. ``scale`` 1/2 is the paper's; ``rank`` None means 20, or all planned snapshots where
    they are fewer. ``start`` and ``cycle`` as in ``swa``.

    The spread is that of the optimizer's path, not of the posterior: it grows with the learning rate and with the noise
    of the batches, and is zero without either. For SGD near an optimum where the noise of a gradient is the curvature,
    it is the posterior's on average only at lr = 2 (batch size) T P / (N trace of the gradient's covariance) (Mandt et
    al. 2017), and its directions of small curvature need more steps than a run has. Named methods take their snapshots
    from Adam's path at a tenth of its rate: the mean is that of a good optimum, the stds are a lower bound. Who needs
    stds takes ``ivon``, ``laplace`` or a sampler.

    Where we differ: their code divides by the largest number of columns less one even while it holds fewer, we by
    the number held less one; their block-wise sampler multiplies deviations by scale, we by its square root
    throughout; moments are Welford's, in float64. In expectation neither makes up for the mean being estimated
    from the same snapshots: for n independent ones of variance V, E[D D'/(k - 1)]_ii = V sum (1 - 1/i) / (k - 1)
    over the last k of i = 1..n, 0.86 V at n = k = 20.
    """

    start: float = 0.75
    cycle: int | None = None
    rank: int | None = None
    scale: float = 0.5

    name: ClassVar[str] = "swag"
    paper: ClassVar[str] = "Maddox et al. 2019"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)
        check_rank(self.name, "rank", self.rank)
        require_positive(self.name, "scale", self.scale)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        timetable = plan(self.name, self.start, self.cycle, total_steps, batches, least=2)
        layout, like = model.layout, model.posterior.mean_vector().detach()
        moments = Moments(model)
        columns = Columns(moments, like, chosen_rank(self.name, "rank", self.rank, timetable))

        def finish() -> tuple[PosteriorPart, Posterior]:
            return low_rank(layout, like, moments.mean, self.scale * moments.variance, columns.factor(self.scale))

        statistics: dict[str, Statistic] = {"weights": moments, "deviations": columns}
        return SnapshotCollector(self.name, timetable, model, statistics, finish, least=2)
