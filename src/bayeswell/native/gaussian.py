"""Independent Gaussian weights: noise and draws, divergences, variances, weighted squares, and their slopes.

``form`` says what a std is made of: 0 of its logarithm, 1 it is given as it is (``posteriors.std_forms``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..errors import BufferMismatch
from .library import Buffer, call
from .memory import empty, empty_like

Noise = Tensor | int | None
"""That of the weights: numbers, the key that they are made of (``normals``) where they are needed, or none."""


def given_noise(noise: Noise) -> tuple[Tensor | None, bool, int]:
    """What the compiled formulas take."""
    return (None, True, noise) if isinstance(noise, int) else (noise, False, 0)


@dataclass(frozen=True)
class Precision:
    """Prior precisions h = 1 / std^2: (P,) numbers, or one for each stretch of weights that ``ends`` cuts off.

    ``ends`` (int64) holds the place behind the last weight of each stretch; stretches need no memory to be read.
    """

    values: Tensor
    ends: Tensor | None

    def given(self, size: int) -> tuple[Buffer, Buffer, int]:
        """What the compiled formulas take for so many weights."""
        count = 0 if self.ends is None else len(self.ends)
        return Buffer(self.values, count if count else size), Buffer(self.ends, count, torch.int64), count

    def spread(self) -> Tensor:
        """The precision of each weight, (P,); a scalar where there is one stretch."""
        if self.ends is None or len(self.values) == 0:
            return self.values
        if len(self.values) == 1:
            return self.values[0]
        sizes = [end - start for start, end in pairwise([0, *self.ends.tolist()])]
        return torch.cat([value.expand(size) for value, size in zip(self.values.unbind(), sizes, strict=True)])


def normals(key: int, size: int) -> Tensor:
    """(size,) standard normal numbers, a function of the 64-bit key alone."""
    out = empty((size,), torch.empty(0, dtype=torch.float32, device="cpu"))
    call("normals", size, key, out)
    return out


_ALIGNED = 16
"""Rows of draws begin at multiples of so many numbers: 64 bytes, as torch's own tensors do."""


