"""The largest curvature of an objective, from a few gradients at displaced weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

PRODUCTS = 12
"""Power iteration finds the largest eigenvalue of a network's curvature to a few percent in so many products."""

_DISPLACEMENT = 3e-3
"""Of the weights' own length: far above the rounding of float32, and wide enough to look across the kinks of a ReLU."""


def largest_curvature(
    params: list[Tensor],
    scales: list[Tensor] | None,
    gradient: Callable[[], None],
    generator: torch.Generator,
    products: int = PRODUCTS,
) -> float:
    """The largest |eigenvalue| of S^1/2 H S^1/2, H the second derivative of what ``gradient`` puts the slope of in .grad.

    H v ~ (g(w + h v) - g(w)) / h. The parameters and their gradients are as before when it returns.
    """
    roots = None if scales is None else [scale.sqrt() for scale in scales]
    kept = [param.detach().clone() for param in params]
    met = [param.grad for param in params]
    gradient()  # anew: what the network draws (dropout) is then the same here and there
    grads = [param.grad for param in params]
    length = math.sqrt(sum(float(param.detach().double().square().sum()) for param in params))
    reach = _DISPLACEMENT * max(length, 1e-3 * math.sqrt(sum(param.numel() for param in params)))
    direction = [torch.randn(p.shape, dtype=p.dtype, device=p.device, generator=generator) for p in params]
    found = 0.0
    try:
        for _ in range(products):
            unit = _norm(direction)
            if not 0 < unit < math.inf:
                break
            direction = [part / unit for part in direction]
            along = direction if roots is None else [r * d for r, d in zip(roots, direction, strict=True)]
            step = reach / _norm(along)
            with torch.no_grad():
                for param, start, part in zip(params, kept, along, strict=True):
                    param.copy_(start + step * part)
            gradient()
            slopes = [
                torch.zeros_like(p) if p.grad is None or g is None else (p.grad - g) / step
                for p, g in zip(params, grads, strict=True)
            ]
            direction = slopes if roots is None else [r * s for r, s in zip(roots, slopes, strict=True)]
            found = _norm(direction)
    finally:
        with torch.no_grad():
            for param, start, grad in zip(params, kept, met, strict=True):
                param.copy_(start)
                param.grad = grad
    return found


def _norm(parts: list[Tensor]) -> float:
    return math.sqrt(sum(float(part.double().square().sum()) for part in parts))
