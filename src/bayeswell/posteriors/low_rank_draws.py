"""Many draws of a diagonal plus low-rank Gaussian, in few passes over its columns.

    w_d = mean + std * noise_d + F z_d,        F = std * loading

F is as many numbers as ``rank`` networks: reading it for every draw would take more time than the draw itself. So it is
multiplied with the z_d of a group of draws at once, a piece at a time that stays in the caches. Noise and z_d are those
of ``standard_normal``: number i of a draw is a function of i and its key.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..random import normals_of_keys
from .draws_in_groups import draws_in_groups

_TOGETHER = 7 << 20
"""Weights that are drawn together, at most (but one network): a little less than 32 MB, beyond which the C library asks
the system for new memory each time."""
_PIECE = 1 << 14
"""Weights of every network that are multiplied at a time."""


def counted_draws(
    mean: Tensor, std: Tensor, loading: Tensor, count: int, generator: torch.Generator | None, again: bool
) -> Iterator[Tensor]:
    """(P,) float32 draws on the CPU from the compiled generator, the same as one by one to rounding.

    ``again``: the next group may have the memory of the last.
    """

    def add(drawn: Tensor, keys: Tensor) -> None:
        _add_columns(drawn, std, loading, keys)

    return draws_in_groups(mean, std, count, generator, most=_TOGETHER, again=again, add=add)


def _add_columns(drawn: Tensor, std: Tensor, loading: Tensor, keys: Tensor) -> None:
    """w_d + F z_d, in place."""
    size, rank = loading.shape
    columns = normals_of_keys(keys, rank, start=size)
    for start in range(0, size, _PIECE):
        part = slice(start, start + _PIECE)
        drawn[:, part].addmm_(columns, (std[part, None] * loading[part]).T)
