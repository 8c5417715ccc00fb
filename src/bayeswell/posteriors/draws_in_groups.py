"""Draws of Gaussian weights many at a time, so that means and stds are read once for a group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..native import fresh_draws
from ..random import draw_keys
from .std_forms import AS_IT_IS

Add = Callable[[Tensor, Tensor], None]
"""(draws of a group, their keys): changes the draws in place."""


def draws_in_groups(
    mean: Tensor,
    std: Tensor,
    count: int,
    generator: torch.Generator | None,
    *,
    most: int,
    again: bool,
    add: Add | None = None,
    kernels: Tensor | None = None,
) -> Iterator[Tensor]:
    """(P,) float32 draws mean + std * noise on the CPU from the compiled generator, the same as one by one.

    ``most`` weights at a time (but one network); ``again``: the next group may have the memory of the last. ``kernels``
    (``native.fresh_draws``) have their channels last.
    """
    together = max(1, most // mean.numel())
    kept: Tensor | None = None
    for done in range(0, count, together):
        keys = draw_keys(min(together, count - done), generator)
        drawn = fresh_draws(AS_IT_IS.native, keys, mean, std, kept, kernels)
        kept = drawn if again and kept is None else kept
        if add is not None:
            add(drawn, keys)
        # Not a list: so that the memory of these is free for the next ones, while it is still in the caches.
        rows = drawn.unbind()
        del drawn
        yield from rows
        del rows
