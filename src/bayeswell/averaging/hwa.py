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

from ..errors import CompositionError, SettingError, nearest, require_positive
from ..types import POINT, BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart
from .columns import Columns, check_rank, chosen_rank
from .gaussians import diagonal, low_rank
from .running import MIN_VARIANCE, Moments, Snapshot, Statistic, restored
from .snapshots import Feedback, SnapshotCollector
from .timetable import check_timing, plan

_VARIANCES = ("mixture", "swag", "mean", "literal")
_COVARIANCES = ("diagonal", "low_rank")
_FEEDBACKS = ("none", "sample", "restart")


@dataclass(frozen=True)
class HWA(CollectorPart):
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

    start: float = 0.75
    cycle: int | None = None
    variance: str = "mixture"
    covariance: str = "diagonal"
    feedback: str = "none"
    columns: int | None = None
    scale: float | None = None

    name: ClassVar[str] = "hwa"
    paper: ClassVar[str] = "HWA: Hyperparameters Weight Averaging in Bayesian Neural Networks"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_timing(self.name, self.start, self.cycle)
        check_rank(self.name, "columns", self.columns)
        if self.scale is not None:
            require_positive(self.name, "scale", self.scale)
        choices = {"variance": _VARIANCES, "covariance": _COVARIANCES, "feedback": _FEEDBACKS}
        for setting, allowed in choices.items():
            value = getattr(self, setting)
            if value not in allowed:
                raise SettingError(f"hwa: {setting} = {value!r}; {nearest(str(value), allowed)}")
        if self.variance == "literal":
            raise SettingError(
                "hwa: variance = 'literal' (eq. (4) as printed) is negative from the second snapshot on, so no std can "
                "be made of it; use 'swag' (eq. (4) as it must be meant) or 'mixture' (which keeps the learned stds)"
            )
        if self.covariance == "low_rank" and self.variance == "mean":
            raise SettingError(
                "hwa: covariance = 'low_rank' is made of the spread between snapshots, which variance = 'mean' leaves "
                "out; use variance 'mixture' or 'swag', or covariance 'diagonal'"
            )

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        self._check(model)
        point = POINT in model.posterior_part.provides
        least = 2 if point or self.variance == "swag" or self.covariance == "low_rank" else 1
        timetable = plan(self.name, self.start, self.cycle, total_steps, batches, least)
        layout, like = model.layout, model.posterior.mean_vector().detach()
        joint = self.covariance == "low_rank"
        scale = self.scale if self.scale is not None else (0.5 if joint else 1.0)
        moments, within = Moments(model), Within(like, first_only=self.feedback == "sample")
        columns = None
        if joint:
            rank = chosen_rank(self.name, "columns", self.columns, timetable)
            if self.feedback == "sample" and self.columns is None:
                rank = min(rank, model.posterior.settable_columns)
            columns = Columns(moments, like, rank)

        def variance() -> Tensor:
            between = scale * moments.variance
            return {"mixture": within.mean + between, "swag": between, "mean": within.mean}[self.variance]

        def finish() -> tuple[PosteriorPart, Posterior]:
            if columns is not None:
                return low_rank(layout, like, moments.mean, variance(), columns.factor(scale))
            return diagonal(layout, like, moments.mean, variance())

        def restart(model: BayesianModel, snapshots: int, due: bool) -> None:
            if due:
                model.posterior.mean_vector().copy_(moments.mean)

        def sample(model: BayesianModel, snapshots: int, due: bool) -> None:
            if snapshots < least:
                return
            spread = variance().clamp_min(MIN_VARIANCE)
            if columns is not None:
                model.posterior.set_covariance(spread, columns.factor(scale))
            else:
                model.posterior.set_stds(spread.sqrt())

        feedbacks: dict[str, Feedback | None] = {"none": None, "restart": restart, "sample": sample}
        # Variances first: if they cannot be used, nothing has been changed yet.
        statistics: dict[str, Statistic] = {"within": within} if self.variance != "swag" else {}
        statistics["weights"] = moments
        if columns is not None:
            statistics["deviations"] = columns
        return SnapshotCollector(
            self.name, timetable, model, statistics, finish, least=least, feedback=feedbacks[self.feedback]
        )

    def _check(self, model: BayesianModel) -> None:
        posterior, name = model.posterior, model.posterior_part.name
        if self.variance == "mean" and POINT in model.posterior_part.provides:
            raise CompositionError(
                f"hwa(variance='mean') averages stds, which posterior '{name}' does not have; use averaging 'swa', or "
                "posterior 'mean_field'"
            )
        if self.feedback == "sample":
            self._check_sampling(posterior, name)
        if self.feedback == "restart" and not isinstance(posterior.mean_vector(), nn.Parameter):
            raise CompositionError(
                f"hwa(feedback='restart') sets the means, which posterior '{name}' does not let it; use feedback 'none'"
            )

    def _check_sampling(self, posterior: Posterior, name: str) -> None:
        """Whether the posterior can hold the covariance that steps are to see."""
        if self.covariance == "diagonal" and not posterior.can_set_stds:
            other = "posterior 'mean_field'" + (" or covariance 'low_rank'" if posterior.settable_columns > 1 else "")
            raise CompositionError(
                f"hwa(feedback='sample') sets the std of each weight, which posterior '{name}' does not let it; use "
                f"{other}, or feedback 'none' or 'restart'"
            )
        held, wanted = posterior.settable_columns, self.columns or 2
        if self.covariance == "low_rank" and held < wanted:
            lacks = f"holds {held} of at least {wanted} columns" if held else "cannot hold"
            raise CompositionError(
                f"hwa(feedback='sample', covariance='low_rank') sets a low-rank covariance, which posterior '{name}' "
                f"{lacks}; use posterior 'low_rank' with rank = {wanted} or more, covariance 'diagonal' with posterior "
                "'mean_field', or feedback 'none' or 'restart'"
            )


class Within:
    """W: the (weighted) mean of the snapshots' own variances, or only those of the first snapshot."""

    def __init__(self, like: Tensor, first_only: bool) -> None:
        self.first_only = first_only
        self.mean = torch.zeros_like(like, dtype=torch.float64 if like.device.type != "mps" else torch.float32)

    def add(self, snapshot: Snapshot) -> None:
        if snapshot.number == 1 or not self.first_only:
            self.mean = self.mean + snapshot.gain * (snapshot.variance - self.mean)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean = restored(state, "mean", self.mean)


def literal_variance(snapshots: Tensor) -> Tensor:
    """HWA's eq. (4) to the letter, for the (n, P) means of n snapshots: for the record, not for use.

    On a constant sequence it is -a^2 (n - 1) / 2.
    """
    mean, sigma = torch.zeros_like(snapshots[0]), torch.zeros_like(snapshots[0])
    for n, value in enumerate(snapshots):
        mean = (n * mean + value) / (n + 1)
        sigma = (n * sigma + value.square()) / (n + 1) - mean.square()
    return sigma
