"""Curvature of an objective from a few gradients at displaced weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PRODUCTS = 12
"""Power iteration finds the largest eigenvalue of a network's curvature to a few percent in so many products."""

_DISPLACEMENT = 3e-3
"""Of the weights' own length: far above the rounding of float32, and wide enough to look across the kinks of a ReLU."""

Parts = list[Tensor]


def largest_curvature(
    params: Parts, scales: Parts | None, gradient: Callable[[], None], generator: torch.Generator, count: int = PRODUCTS
) -> float:
    """The largest |eigenvalue| of S^1/2 H S^1/2, S the ``scales`` and H the second derivative.

    ``gradient()`` puts the gradient where the parameters then stand into their ``.grad``; parameters and gradients are
    as before when this returns.
    """
    roots = None if scales is None else [scale.sqrt() for scale in scales]
    direction, found = _normal(params, generator), 0.0
    with _products(params, gradient) as product:
        for _ in range(count):
            length = _norm(direction)
            if not 0 < length < math.inf:
                break
            direction = [part / length for part in direction]
            direction = _times(roots, product(_times(roots, direction)))
            found = _norm(direction)
    return found


def row_sizes(params: Parts, gradient: Callable[[], None], generator: torch.Generator, count: int = PRODUCTS) -> Parts:
    """For each weight i the mean of (H z)_i^2 over z ~ N(0, I): about sum_j H_ij^2."""
    sums = [torch.zeros_like(param) for param in params]
    with _products(params, gradient) as product:
        for _ in range(count):
            for total, part in zip(sums, product(_normal(params, generator)), strict=True):
                total.addcmul_(part, part, value=1 / count)
    return sums


@contextmanager
def _products(params: Parts, gradient: Callable[[], None]) -> Iterator[Callable[[Parts], Parts]]:
    """v -> H v ~ (g(w + h v) - g(w)) / h."""
    kept, met = [param.detach().clone() for param in params], [param.grad for param in params]
    reach = _DISPLACEMENT * max(_norm(kept), 1e-3 * math.sqrt(sum(part.numel() for part in kept)))
    gradient()  # anew: what the network draws (dropout) is then the same here and there
    here = [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in params]

    def product(direction: Parts) -> Parts:
        step = reach / max(_norm(direction), 1e-300)
        with torch.no_grad():
            for param, start, part in zip(params, kept, direction, strict=True):
                param.copy_(start + step * part)
        gradient()
        pairs = zip(params, here, strict=True)
        return [torch.zeros_like(g) if p.grad is None else (p.grad - g) / step for p, g in pairs]

    try:
        yield product
    finally:
        with torch.no_grad():
            for param, start, grad in zip(params, kept, met, strict=True):
                param.copy_(start)
                param.grad = grad


def _normal(params: Parts, generator: torch.Generator) -> Parts:
    return [torch.randn(p.shape, dtype=p.dtype, device=p.device, generator=generator) for p in params]


def _times(roots: Parts | None, parts: Parts) -> Parts:
    return parts if roots is None else [root * part for root, part in zip(roots, parts, strict=True)]


def _norm(parts: Parts) -> float:
    return math.sqrt(sum(float(part.double().square().sum()) for part in parts))
