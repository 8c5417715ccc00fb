"""Calibration of class probabilities (S, ..., K) against labels (S, ...).

Bins are of equal width, or hold equally many examples (``binning="quantile"``, the adaptive ECE):

- ``width``: [b/B, (b+1)/B), closed on the left, with 1.0 in the last bin, as in TensorFlow Probability. Many others
  close theirs on the right.
- ``quantile``: the bin is floor(r B / n), r the number of lower confidences. Equal confidences share a bin, so the
  order of the examples makes no difference.

ECEs with other bins, or averaged over batches, are not comparable. Standard errors are by the delta method with fixed
bins; where a gap is as small as its noise they are too large (up to 1.7 times), and the ECE is biased upwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.errors import check_choice, check_integer
from .classification import labeled
from .estimates import Array, Estimate, from_influence

Binning = Literal["width", "quantile"]


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """The bins of a reliability diagram that hold examples, all (bins,).

    ``low`` and ``high`` are the edges of a bin of equal width, or the lowest and highest confidence in a quantile bin.
    """

    low: Tensor
    high: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def calibration_bins(
    probabilities: Array, labels: Array, *, bins: int = 15, binning: Binning = "width"
) -> CalibrationBins:
    """Return count, mean confidence max_k p_k and accuracy of each bin."""
    confidence, hits, index = _binned(probabilities, labels, bins, binning)
    flat, place = confidence.reshape(-1), index.reshape(-1)
    if binning == "width":
        low = torch.arange(bins, dtype=torch.float64) / bins
        high = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    else:
        zeros = torch.zeros(bins, dtype=torch.float64)
        low = zeros.scatter_reduce(0, place, flat, "amin", include_self=False)
        high = zeros.scatter_reduce(0, place, flat, "amax", include_self=False)
    count = _sum_by_bin(index, torch.ones_like(hits), bins)
    means = [_sum_by_bin(index, values, bins) / count for values in (confidence, hits)]
    return CalibrationBins(*(values[count > 0] for values in (low, high, count, *means)))


def ece(probabilities: Array, labels: Array, *, bins: int = 15, binning: Binning = "width") -> Estimate:
    """Expected calibration error (Guo et al. 2017): sum_b (n_b / n) |accuracy_b - confidence_b|."""
    confidence, hits, index = _binned(probabilities, labels, bins, binning)
    excess = hits - confidence
    gaps = _sum_by_bin(index, excess, bins)
    return from_influence(float(gaps.abs().sum() / excess.numel()), gaps.sign()[index] * excess)


def _binned(probabilities: Array, labels: Array, bins: int, binning: str) -> tuple[Tensor, Tensor, Tensor]:
    check_integer("calibration", "bins", bins)
    check_choice("calibration", "binning", binning, ("width", "quantile"))
    values, truth = labeled(probabilities, labels)
    confidence, guess = values.max(-1)
    # In the original dtype: 0.7 in float32 times 10 is 7, but 6.9999999 after a cast to float64.
    index = (confidence * bins).long().clamp(max=bins - 1)
    if binning == "quantile":
        flat = confidence.reshape(-1)
        lower = torch.searchsorted(flat.sort().values, flat, right=False)
        index = (lower * bins // len(flat)).reshape(confidence.shape)
    return confidence.double(), (guess == truth).double(), index


def _sum_by_bin(index: Tensor, values: Tensor, bins: int) -> Tensor:
    return torch.zeros(bins, dtype=torch.float64).index_add_(0, index.reshape(-1), values.reshape(-1))
