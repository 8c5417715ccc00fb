"""Formulas of independent Gaussian weights, a block at a time and into memory that is there already.

As in ``gaussian``; whoever calls them goes through a long vector, so that the noise of a block is read while it is in
the caches, and no vector of noise, or of gradients, stands beside the weights.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .gaussian import Precision
from .library import Buffer, call


def part_of(precision: Precision, ends: Sequence[int], start: int, stop: int) -> Precision:
    """The precisions of the weights from ``start`` to ``stop``; ``ends`` are those of the whole as numbers."""
    if precision.ends is None:
        return Precision(precision.values[start:stop], None)
    first, last = bisect_right(ends, start), bisect_left(ends, stop) + 1
    cut = torch.tensor([min(end, stop) - start for end in ends[first:last]], dtype=torch.int64, device="cpu")
    return Precision(precision.values[first:last], cut)


def draw_block(form: int, mean: Tensor, state: Tensor, noise: Tensor, precision: Precision, weights: Tensor) -> float:
    """weights <- m + s noise; the value is sum [h (m^2 + s^2) / 2 - log s]."""
    size = mean.numel()
    return float(call("draw_and_kl", size, form, mean, state, noise, *precision.given(size), weights))


def slope_block(
    form: int, mean: Tensor, state: Tensor, noise: Tensor, precision: Precision, of_weights: Tensor,
    of_kl: Tensor | None, of_state: Tensor,
) -> None:  # fmt: skip
    """of_weights <- the gradient of the mean, in place, and of_state <- that of the state."""
    size = mean.numel()
    given = (form, mean, state, noise, *precision.given(size), of_weights, Buffer(of_kl, 1))
    call("slopes", size, *given, of_weights, of_state)


def draw_site(
    site: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor, precision: Tensor,
    weights: Tensor,
) -> float:  # fmt: skip
    """As ``draw_block`` for one site of tied stds; ``site`` (1, 5) is its row of the table, with its place at 0."""
    given = _site(site, rank, factors, log_std, mean, noise, precision)
    return float(call("tied_draw_and_kl", mean.numel(), *given, weights))


def slope_site(
    site: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor, precision: Tensor,
    of_weights: Tensor, of_kl: Tensor | None, of_factors: Tensor, of_log_std: Tensor | None,
) -> None:  # fmt: skip
    """As ``slope_block``; of the gradients of all factors and log stds those of this site are written."""
    given = _site(site, rank, factors, log_std, mean, noise, precision)
    results = (of_weights, Buffer(of_factors, factors.numel()), Buffer(of_log_std, _numbers(of_log_std)))
    call("tied_slopes", mean.numel(), *given, of_weights, Buffer(of_kl, 1), *results)


def _site(
    site: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor, precision: Tensor
) -> tuple[Any, ...]:
    state = (Buffer(factors, factors.numel()), Buffer(log_std, _numbers(log_std)))
    by_site = int(precision.numel() == 1)
    values = Buffer(precision, 1 if by_site else mean.numel())
    return Buffer(site, 5, torch.int64), 1, rank, *state, mean, noise, values, by_site


def _numbers(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel()
