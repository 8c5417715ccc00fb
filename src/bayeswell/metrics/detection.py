"""Detection of out-of-distribution (OOD) inputs by any score that is higher for them.

``inside`` (n,) are the scores of ordinary test inputs, ``outside`` (m,) those of OOD inputs, the positive class.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import DataError
from .estimates import Array, Estimate, as_numbers


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
