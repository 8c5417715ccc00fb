"""Gaussian weights with covariance S (I + L L') S, S = diag(s): draws, divergences, and their slopes."""

from __future__ import annotations

import torch
from torch import Tensor

from .gaussian import Noise, Precision, draw_rows, given_noise
from .library import Buffer, call
from .memory import empty_like


def low_rank_fresh_draws(
    keys: Tensor, mean: Tensor, std: Tensor, loading: Tensor, columns: Tensor, rows_of: Tensor | None = None
) -> Tensor:
    """(keys, P): m + s (normals(key) + L c) for each of the 64-bit keys (int64) and c of ``columns`` (keys, rank).

    In one pass over means, stds and L; written into the first rows of ``rows_of`` as by ``fresh_draws``.
    """
    (size, rank), draws = loading.shape, len(keys)
    out, stride = draw_rows(draws, mean, rows_of)
    given = (mean, std, Buffer(loading, size * rank), Buffer(columns, draws * rank))
    rows = Buffer(out, draws * stride)
    call("low_rank_fresh_draws", size, rank, Buffer(keys, draws, torch.int64), draws, *given, rows, stride)
    return out[:, :size]


def low_rank_draw_and_kl(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Noise, columns: Tensor | None, precision: Precision
) -> tuple[Tensor | None, float, Tensor]:
    """w = m + s (noise + L columns) (None without noise), sum [h (m^2 + s^2 (1 + |L_i|^2)) / 2 - log s], and L'L.

    The products are added up in double precision, and come as a (rank, rank) tensor of it.
    """
    rank, size = loading.shape[1], mean.numel()
    weights = None if noise is None else empty_like(mean)
    below = torch.empty(rank * (rank + 1) // 2, dtype=torch.float64, device="cpu")
    given = _given(mean, log_std, loading, noise, columns, precision)
    value = call("low_rank_draw_and_kl", size, *given, weights, Buffer(below, below.numel(), torch.float64))
    rows, places = torch.tril_indices(rank, rank, device="cpu")
    gram = below.new_empty(rank, rank)
    gram[rows, places] = below
    gram[places, rows] = below
    return weights, value, gram


def low_rank_slopes(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Noise, columns: Tensor | None, precision: Precision,
    inverse: Tensor, of_weights: Tensor | None, of_kl: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of mean, log_std and loading, from those of the draw and of the KL.

    The KL holds -log det(I + L'L) / 2; ``inverse`` (rank, rank) is that of I + L'L.
    """
    of_mean, of_log_std, of_loading = (empty_like(tensor) for tensor in (mean, log_std, loading))
    rank = loading.shape[1]
    given = _given(mean, log_std, loading, noise, columns, precision)
    results = (of_mean, of_log_std, Buffer(of_loading, of_loading.numel()))
    inverse = inverse.contiguous()  # symmetric, and torch makes it column by column
    call("low_rank_slopes", mean.numel(), *given, Buffer(inverse, rank * rank), of_weights, Buffer(of_kl, 1), *results)
    return of_mean, of_log_std, of_loading


def _given(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Noise, columns: Tensor | None, precision: Precision
) -> tuple[int | Tensor | Buffer | None, ...]:
    """What both formulas take."""
    size, rank = mean.numel(), loading.shape[1]
    drawn = (*given_noise(noise), Buffer(columns, rank))
    return rank, mean, log_std, Buffer(loading, size * rank), *drawn, *precision.given(size)
