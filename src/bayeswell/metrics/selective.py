"""Selective prediction: the mean loss when only the surest predictions are answered.

Losses (S, ...) are lower when better: 1 - hit, a squared error, an NLL. Scores of the same shape are higher when less
sure: entropy, 1 - max p, mutual information, a variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .estimates import Array, Estimate, from_influence, matched


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
