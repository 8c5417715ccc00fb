"""Diagonal plus low-rank Gaussian weights, as the compiled formulas take them."""

from __future__ import annotations

from torch import Tensor

from bayeswell import native
from native.formulas import numbers, precisions


def low_rank_inputs(
    size: int, rank: int, prior: str, drawn: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, native.Precision]:
    """Mean, log std, loading, noise of weights and of columns, precisions; stds from about 0.02 to 1."""
    mean, log_std = numbers(size, 1, 0.7, 0.1), numbers(size, 4, 0.5, -2.0)
    loading = numbers(size * rank, 8, 0.4, 0.05).view(size, rank)
    noise = (numbers(size, 2), numbers(rank, 9, 1.1)) if drawn else (None, None)
    return mean, log_std, loading, *noise, precisions(prior, size)
