"""Telling inputs from outside the distribution of the training data by any score that is higher for them.

``inside`` (n,) are the scores of ordinary test inputs, ``outside`` (m,) of the others; one number for each input.
Outside is the positive class. A score that is lower outside is passed with its sign changed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, require_between
from .checks import require_numbers
from .estimates import Estimate

_RESAMPLES = 2000


def auroc(inside: Tensor, outside: Tensor) -> Estimate:
    """P(outside > inside) + P(equal) / 2 of a random pair (Mann-Whitney): 1/2 if the score tells nothing.

    DeLong's standard error (1988): from the spread of each side's mean ranks in the other.
    """
    here, there = _scores(inside, outside)
    above = _share_below(here, there)  # of each outside input: the share of inside ones below it
    under = 1 - _share_below(there, here)
    return Estimate(float(above.mean()), _two_sample_error(under, above))


def aupr(inside: Tensor, outside: Tensor) -> Estimate:
    """Average precision with outside as the positive class: the mean over outside inputs of the precision at each.

    The precision at an input is that among all inputs with at least its score, so ties share theirs. It depends on how
    many inputs there are of each kind: m / (n + m) if the score tells nothing. With inside as the positive class
    ("AUPR-in") it is ``aupr(-outside, -inside)``.

    Its standard error over examples, by the delta method with the numbers of inputs held fixed.

    At a threshold x the precision is A / (A + B), A and B the numbers of outside and inside inputs from x upwards. An
    input moves the average precision by its own precision (outside only) and through A or B at all lower thresholds.
    """
    here, there = _scores(inside, outside)
    n, m = len(here), len(there)
    ordered = there.sort().values
    a = (m - torch.searchsorted(ordered, ordered, right=False)).double()
    b = (n - torch.searchsorted(here.sort().values, ordered, right=False)).double()
    precision = a / (a + b)
    by_a = _padded_cumsum(b / (a + b).square())
    by_b = _padded_cumsum(-a / (a + b).square())
    # How many thresholds lie at or below a score: those are the ones whose counts it is part of. The sums are over m
    # thresholds and the derivatives are by counts, of which one input is 1/m or 1/n: an influence of m (or n) times.
    through_a = by_a[torch.searchsorted(ordered, ordered, right=True)]
    through_b = by_b[torch.searchsorted(ordered, here, right=True)] * (n / m)
    return Estimate(float(precision.mean()), _two_sample_error(through_b, precision + through_a))


def fpr_at_recall(inside: Tensor, outside: Tensor, *, recall: float = 0.95) -> Estimate:
    """The share of outside inputs that pass as inside when the threshold lets ``recall`` of the inside ones pass.

    With 0.95 it is the "FPR95" of Liang et al. 2018 (ODIN): lower is better. The threshold is the lowest score that at
    least this share of the inside ones do not exceed; inputs at the threshold pass. Some papers swap the two sides.

    Its standard error over examples, by the bootstrap of both sides.

    The k-th smallest of n scores drawn again is the ceil(n U)-th smallest of the old ones, U ~ Beta(k, n-k+1): 2000
    resamples cost one draw each; of the outside side the exact binomial variance is taken.
    """
    require_between("fpr_at_recall", "recall", recall, 0, 1, open_low=True)
    here, there = (scores.sort().values for scores in _scores(inside, outside))
    n, m = len(here), len(there)
    place = math.ceil(recall * n)
    # 0.95 * n may come out a little above the whole number that it is.
    place -= place > 1 and (place - 1) / n >= recall
    passing = torch.searchsorted(there, here, right=True).double() / m  # were the threshold at each inside score
    value = float(passing[place - 1])
    if n < 2 or m < 2:
        return Estimate(value, None)
    uniform = torch.from_numpy(np.random.default_rng(0).beta(place, n - place + 1, _RESAMPLES))
    drawn = passing[(uniform * n).ceil().long().clamp(1, n) - 1]
    return Estimate(value, math.sqrt(float((drawn * (1 - drawn)).mean() / m + drawn.var(correction=0))))


def _scores(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    found = []
    for name, given in (("inside", inside), ("outside", outside)):
        scores = require_numbers(f"{name} scores", given)
        if scores.dim() != 1:
            raise DataError(f"{name} scores: shape {tuple(scores.shape)}; they must be (n,), one for each input")
        found.append(scores)
    return found[0], found[1]


def _share_below(reference: Tensor, values: Tensor) -> Tensor:
    """Of each value the share of the reference below it; equal ones count half."""
    ordered = reference.sort().values
    below = torch.searchsorted(ordered, values, right=False)
    up_to = torch.searchsorted(ordered, values, right=True)
    return (below + up_to).double() / (2 * len(reference))


def _padded_cumsum(values: Tensor) -> Tensor:
    return torch.cat([values.new_zeros(1), values.cumsum(0)])


def _two_sample_error(*influences: Tensor) -> float | None:
    if any(len(influence) < 2 for influence in influences):
        return None
    return math.sqrt(sum(float(influence.var()) / len(influence) for influence in influences))
