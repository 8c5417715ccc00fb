"""How well an uncertainty ranks: detection of out-of-distribution (OOD) inputs, and selective prediction.

Detection: ``inside`` (n,) are the scores of ordinary inputs, ``outside`` (m,) those of OOD inputs, the positive class.

Selective prediction answers the surest inputs alone. Losses (S, ...) are lower when better: 1 - hit, a squared error,
an NLL. Scores of the same shape are higher when less sure: entropy, 1 - max p, mutual information, a variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import DataError
from .estimates import Array, Estimate, as_numbers, from_influence, matched


def auroc(inside: Array, outside: Array) -> Estimate:
    """P(outside > inside) + P(equal) / 2 of a random pair (Mann-Whitney): 1/2 for an uninformative score.

    DeLong's standard error (1988), from the spread of each side's mean ranks in the other.
    """
    here, there = _scores(inside, outside)
    above = _share_below(here, there)
    below = 1 - _share_below(there, here)
    return Estimate(float(above.mean()), _two_sample_se(below, above))


def aupr(inside: Array, outside: Array) -> Estimate:
    """Average precision with OOD as the positive class: the mean over OOD inputs of the precision at each.

    Ties share their precision. It depends on the numbers of inputs: m / (n + m) for an uninformative score. The
    standard error is by the delta method with these numbers fixed: at a threshold x the precision is A / (A + B), A and
    B the numbers of outside and inside inputs from x upwards. An input counts through its own precision (outside only)
    and through A or B at all lower thresholds.
    """
    here, there = _scores(inside, outside)
    n, m = len(here), len(there)
    ordered = there.sort().values
    a = (m - torch.searchsorted(ordered, ordered, right=False)).double()
    b = (n - torch.searchsorted(here.sort().values, ordered, right=False)).double()
    precision = a / (a + b)
    by_a = _padded_cumsum(b / (a + b).square())
    by_b = _padded_cumsum(-a / (a + b).square())
    through_a = by_a[torch.searchsorted(ordered, ordered, right=True)]
    through_b = by_b[torch.searchsorted(ordered, here, right=True)] * (n / m)
    return Estimate(float(precision.mean()), _two_sample_se(through_b, precision + through_a))


def _scores(inside: Array, outside: Array) -> tuple[Tensor, Tensor]:
    here, there = as_numbers("inside", inside), as_numbers("outside", outside)
    for name, scores in (("inside", here), ("outside", there)):
        if scores.dim() != 1:
            raise DataError(f"{name}: shape {tuple(scores.shape)}; it must be (n,), one score for each input")
    return here, there


def _share_below(reference: Tensor, values: Tensor) -> Tensor:
    """Share of the reference below each value; equal ones count half."""
    ordered = reference.sort().values
    below = torch.searchsorted(ordered, values, right=False)
    up_to = torch.searchsorted(ordered, values, right=True)
    return (below + up_to).double() / (2 * len(reference))


def _padded_cumsum(values: Tensor) -> Tensor:
    return torch.cat([values.new_zeros(1), values.cumsum(0)])


def _two_sample_se(*influences: Tensor) -> float | None:
    if any(len(influence) < 2 for influence in influences):
        return None
    return math.sqrt(sum(float(influence.var()) / len(influence) for influence in influences))


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """(n,) each: the mean loss of the surest ``coverage`` share of the examples, 1/n to 1."""

    coverage: Tensor
    risk: Tensor


def risk_coverage(losses: Array, scores: Array) -> RiskCoverage:
    """Return the mean loss of the k surest of n examples for every k, averaged over all orders of tied examples."""
    values, uncertainty = matched("losses", losses, "scores", scores)
    order, group, places = _ordered(uncertainty)
    ordered = _mean_in_groups(values.reshape(-1)[order], group)
    return RiskCoverage(places / len(places), ordered.cumsum(0) / places)


def aurc(losses: Array, scores: Array) -> Estimate:
    """Area under the risk-coverage curve: mean_k of the mean loss of the k surest (Geifman & El-Yaniv 2017).

    With m errors in n and a perfect ranking it is (1/n) sum_{j=1..m} j / (n - m + j); with equal scores, the mean loss.
    It is E[-l log F(s)], F the distribution of scores, so the influence of an example is
    -l_i log F(s_i) - E_j[l_j 1[s_j >= s_i] / F(s_j)].
    """
    values, uncertainty = matched("losses", losses, "scores", scores)
    order, group, places = _ordered(uncertainty)
    ordered = _mean_in_groups(values.reshape(-1)[order], group)
    # sum_{k >= rank} 1/k is -log F to first order, and exact for this sample.
    weights = _mean_in_groups(_sum_from(1 / places), group)
    through_others = _mean_in_groups(_sum_from(ordered / places), group)
    influence = torch.empty_like(places)
    influence[order] = values.reshape(-1)[order] * weights - through_others
    return from_influence(float((ordered.cumsum(0) / places).mean()), influence.reshape(values.shape))


def _ordered(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the order from sure to unsure, the group of ties of each place, and the places 1 to n."""
    ordered, order = scores.reshape(-1).sort(stable=True)
    group = torch.unique_consecutive(ordered, return_inverse=True)[1]
    return order, group, torch.arange(1, len(order) + 1, dtype=torch.float64)


def _sum_from(values: Tensor) -> Tensor:
    return values.flip(0).cumsum(0).flip(0)


def _mean_in_groups(values: Tensor, group: Tensor) -> Tensor:
    sums = torch.zeros(int(group[-1]) + 1, dtype=torch.float64).index_add_(0, group, values)
    return (sums / torch.bincount(group))[group]
