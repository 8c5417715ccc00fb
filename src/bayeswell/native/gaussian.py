"""Independent Gaussian weights: noise and draws, divergences, variances, weighted squares, and their slopes.

``form`` says what a std is made of: 0 of its logarithm, 1 it is given as it is (``posteriors.std_forms``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .library import call


@dataclass(frozen=True)
class Precision:
    """Prior precisions h = 1 / std^2: (P,) numbers, or one for each stretch of weights that ``ends`` cuts off.

    ``ends`` (int64) holds the place behind the last weight of each stretch; stretches need no memory to be read.
    """

    values: Tensor
    ends: Tensor | None

    def given(self) -> tuple[Tensor, Tensor | None, int]:
        """What the compiled formulas take."""
        return self.values, self.ends, 0 if self.ends is None else len(self.ends)


def normals(key: int, size: int) -> Tensor:
    """(size,) standard normal numbers, a function of the 64-bit key alone."""
    out = torch.empty(size, dtype=torch.float32, device="cpu")
    call("normals", size, key, out)
    return out


_ALIGNED = 16
"""Rows of draws begin at multiples of so many numbers: 64 bytes, as torch's own tensors do."""


def fresh_draws(form: int, keys: Tensor, mean: Tensor, state: Tensor) -> Tensor:
    """(keys, P): mean + std * normals(key) for each of the 64-bit keys (int64), in one pass over means and stds."""
    size = mean.numel()
    out = mean.new_empty(len(keys), -(-size // _ALIGNED) * _ALIGNED)[:, :size]
    call("fresh_draws", size, form, keys, len(keys), mean, state, out, out.stride(0))
    return out


def draw_and_kl(
    form: int, mean: Tensor, state: Tensor, noise: Tensor | None, precision: Precision
) -> tuple[Tensor | None, float]:
    """w = m + s noise (None without noise), and sum [h (m^2 + s^2) / 2 - log s]."""
    weights = None if noise is None else torch.empty_like(mean)
    return weights, call("draw_and_kl", mean.numel(), form, mean, state, noise, *precision.given(), weights)


def slopes(
    form: int,
    mean: Tensor,
    state: Tensor,
    noise: Tensor | None,
    precision: Precision,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of mean and state for ``draw_and_kl``, from those of its two results."""
    of_mean, of_state = torch.empty_like(mean), torch.empty_like(mean)
    given = (form, mean, state, noise, *precision.given(), of_weights, of_kl, of_mean, of_state)
    call("slopes", mean.numel(), *given)
    return of_mean, of_state


def half_squares(mean: Tensor, precision: Precision) -> float:
    """sum h m^2 / 2."""
    return float(call("half_squares", mean.numel(), mean, *precision.given()))


def half_squares_slope(mean: Tensor, precision: Precision, of_weights: Tensor | None, of_sum: Tensor) -> Tensor:
    """The gradient of m for ``half_squares``, and for a use of m itself if ``of_weights`` is given."""
    out = torch.empty_like(mean)
    call("half_squares_slope", mean.numel(), mean, *precision.given(), of_weights, of_sum, out)
    return out


def variance(form: int, state: Tensor) -> Tensor:
    """s^2."""
    out = torch.empty_like(state)
    call("variance", state.numel(), form, state, out)
    return out


def variance_slope(form: int, of_variance: Tensor, state: Tensor) -> Tensor:
    """The gradient of the state for ``variance``."""
    out = torch.empty_like(state)
    call("variance_slope", state.numel(), form, of_variance, state, out)
    return out


def weighted_squares(form: int, state: Tensor, values: Tensor) -> float:
    """sum (s values)^2."""
    return float(call("weighted_squares", values.numel(), form, state, values))


def weighted_squares_slopes(form: int, state: Tensor, values: Tensor, of_sum: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of state and values for ``weighted_squares``."""
    of_state, of_values = torch.empty_like(state), torch.empty_like(values)
    call("weighted_squares_slopes", values.numel(), form, state, values, of_sum, of_state, of_values)
    return of_state, of_values


def tied_draw_and_kl(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None,
    precision: Precision,
) -> tuple[Tensor | None, float]:  # fmt: skip
    """As ``draw_and_kl`` where some stds are matrices left @ right'; a row of ``sites`` (int64) says where they lie:

    place of the site, its size, columns (0: not tied), where its left and right factors, or its log stds, begin.
    Stretches of precision, if there are any, are the sites.
    """
    weights = None if noise is None else torch.empty_like(mean)
    given = (sites, len(sites), rank, factors, log_std, mean, noise, precision.values, int(precision.ends is not None))
    return weights, call("tied_draw_and_kl", mean.numel(), *given, weights)


def tied_slopes(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None,
    precision: Precision, of_weights: Tensor | None, of_kl: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The gradients of mean, factors and log_std for ``tied_draw_and_kl``."""
    of_mean, of_factors = torch.empty_like(mean), torch.empty_like(factors)
    of_log_std = None if log_std is None else torch.empty_like(log_std)
    given = (sites, len(sites), rank, factors, log_std, mean, noise, precision.values, int(precision.ends is not None))
    call("tied_slopes", mean.numel(), *given, of_weights, of_kl, of_mean, of_factors, of_log_std)
    return of_mean, of_factors, of_log_std
