"""Whether class probabilities are as often right as they say, from probabilities (S, ..., K) and labels (S, ...).

Bins are of equal width, or hold equally many examples (``binning="quantile"``):

- ``width``: [b/B, (b+1)/B), closed on the left, with 1.0 in the last one, as in TensorFlow Probability; the bin is
  floor(confidence * B). Many others close theirs on the right.
- ``quantile``: the bin is floor(r B / n), r how many of the n confidences are lower. Equal confidences share a bin, so
  that the order of the examples makes no difference. Codes that drop points on the edges get other numbers.

ECEs with other bins, or averaged over batches, are not comparable. Standard errors are by the delta method with the
bins held fixed; where a gap is as small as its noise they are too large (up to 1.7 times), and the ECE is biased up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import SettingError, nearest, require_count
from .estimates import Estimate, from_influence
from .probabilities import require_labelled

Binning = Literal["width", "quantile"]
_BINNINGS = ("width", "quantile")

_FEW = 10


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """What a reliability diagram shows of the bins that hold examples: all (bins,), in float64.

    ``low`` and ``high`` are the edges of a bin of equal width, or the lowest and highest confidence in a quantile bin.
    """

    low: Tensor
    high: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gap(self) -> Tensor:
        """Accuracy less mean confidence; below 0 where predictions are too sure."""
        return self.accuracy - self.confidence


def calibration_bins(
    probabilities: Tensor, labels: Tensor, *, bins: int = 15, binning: Binning = "width"
) -> CalibrationBins:
    """Count, mean confidence max_k p_k and accuracy of each bin; empty bins are left out."""
    binned = _binned("calibration_bins", probabilities, labels, bins, binning)
    taken = binned.count > 0
    if binning == "width":
        low = torch.arange(bins, dtype=torch.float64) / bins
        high = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    else:
        blank = torch.zeros(bins, dtype=torch.float64)
        flat, index = binned.confidence.reshape(-1), binned.index.reshape(-1)
        low = blank.scatter_reduce(0, index, flat, "amin", include_self=False)
        high = blank.scatter_reduce(0, index, flat, "amax", include_self=False)
    count = binned.count[taken]
    right = binned.sum_by_bin(binned.hits)[taken] / count
    return CalibrationBins(
        low[taken], high[taken], count, binned.sum_by_bin(binned.confidence)[taken] / count, accuracy=right
    )


def ece(probabilities: Tensor, labels: Tensor, *, bins: int = 15, binning: Binning = "width") -> Estimate:
    """Expected calibration error: sum_b (n_b / n) |accuracy_b - confidence_b|, confidence = max_k p_k.

    Guo et al. 2017, with bins as this module says. Never above ``mce``.
    """
    binned = _binned("ece", probabilities, labels, bins, binning)
    excess = binned.hits - binned.confidence
    gaps = binned.sum_by_bin(excess)
    return from_influence(float(gaps.abs().sum() / excess.numel()), gaps.sign()[binned.index] * excess)


def mce(probabilities: Tensor, labels: Tensor, *, bins: int = 15, binning: Binning = "width") -> Estimate:
    """Maximum calibration error: max_b |accuracy_b - confidence_b| over the bins that hold examples.

    One example in a bin of its own decides it: quantile bins are the safer choice.

    The standard error over examples of the worst bin's gap.

    Unknown if fewer than ten examples fill that bin: their hits may all be alike, and then look certain.
    """
    binned = _binned("mce", probabilities, labels, bins, binning)
    excess = binned.hits - binned.confidence
    gaps = binned.sum_by_bin(excess) / binned.count.clamp_min(1)
    worst = int(gaps.abs().argmax())
    inside = (binned.index == worst).double()
    # A ratio of two sums over examples: its influence is (x - ratio) * inside / share.
    influence = inside * (excess - gaps[worst]) * (inside.numel() / inside.sum())
    found = from_influence(float(gaps[worst].abs()), influence)
    alone = int(inside.flatten(1).amax(1).sum() if inside.dim() > 1 else inside.sum()) < _FEW
    return Estimate(found.value, None) if alone else found


def classwise_ece(probabilities: Tensor, labels: Tensor, *, bins: int = 15, binning: Binning = "width") -> Estimate:
    """The mean over all K classes of sum_b (n_bk / n) |share of class k in bin b - mean p_k in it|.

    Kull et al. 2019; the "static calibration error" of Nixon et al. 2019. It judges all probabilities, not the largest
    alone, and is small for many classes, as most of their probabilities are near 0.
    """
    _require_bins("classwise_ece", bins, binning)
    values, truth = require_labelled(probabilities, labels)
    total, influence = 0.0, torch.zeros(truth.shape, dtype=torch.float64)
    # Class by class: the memory of one, for a thousand of them.
    for number in range(values.shape[-1]):
        column = values[..., number].contiguous()
        index = _bin_index(column, bins, binning)
        excess = (truth == number).double() - column.double()
        gaps = _sum_by_bin(index, excess, bins)
        total += float(gaps.abs().sum()) / excess.numel()
        influence += gaps.sign()[index] * excess
    return from_influence(total / values.shape[-1], influence / values.shape[-1])


@dataclass(frozen=True, eq=False)
class _Binned:
    """Confidence, hit and bin of each example, all (S, ...); how many examples each bin holds (bins,)."""

    confidence: Tensor
    hits: Tensor
    index: Tensor
    count: Tensor

    def sum_by_bin(self, values: Tensor) -> Tensor:
        return _sum_by_bin(self.index, values, len(self.count))


def _binned(owner: str, probabilities: Tensor, labels: Tensor, bins: int, binning: str) -> _Binned:
    _require_bins(owner, bins, binning)
    values, truth = require_labelled(probabilities, labels)
    confidence, guess = values.max(-1)
    index = _bin_index(confidence, bins, binning)
    hits = (guess == truth).double()
    return _Binned(confidence.double(), hits, index, _sum_by_bin(index, torch.ones_like(hits), bins))


def _require_bins(owner: str, bins: int, binning: str) -> None:
    require_count(owner, "bins", bins)
    if binning not in _BINNINGS:
        raise SettingError(f"{owner}: binning = {binning!r}; {nearest(str(binning), _BINNINGS)}")


def _bin_index(confidence: Tensor, bins: int, binning: str) -> Tensor:
    if binning == "quantile":
        flat = confidence.reshape(-1)
        lower = torch.searchsorted(flat.sort().values, flat, right=False)
        return (lower * bins // len(flat)).reshape(confidence.shape)
    # In the dtype given: 0.7 in float32 times 10 is 7, but 6.9999999 after a cast to float64.
    return (confidence * bins).long().clamp(max=bins - 1)


def _sum_by_bin(index: Tensor, values: Tensor, bins: int) -> Tensor:
    return torch.zeros(bins, dtype=torch.float64).index_add_(0, index.reshape(-1), values.reshape(-1))
