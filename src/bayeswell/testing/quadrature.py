"""Integrals over one real number, for densities with heavy tails and kinks; float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

POINTS = 200_001


def tangent_grid(scale: float, centre: float = 0.0, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Points and weights of the midpoint rule in t, with w = centre + scale tan(t) and t in (-pi/2, pi/2)."""
    width = math.pi / points
    angles = (torch.arange(points, dtype=torch.float64) + 0.5) * width - math.pi / 2
    return centre + scale * angles.tan(), width * scale / angles.cos().square()


def real_line(function: Callable[[Tensor], Tensor], scale: float, points: int = POINTS) -> float:
    """The integral of a function whose width is about ``scale``."""
    values, weights = tangent_grid(scale, points=points)
    with torch.no_grad():
        return float((function(values) * weights).sum())


def under_gaussian(function: Callable[[Tensor], Tensor], mean: float, std: float) -> Tensor:
    """E[f(w)] for w ~ N(mean, std^2): the midpoint rule over +-12 stds, which minds no kink."""
    width = 24 / POINTS
    z = (torch.arange(POINTS, dtype=torch.float64) + 0.5) * width - 12
    weights = (-0.5 * z.square()).exp() * width / math.sqrt(2 * math.pi)
    with torch.no_grad():
        return (function(mean + std * z) * weights).sum()
