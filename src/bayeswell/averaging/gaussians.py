"""Gaussian posteriors from moments: the same families that variational inference trains."""

from __future__ import annotations

import torch
from torch import Tensor

from ..posteriors import LowRank, LowRankPosterior, MeanField, MeanFieldPosterior
from ..random import replayable
from ..tree import Layout
from ..types import Posterior, PosteriorPart
from .running import MIN_VARIANCE


def diagonal(layout: Layout, like: Tensor, mean: Tensor, variance: Tensor) -> tuple[PosteriorPart, Posterior]:
    """N(mean, diag(variance)) in the dtype of ``like``."""
    return MeanField(), MeanFieldPosterior(layout, mean.to(like.dtype), _std(variance, like.dtype))


def low_rank(
    layout: Layout, like: Tensor, mean: Tensor, variance: Tensor, factor: Tensor
) -> tuple[PosteriorPart, Posterior]:
    """N(mean, diag(variance) + F F') in the dtype of ``like``, for F with (P, k) numbers."""
    if factor.shape[1] > layout.size:
        # More columns than weights: F F' = R' R with F' = Q R is the same matrix with fewer.
        factor = torch.linalg.qr(factor.T, mode="r").R.T
    std = _std(variance, like.dtype)
    rank = factor.shape[1]
    with replayable(None, like.device):  # the family starts with random columns, which are replaced here
        posterior = LowRankPosterior(layout, mean.to(like.dtype), std, rank)
    posterior.set_factor(factor)
    return LowRank(rank=rank), posterior


def _std(variance: Tensor, dtype: torch.dtype) -> Tensor:
    # Above zero also where half precision would round the floor away: families store its logarithm.
    return variance.clamp_min(MIN_VARIANCE).sqrt().to(dtype).clamp_min(torch.finfo(dtype).tiny)
