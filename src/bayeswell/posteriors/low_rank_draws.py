"""Many draws of a diagonal plus low-rank Gaussian, in few passes over its columns.

    w_d = mean + std * (noise_d + loading z_d)

The loading is as many numbers as ``rank`` networks: reading it for every draw would take more time than the draw
itself. So a group of draws is made of each piece of it at once. Noise and z_d are those of ``standard_normal``: number
i of a draw is a function of i and its key.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..native import low_rank_fresh_draws
from ..random import normals_of_keys
from .draws_in_groups import draws_in_groups

_TOGETHER = 7 << 20
"""Weights of small networks that are drawn together, at most: a little less than 32 MB, beyond which the C library asks
the system for new memory each time."""
_PASSING = 1 << 24
"""The same where the next group has the memory of the last: columns are read, and turned, for more draws at once."""


def counted_draws(
    mean: Tensor, std: Tensor, loading: Tensor, count: int, generator: torch.Generator | None, again: bool
) -> Iterator[Tensor]:
    """(P,) float32 draws on the CPU from the compiled generator, the same as one by one to rounding.

    ``again``: the next group may have the memory of the last.
    """
    size, rank = loading.shape

    def draw(keys: Tensor, rows_of: Tensor | None) -> Tensor:
        return low_rank_fresh_draws(keys, mean, std, loading, normals_of_keys(keys, rank, start=size), rows_of)

    return draws_in_groups(draw, size, count, generator, most=_PASSING if again else _TOGETHER, again=again)
