"""Calibration of class probabilities (S, ..., K) against labels (S, ...), and temperature scaling.

Bins are of equal width, or hold equally many examples (``binning="quantile"``, the adaptive ECE):

- ``width``: [b/B, (b+1)/B), closed on the left, with 1.0 in the last bin, as in TensorFlow Probability. Many others
  close theirs on the right.
- ``quantile``: the bin is floor(r B / n), r the number of lower confidences. Equal confidences share a bin, so the
  order of the examples makes no difference.

ECEs with other bins, or averaged over batches, are not comparable. Standard errors are by the delta method with fixed
bins; where a gap is as small as its noise they are too large (up to 1.7 times), and the ECE is biased upwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.errors import DataError, check_choice, check_integer, check_number
from .classification import DRAW_FLOOR, as_labels, as_probabilities, labeled
from .estimates import Array, Estimate, as_numbers, from_influence

TEMPERATURE_RANGE = (0.05, 20.0)
"""Without a wrong example in the held-out data the best T would be 0."""

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
    """Return confidence, hit and bin of each example, all (S, ...)."""
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


def fit_temperature(logits: Array, labels: Array) -> float:
    """Return the T in 0.05 to 20 with the lowest NLL of softmax(logits / T) (Guo et al. 2017).

    The log of averaged probabilities will do for logits. Fit on examples that are used neither to train nor to test.
    The NLL is convex in a = 1/T, with the derivative mean(E_a[z] - z_y): bisection in log T.
    """
    values = as_numbers("logits", logits)
    if values.dim() < 2:
        raise DataError(f"logits: shape {tuple(values.shape)}; they must be (S, ..., K)")
    truth = as_labels(labels, values.shape)
    rows = values.log_softmax(-1).reshape(-1, values.shape[-1])
    chosen = rows.gather(-1, truth.reshape(-1, 1)).squeeze(-1)
    if bool((rows == rows[:, :1]).all()):
        return 1.0  # T makes no difference
    low, high = (math.log(t) for t in TEMPERATURE_RANGE)
    for _ in range(50):
        middle = 0.5 * (low + high)
        weights = (rows / math.exp(middle)).softmax(-1)
        too_sure = float(((weights * rows).sum(-1) - chosen).mean()) > 0
        low, high = (middle, high) if too_sure else (low, middle)
    return math.exp(0.5 * (low + high))


def scale_by_temperature(probabilities: Array, temperature: float) -> Tensor:
    """Return p_k^(1/T) / sum_j p_j^(1/T); probabilities below 1.2e-38 count as that."""
    check_number("scale_by_temperature", "temperature", temperature, 0, above=True)
    values = as_probabilities(probabilities)
    if temperature == 1:
        return values
    return (values.double().clamp_min(DRAW_FLOOR).log() / temperature).softmax(-1).to(values.dtype)
