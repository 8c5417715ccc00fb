"""Selective prediction: what is lost by answering only where the prediction is surest.

Losses (S, ...) are any numbers that are lower when better: 1 - hit for classes, a squared error, an NLL. Scores of the
same shape are any that are higher when less sure: entropy, 1 - max p, mutual information, a variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import require_numbers, require_same_shape
from .estimates import Estimate, from_influence


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """(n,) each: the mean loss of the surest ``coverage`` share of the examples, 1/n to 1."""

    coverage: Tensor
    risk: Tensor


def risk_coverage(losses: Tensor, scores: Tensor) -> RiskCoverage:
    """The mean loss of the k surest of n examples, for every k.

    Examples with equal scores have no order: the curve is the mean over all orders of them.
    """
    values, uncertainty = _matched(losses, scores)
    ordered = _ordered(values, uncertainty)
    return RiskCoverage(ordered.places / len(ordered.places), ordered.risk)


def aurc(losses: Tensor, scores: Tensor) -> Estimate:
    """The area under the risk-coverage curve: mean_k of the mean loss of the k surest (Geifman & El-Yaniv 2017).

    With m errors in n and a perfect ranking it is (1/n) sum_{j=1..m} j / (n - m + j); with scores that are all equal,
    the mean loss.

    Its standard error over examples, by the delta method.

    The AURC is E[-l log F(s)], F the distribution of scores, so an example moves it by its own loss and by its share
    in F: influence_i = -l_i log F(s_i) - E_j[l_j 1[s_j >= s_i] / F(s_j)].
    """
    values, uncertainty = _matched(losses, scores)
    ordered = _ordered(values, uncertainty)
    count = len(ordered.places)
    # sum_{k >= rank} 1/k is -log F to first order, and exact for this sample.
    weights = ordered.mean_in_ties((1 / ordered.places).flip(0).cumsum(0).flip(0))
    through_others = ordered.mean_in_ties((ordered.losses / ordered.places).flip(0).cumsum(0).flip(0))
    influence = torch.empty(count, dtype=torch.float64)
    influence[ordered.order] = values.reshape(-1)[ordered.order] * weights - through_others
    return from_influence(float(ordered.risk.mean()), influence.reshape(values.shape))


@dataclass(frozen=True, eq=False)
class _Ordered:
    """From sure to unsure: the order, the group of ties each is in, and losses averaged within groups."""

    order: Tensor
    group: Tensor
    places: Tensor
    losses: Tensor

    @property
    def risk(self) -> Tensor:
        return self.losses.cumsum(0) / self.places

    def mean_in_ties(self, values: Tensor) -> Tensor:
        return _mean_in_groups(values, self.group)


def _ordered(losses: Tensor, scores: Tensor) -> _Ordered:
    ordered, order = scores.reshape(-1).sort(stable=True)
    group = torch.unique_consecutive(ordered, return_inverse=True)[1]
    places = torch.arange(1, len(order) + 1, dtype=torch.float64)
    return _Ordered(order, group, places, _mean_in_groups(losses.reshape(-1)[order], group))


def _mean_in_groups(values: Tensor, group: Tensor) -> Tensor:
    sums = torch.zeros(int(group[-1]) + 1, dtype=torch.float64).index_add_(0, group, values)
    return (sums / torch.bincount(group))[group]


def _matched(losses: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    values, uncertainty = require_numbers("losses", losses), require_numbers("scores", scores)
    require_same_shape("scores", uncertainty, "losses", values)
    return values, uncertainty