def draw_rows(draws: int, mean: Tensor, rows_of: Tensor | None) -> tuple[Tensor, int]:
    """(draws, stride) for as many draws of len(mean) weights, and the stride; in the memory of ``rows_of``, if any."""
    stride = -(-mean.numel() // _ALIGNED) * _ALIGNED
    out = empty((draws, stride), mean) if rows_of is None else rows_of.as_strided((draws, stride), (stride, 1))
    return out, stride


def fresh_draws(
    form: int, keys: Tensor, mean: Tensor, state: Tensor, rows_of: Tensor | None = None, kernels: Tensor | None = None
) -> Tensor:
    """(keys, P): mean + std * normals(key) for each of the 64-bit keys (int64), in one pass over means and stds.

    They are written into the first rows of ``rows_of``, what an earlier call for at least as many keys has given. Rows
    of ``kernels`` (int64: place, filters, channels, positions) are kernels of convolutions, in the order in which they
    lie, whose weights are written with the channels of a position together: filters x positions x channels.
    """
    size, draws = mean.numel(), len(keys)
    count = 0 if kernels is None else len(kernels)
    table = Buffer(kernels, 4 * count, torch.int64)
    if count and not call("kernels_fit", size, table, count):
        raise BufferMismatch(f"a table of {count} kernels does not fit {size} weights")
    out, stride = draw_rows(draws, mean, rows_of)
    rows = Buffer(out, draws * stride)
    call("fresh_draws", size, form, Buffer(keys, draws, torch.int64), draws, mean, state, rows, stride, table, count)
    return out[:, :size]


def draw_and_kl(
    form: int, mean: Tensor, state: Tensor, noise: Noise, precision: Precision
) -> tuple[Tensor | None, float]:
    """w = m + s noise (None without noise), and sum [h (m^2 + s^2) / 2 - log s]."""
    weights = None if noise is None else empty_like(mean)
    size = mean.numel()
    given = (form, mean, state, *given_noise(noise), *precision.given(size))
    return weights, call("draw_and_kl", size, *given, weights)


def slopes(
    form: int,
    mean: Tensor,
    state: Tensor,
    noise: Noise,
    precision: Precision,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
    of_mean: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of mean and state for ``draw_and_kl``, from those of its two results.

    That of the mean is written into ``of_mean`` if it is given, which may be ``of_weights``.
    """
    of_mean, of_state = empty_like(mean) if of_mean is None else of_mean, empty_like(mean)
    size = mean.numel()
    given = (form, mean, state, *given_noise(noise), *precision.given(size))
    call("slopes", size, *given, of_weights, Buffer(of_kl, 1), of_mean, of_state)
    return of_mean, of_state


def half_squares(mean: Tensor, precision: Precision) -> float:
    """sum h m^2 / 2."""
    return float(call("half_squares", mean.numel(), mean, *precision.given(mean.numel())))


def half_squares_slope(mean: Tensor, precision: Precision, of_weights: Tensor | None, of_sum: Tensor) -> Tensor:
    """The gradient of m for ``half_squares``, and for a use of m itself if ``of_weights`` is given."""
    out = empty_like(mean)
    size = mean.numel()
    call("half_squares_slope", size, mean, *precision.given(size), of_weights, Buffer(of_sum, 1), out)
    return out


def variance(form: int, state: Tensor) -> Tensor:
    """s^2."""
    out = empty_like(state)
    call("variance", state.numel(), form, state, out)
    return out


def variance_slope(form: int, of_variance: Tensor, state: Tensor) -> Tensor:
    """The gradient of the state for ``variance``."""
    out = empty_like(state)
    call("variance_slope", state.numel(), form, of_variance, state, out)
    return out


def weighted_squares(form: int, state: Tensor, values: Tensor) -> float:
    """sum (s values)^2."""
    return float(call("weighted_squares", values.numel(), form, state, values))


def weighted_squares_slopes(form: int, state: Tensor, values: Tensor, of_sum: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of state and values for ``weighted_squares``."""
    of_state, of_values = empty_like(state), empty_like(values)
    call("weighted_squares_slopes", values.numel(), form, state, values, Buffer(of_sum, 1), of_state, of_values)
    return of_state, of_values


def tied_draw_and_kl(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Noise,
    precision: Precision,
) -> tuple[Tensor | None, float]:  # fmt: skip
    """As ``draw_and_kl`` where some stds are matrices left @ right'; a row of ``sites`` (int64) says where they lie:

    place of the site, its size, columns (0: not tied), where its left and right factors, or its log stds, begin.
    Stretches of precision, if there are any, are the sites.
    """
    weights = None if noise is None else empty_like(mean)
    given = _tied(sites, rank, factors, log_std, mean, noise, precision)
    return weights, call("tied_draw_and_kl", mean.numel(), *given, weights)


def tied_slopes(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Noise,
    precision: Precision, of_weights: Tensor | None, of_kl: Tensor | None, of_mean: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The gradients of mean, factors and log_std for ``tied_draw_and_kl``; ``of_mean`` as in ``slopes``."""
    of_mean, of_factors = empty_like(mean) if of_mean is None else of_mean, empty_like(factors)
    of_log_std = None if log_std is None else empty_like(log_std)
    given = _tied(sites, rank, factors, log_std, mean, noise, precision)
    results = (of_mean, Buffer(of_factors, factors.numel()), Buffer(of_log_std, _numbers(log_std)))
    call("tied_slopes", mean.numel(), *given, of_weights, Buffer(of_kl, 1), *results)
    return of_mean, of_factors, of_log_std


def _tied(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Noise,
    precision: Precision,
) -> tuple[Any, ...]:  # fmt: skip
    """What both formulas of tied sites take, after a look at the table, which says where they read and write."""
    table, count, size = Buffer(sites, 5 * len(sites), torch.int64), len(sites), mean.numel()
    by_site = precision.ends is not None
    if not call("tied_fits", size, table, count, rank, factors.numel(), _numbers(log_std)):
        raise BufferMismatch(
            f"a table of {count} tied sites does not fit {size} weights, {factors.numel()} factors of rank {rank} and "
            f"{_numbers(log_std)} log stds"
        )
    values = Buffer(precision.values, count if by_site else size)
    state = (Buffer(factors, factors.numel()), Buffer(log_std, _numbers(log_std)))
    return table, count, rank, *state, mean, *given_noise(noise), values, int(by_site)


def _numbers(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel()
