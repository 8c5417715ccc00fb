"""Where increasing functions cross a level: many at once, each in a bracket of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import NetworkError

_MOST_STEPS = 200
Function = Callable[[Tensor], Tensor]
"""Element by element, not decreasing."""


def find_bracket(function: Function, level: float, centre: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """low and high with function(low) <= level <= function(high), by doubling the step away from the centre."""
    low, high = centre - width, centre + width
    for _ in range(_MOST_STEPS):
        above, below = function(low) > level, function(high) < level
        if not bool(above.any() | below.any()):
            return low, high
        width = 2 * width
        low, high = torch.where(above, low - width, low), torch.where(below, high + width, high)
    raise NetworkError(f"no number has probability {level:g} below it: the network's outputs are not finite")


def find_roots(function: Function, level: float, low: Tensor, high: Tensor, tolerance: Tensor) -> Tensor:
    """x with function(x) = level to within ``tolerance`` in x, by the method of Chandrupatla (1997).

    Inverse quadratic interpolation where the three last points allow it, bisection elsewhere: a few steps, and never
    more than bisection would need.
    """
    a, b = low, high
    fa, fb = function(a) - level, function(b) - level
    share = torch.full_like(a, 0.5)
    best = torch.where(fa.abs() < fb.abs(), a, b)
    done = torch.minimum(fa.abs(), fb.abs()) == 0
    for _ in range(_MOST_STEPS):
        x = torch.where(done, best, a + share * (b - a))
        fx = function(x) - level
        same = torch.sign(fx) == torch.sign(fa)
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        nearer = fa.abs() < fb.abs()
        best = torch.where(done, best, torch.where(nearer, a, b))
        smallest = tolerance / (b - a).abs().clamp_min(1e-300)
        done = done | (smallest > 0.5) | (torch.where(nearer, fa, fb) == 0)
        if bool(done.all()):
            return best
        share = _next_share(a, fa, b, fb, c, fc)
        share = torch.maximum(torch.minimum(share, 1 - smallest), smallest)
    return best


def _next_share(a: Tensor, fa: Tensor, b: Tensor, fb: Tensor, c: Tensor, fc: Tensor) -> Tensor:
    """How far from a to b to look next."""
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    inverse = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    fits = (phi.square() < xi) & ((1 - phi).square() < 1 - xi) & inverse.isfinite()
    return torch.where(fits, inverse, 0.5)


def find_counts(function: Function, level: float, shape_like: Tensor) -> Tensor:
    """The smallest whole number k >= 0 with function(k) >= level."""
    high = torch.ones_like(shape_like)
    for _ in range(_MOST_STEPS):
        short = function(high) < level
        if not bool(short.any()):
            break
        high = torch.where(short, 2 * high, high)
    low = torch.full_like(high, -1.0)  # where the function is 0
    while bool((high - low > 1).any()):
        middle = ((low + high) / 2).floor()
        enough = function(middle) >= level
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high
