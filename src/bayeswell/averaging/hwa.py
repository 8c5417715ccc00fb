"""HWA: averages of variational means, with a variance made of the learned stds and of the spread of the means.

The paper's eq. (4), at each snapshot of the mean m, with n snapshots before it:

    mean_H <- (n mean_H + m) / (n + 1),      sigma_H <- (n sigma_H + m^2) / (n + 1) - mean_H^2.

The second line cannot be meant. It is a variance (of dimension m^2) under the name of a std; it subtracts mean_H^2
from an average that already had it subtracted, and so gives -a^2 (n - 1) / 2 for n snapshots that all equal a; and
it never uses the stds that were learned. ``literal_variance`` computes it, for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import CompositionError, SettingError, check_choice, check_number
from ..core.protocols import POINT, Averager, BayesianModel, Posterior
from ..posteriors import can_set_std, gaussian_posterior, num_columns, set_covariance, set_std
from .snapshots import (
    MIN_VARIANCE,
    MomentsAverager,
    SnapshotPart,
    SnapshotSchedule,
    check_finite,
    planned_columns,
)


@dataclass(frozen=True)
class HWA(SnapshotPart):
    """The average of the variational means, and a variance from the stds and the spread of the means.

    With W = mean(std_j^2) within and B = mean(m_j^2) - mean(m_j)^2 between the snapshots j, ``variance`` says what
    eq. (4) is read as:

    - ``"mixture"`` (default): W + B, the moments of the uniform mixture of the snapshots' Gaussians;
    - ``"swag"``: B, the least change that makes eq. (4) right; the learned stds are not used;
    - ``"mean"``: W, plain averaging of the variational parameters (the variances, which are what mixes);
    - ``"literal"``: eq. (4) as printed, which is refused: see ``literal_variance``.

    ``covariance="diagonal"`` is diag(W + scale B) with scale 1. ``"low_rank"`` is eq. (5) for the spread of the means,

        Sigma = diag(W) + scale (diag(B) + D D' / (k - 1)),      scale 1/2,

    with the k <= ``columns`` last deviations D as in ``swag`` (None: 20, or all snapshots where they are fewer). With
    ``"swag"`` there is no W and this is eq. (5) to the letter; eq. (5) with the mixture's variance would halve W,
    for which nothing else makes up.

    ``feedback`` says what training sees of it (the paper has all three readings):

    - ``"none"`` (default): nothing; algorithm 1 updates the iterate from itself;
    - ``"restart"``: at each snapshot the iterate's mean becomes the average (as in Lookahead);
    - ``"sample"``: gradients are taken at w ~ N(m, Sigma_H) (algorithm 2, line 4): from the first snapshot on (the
      second for ``"swag"``, whose variance starts at zero) the posterior's stds are set to Sigma_H after *every* step,
      so their own update is overwritten, as in the paper, where it is computed and not used. W is then that of
      the first snapshot, the last learned one: averaging stds that were set from the average would count B over and
      over. The posterior must be able to hold Sigma_H: ``mean_field`` for the diagonal covariance, ``low_rank`` with a
      rank of at least ``columns`` (None: at most that rank) for eq. (5), of which draws come from the second snapshot
      on: mean m, covariance diag(W + B / 2) + D D' / (2 (k - 1)).

    ``start`` and ``cycle`` as in ``swa``. The paper's n = k/c would give the weights before ``start`` a vote; here n is
    an explicit counter. On a delta posterior W is 0, and ``"mixture"`` is ``"swag"``. On a joint posterior W holds
    its marginal variances; its correlations are dropped.
    """

    variance: str = "mixture"
    covariance: str = "diagonal"
    feedback: str = "none"
    columns: int | None = None
    scale: float | None = None

    name: ClassVar[str] = "hwa"
    paper: ClassVar[str] = "HWA: Hyperparameters Weight Averaging in Bayesian Neural Networks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            check_number(self.name, "scale", self.scale, 0, above=True)
        check_choice(self.name, "variance", self.variance, ("mixture", "swag", "mean", "literal"))
        check_choice(self.name, "covariance", self.covariance, ("diagonal", "low_rank"))
        check_choice(self.name, "feedback", self.feedback, ("none", "sample", "restart"))
        if self.variance == "literal":
            raise SettingError("hwa: `variance` = 'literal' (eq. (4) as printed) is negative; use 'swag' or 'mixture'")
        if self.covariance == "low_rank" and self.variance == "mean":
            raise SettingError("hwa: `covariance` = 'low_rank' needs the spread of the means; use variance 'mixture'")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        self._check(model.posterior)
        point = POINT in model.posterior.provides
        least = 2 if point or self.variance == "swag" or self.covariance == "low_rank" else 1
        schedule = self.schedule(total_steps, batches, least)
        columns = 0
        if self.covariance == "low_rank":
            columns = planned_columns(self.name, "columns", self.columns, schedule)
            if self.feedback == "sample" and self.columns is None:
                columns = min(columns, num_columns(model.posterior))
        averager = HWAAverager(self, model, schedule, columns)
        averager.least = least
        return averager

    def _check(self, posterior: Posterior) -> None:
        name = posterior.part.name
        if self.variance == "mean" and POINT in posterior.provides:
            raise CompositionError(f"hwa: `variance` = 'mean' averages stds; posterior '{name}' has none; use 'swa'")
        if self.feedback == "restart" and not isinstance(posterior.mean, nn.Parameter):
            raise CompositionError(f"hwa: `feedback` = 'restart' cannot set the means of posterior '{name}'")
        if self.feedback != "sample":
            return
        if self.covariance == "diagonal" and not can_set_std(posterior):
            raise CompositionError(f"hwa: `feedback` = 'sample' needs posterior 'mean_field', got '{name}'")
        wanted = self.columns or 2
        if self.covariance == "low_rank" and num_columns(posterior) < wanted:
            needed = f"posterior 'low_rank' of rank {wanted} or more"
            found = f"'{name}' with {num_columns(posterior)} columns"
            raise CompositionError(f"hwa: `feedback` = 'sample' with a low-rank covariance needs {needed}, got {found}")


class HWAAverager(MomentsAverager):
    """The moments of the means, and W in ``within``."""

    def __init__(self, part: HWA, model: BayesianModel, schedule: SnapshotSchedule, columns: int) -> None:
        super().__init__(part.name, model, schedule, columns)
        self.part = part
        self.scale = part.scale if part.scale is not None else (0.5 if columns else 1.0)
        self.within = torch.zeros_like(self.mean)

    def add(self, model: BayesianModel, gain: float, number: int) -> None:
        if self.part.variance != "swag" and (number == 1 or self.part.feedback != "sample"):
            variance = model.posterior.std().detach().double().square()
            check_finite(self.owner, variance)
            self.within = self.within + gain * (variance - self.within)
        super().add(model, gain, number)

    def variances(self) -> Tensor:
        between = self.scale * self.variance
        chosen = {"mixture": self.within + between, "swag": between, "mean": self.within}[self.part.variance]
        return chosen.clamp_min(MIN_VARIANCE)

    def feedback(self, model: BayesianModel, due: bool) -> None:
        if self.part.feedback == "restart" and due:
            model.posterior.mean.copy_(self.mean)
        if self.part.feedback == "sample" and self.snapshots >= self.least:
            factor = self.factor(self.scale)
            if factor is None:
                set_std(model.posterior, self.variances().sqrt().to(self.like.dtype))
            else:
                set_covariance(model.posterior, self.variances(), factor)

    def result(self) -> Posterior:
        return gaussian_posterior(self.layout, self.mean.to(self.like.dtype), self.variances(), self.factor(self.scale))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "within": self.within}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.within = state["within"]


def literal_variance(snapshots: Tensor) -> Tensor:
    """Return HWA's eq. (4) to the letter for the (n, P) means of n snapshots: for the record, not for use.

    On a constant sequence it is -a^2 (n - 1) / 2.
    """
    mean, sigma = torch.zeros_like(snapshots[0]), torch.zeros_like(snapshots[0])
    for n, value in enumerate(snapshots):
        mean = (n * mean + value) / (n + 1)
        sigma = (n * sigma + value.square()) / (n + 1) - mean.square()
    return sigma
