"""The formulas of this room in torch's operations: for other devices and dtypes, transforms, and without a compiler."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES = 128
"""Numbers come in blocks: the cosines of so many pairs, then their sines."""

# SplitMix64 (Steele, Lea & Flood 2014) with the mixing of Stafford's variant 13, in signed numbers, which wrap alike.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTORS = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
_LAST_SHIFT = 31


def normals(key: int, size: int) -> Tensor:
    """Return (size,) float32 N(0, 1) numbers: sqrt(-2 log u) cos a and sin a from 64 random bits each (Box, Muller)."""
    blocks = -(-size // (2 * LANES))
    key = (key + (1 << 63)) % (1 << 64) - (1 << 63)
    words = _mixed((torch.arange(blocks * LANES, device="cpu") * _STEP).add_(key))
    # 31 bits and a half: u is never 0, and small u, which make the tails, are the exact ones.
    uniform = words.bitwise_and(0x7FFFFFFF).to(torch.float32).mul_(2.0**-31).add_(2.0**-32)
    radius = uniform.log_().mul_(-2).sqrt_().view(blocks, LANES)
    angle = (words >> 32).to(torch.float32).mul_(math.pi * 2.0**-31).view(blocks, LANES)
    return torch.stack([angle.cos() * radius, angle.sin() * radius], dim=1).view(-1)[:size]


def _mixed(words: Tensor) -> Tensor:
    for shift, factor in _FACTORS:
        words.bitwise_xor_(_shifted(words, shift)).mul_(factor)
    return words.bitwise_xor_(_shifted(words, _LAST_SHIFT))


def _shifted(words: Tensor, shift: int) -> Tensor:
    # Shift right with zeros coming in; torch's own shift copies the sign.
    return (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)


def draw_and_kl(
    mean: Tensor,
    spread: Tensor,
    noise: Tensor | None,
    h: Tensor,
    ends: Tensor | None,
    center: Tensor | None,
    log_std_sum: Tensor,
    log_std: bool,
) -> tuple[Tensor, Tensor]:
    """Return draws m + s eps, empty without noise, and sum [h ((m - z)^2 + s^2) / 2 - log s - 1/2] + sum log p."""
    size = mean.shape[-1]
    std = spread.exp() if log_std else spread
    weights = mean.new_empty(0) if noise is None else mean + std * noise
    log_stds = spread if log_std else spread.clamp_min(_tiny(spread)).log()
    squares = _offset(mean, center).square() + std.square()
    return weights, (0.5 * _by_weight(h, ends, size) * squares - log_stds).sum() + log_std_sum - 0.5 * size


def gradients(
    mean: Tensor,
    spread: Tensor,
    noise: Tensor | None,
    h: Tensor,
    ends: Tensor | None,
    center: Tensor | None,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
    log_std: bool,
) -> tuple[Tensor, Tensor]:
    """Return d/dm = g + c h (m - z) and d/ds = g eps + c (h s - 1/s), or d/dlog s = s d/ds."""
    std = spread.exp() if log_std else spread
    of_mean, of_std = torch.zeros_like(mean), torch.zeros_like(mean)
    if of_kl is not None:
        flow = of_kl * _by_weight(h, ends, mean.shape[-1])
        tiny = _tiny(std)
        log_slope = torch.where(std < tiny, 0.0, of_kl / std.clamp_min(tiny))
        of_mean, of_std = flow * _offset(mean, center), flow * std - log_slope
    if of_weights is not None:
        assert noise is not None
        of_mean = of_mean + of_weights.sum_to_size(mean.shape)
        of_std = of_std + (of_weights * noise).sum_to_size(mean.shape)
    return of_mean, of_std * std if log_std else of_std


def _tiny(tensor: Tensor) -> float:
    # The smallest normal number: a floor that keeps logarithms finite where a std underflows.
    return torch.finfo(tensor.dtype).tiny


def _offset(mean: Tensor, center: Tensor | None) -> Tensor:
    return mean if center is None else mean - center


def _by_weight(values: Tensor, ends: Tensor | None, size: int) -> Tensor:
    if ends is None:
        return values
    sizes = ends.diff(prepend=ends.new_zeros(1)).to(values.device)
    return values.repeat_interleave(sizes, output_size=size)
