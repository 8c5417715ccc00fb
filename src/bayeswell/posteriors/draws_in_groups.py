"""Draws of Gaussian weights many at a time, so that means and stds are read once for a group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..random import draw_keys

Draw = Callable[[Tensor, Tensor | None], Tensor]
"""(keys of a group, the rows of an earlier one to be written over or None) -> (keys, P) draws."""


_FEW = 4
_MOST_OF_FEW = 1 << 26
"""How many networks, each too large for a group, are made together, and how many weights they have at most (256 MB)."""


def draws_in_groups(
    draw: Draw, size: int, count: int, generator: torch.Generator | None, *, most: int, again: bool
) -> Iterator[Tensor]:
    """(P,) float32 draws on the CPU from the compiled generator, the same as one by one.

    ``most`` weights at a time. ``again``: the next group may have the memory of the last; then up to four that
    are larger are made together, and else one.
    """
    together = most // size or max(1, min(_FEW, _MOST_OF_FEW // size) if again else 1)
    kept: Tensor | None = None
    for done in range(0, count, together):
        drawn = draw(draw_keys(min(together, count - done), generator), kept)
        kept = drawn if again and kept is None else kept
        # Not a list: so that the memory of these is free for the next ones, while it is still in the caches.
        rows = drawn.unbind()
        del drawn
        yield from rows
        del rows
