"""What likelihoods of counts share: which targets can be counts, and a mean that is exp of an output."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from .matching import first_index, match_shape, require_targets

LOG_MEAN_LIMIT = 40.0
"""torch draws counts as 64-bit whole numbers, which end at exp(43.7); squares of exp(40) are still float32 numbers."""


def bounded_exp(log_mean: Tensor) -> Tensor:
    """exp(f) up to f = 40, above it the tangent: finite, with a slope that does not vanish."""
    return log_mean.clamp(max=LOG_MEAN_LIMIT).exp() * (1 + (log_mean - LOG_MEAN_LIMIT).clamp_min(0))


def poisson_cdf(rate: Tensor, values: Tensor) -> Tensor:
    """P(y <= k) for whole numbers k; between them it is that of the next lower one."""
    counts = values.to(rate.dtype).floor()
    found: Tensor = torch.special.gammaincc(counts.clamp_min(0) + 1, rate.expand_as(counts))
    return torch.where(counts < 0, 0.0, found)


def require_counts(owner: str, targets: Tensor, outputs: Tensor) -> None:
    """Refuse anything but whole numbers from 0, and wrong shapes."""
    require_targets(owner, targets, outputs)
    if targets.is_complex():
        raise DataError(f"{owner}: targets are {targets.dtype}; they must be counts")
    match_shape(owner, targets, outputs.shape)
    wrong = ~torch.isfinite(targets) | (targets < 0)
    if targets.is_floating_point():
        wrong |= targets != targets.round()
    if bool(wrong.any()):
        raise DataError(
            f"{owner}: target {targets[wrong][0].item():g} at index {first_index(wrong)}; targets must be counts "
            "(whole numbers from 0)"
        )
