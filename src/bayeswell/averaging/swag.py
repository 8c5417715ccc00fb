"""SWAG: a Gaussian fitted to the path of SGD, with a diagonal or a diagonal plus low-rank covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core.errors import check_number
from ..core.protocols import Averager, BayesianModel, Posterior
from ..posteriors import gaussian_posterior
from .snapshots import (
    MIN_VARIANCE,
    MomentsAverager,
    SnapshotPart,
    SnapshotSchedule,
    planned_columns,
)


class SWAGAverager(MomentsAverager):
    """N(mean, scale (diag(variance) + D D' / (k - 1))), without columns N(mean, scale diag(variance))."""

    def __init__(
        self, owner: str, model: BayesianModel, schedule: SnapshotSchedule, scale: float, columns: int = 0
    ) -> None:
        super().__init__(owner, model, schedule, columns)
        self.scale = scale

    def result(self) -> Posterior:
        variances = (self.scale * self.variance).clamp_min(MIN_VARIANCE)
        return gaussian_posterior(self.layout, self.mean.to(self.like.dtype), variances, self.factor(self.scale))


@dataclass(frozen=True)
class SWAG(SnapshotPart):
    """A Gaussian with the snapshots' mean and a covariance that is half their variances, half low rank.

        q = N(mean, scale (diag(mean(w^2) - mean(w)^2) + D D' / (k - 1)))

    D has the deviations of the last ``rank`` snapshots from the mean as it stood after each (Maddox et al. 2019,
    algorithm 1), k of them. ``scale`` 1/2 is the paper's; ``rank`` None means 20, or all planned snapshots where
    they are fewer. ``start`` and ``cycle`` as in ``swa``.

    The spread is that of the optimizer's path, not of the posterior: it grows with the learning rate and with the noise
    of the batches, and is zero without either. For SGD near an optimum where the noise of a gradient is the curvature,
    it is the posterior's on average only at lr = 2 (batch size) T P / (N trace of the gradient's covariance) (Mandt et
    al. 2017). With Adam's path at a low rate the stds are a lower bound.

    Where we differ: their code divides by the largest number of columns less one even while it holds fewer, we by
    the number held less one; their block-wise sampler multiplies deviations by scale, we by its square root
    throughout; moments are Welford's, in float64. In expectation neither makes up for the mean being estimated
    from the same snapshots: for n independent ones of variance V, E[D D'/(k - 1)]_ii = V sum (1 - 1/i) / (k - 1)
    over the last k of i = 1..n, 0.86 V at n = k = 20.
    """

    rank: int | None = None
    scale: float = 0.5

    name: ClassVar[str] = "swag"
    paper: ClassVar[str] = "Maddox et al. 2019"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.name, "scale", self.scale, 0, above=True)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        schedule = self.schedule(total_steps, batches, least=2)
        rank = planned_columns(self.name, "rank", self.rank, schedule)
        return SWAGAverager(self.name, model, schedule, self.scale, rank)


@dataclass(frozen=True)
class SWAGDiagonal(SnapshotPart):
    """Independent Gaussian weights with the mean and variance of the snapshots.

        q = N(mean, scale diag(mean(w^2) - mean(w)^2))

    (Maddox et al. 2019, section 3.2; variances divide by n and are at least 1e-30). The meaning of the spread is
    described at ``SWAG``; ``start`` and ``cycle`` as in ``swa``.
    """

    scale: float = 1.0

    name: ClassVar[str] = "swag_diag"
    paper: ClassVar[str] = "Maddox et al. 2019"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.name, "scale", self.scale, 0, above=True)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        schedule = self.schedule(total_steps, batches, least=2)
        return SWAGAverager(self.name, model, schedule, self.scale)
