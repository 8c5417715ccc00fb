"""From named tensors to one flat vector and back.

Every Bayesian parameter of a network lives in one flat vector, so that sampling, divergence and optimizer
steps are a handful of operations on long vectors instead of a loop over tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from torch import Tensor

from .native.memory import split


@dataclass(frozen=True)
class Site:
    """One Bayesian parameter of the network.

    ``names`` holds every name under which the (possibly shared) parameter is known; the first is its own.
    ``output_dim`` is the axis of output units, ``fan_in`` and ``fan_out`` count the inputs of a unit and
    the units fed by an input; ``layer`` is the class of the module that owns it.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    layer: str
    fan_in: int
    fan_out: int
    output_dim: int = 0

    @property
    def name(self) -> str:
        """The parameter's own name in the network."""
        return self.names[0]

    @property
    def size(self) -> int:
        """How many weights it has."""
        return math.prod(self.shape)

    def fits(self, patterns: str | Sequence[str]) -> bool:
        """Whether its name fits any of the shell-style patterns."""
        chosen = (patterns,) if isinstance(patterns, str) else patterns
        return any(fnmatchcase(self.name, pattern) for pattern in chosen)

    @property
    def matrix_shape(self) -> tuple[int, int] | None:
        """(output units, inputs x kernel area) for a weight matrix or convolution kernel, else None."""
        if len(self.shape) < 2:
            return None
        rows = self.shape[self.output_dim]
        return rows, self.size // rows

    def from_matrix(self, matrix: Tensor) -> Tensor:
        """A (..., output units, inputs x kernel area) matrix in the parameter's own axis order."""
        rest = [n for axis, n in enumerate(self.shape) if axis != self.output_dim]
        lead = matrix.shape[:-2]
        return matrix.reshape(*lead, -1, *rest).movedim(len(lead), len(lead) + self.output_dim)

    def to_matrix(self, tensor: Tensor) -> Tensor:
        """The inverse of ``from_matrix``."""
        axis = tensor.dim() - len(self.shape) + self.output_dim
        lead = tensor.dim() - len(self.shape)
        moved = tensor.movedim(axis, lead)
        return moved.reshape(*moved.shape[: lead + 1], -1)


@dataclass(frozen=True)
class Layout:
    """Where each site lies in the flat vector."""

    sites: tuple[Site, ...]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of weights of each site, in order."""
        return [site.size for site in self.sites]

    @cached_property
    def size(self) -> int:
        """Number of weights in all."""
        return sum(self.sizes)

    @cached_property
    def ends(self) -> Tensor:
        """(sites,) int64 on the CPU: the place behind the last weight of each site."""
        return torch.tensor(self.sizes, dtype=torch.int64, device="cpu").cumsum(0)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The piece of the flat vector that belongs to each site, by its own name."""
        found, start = {}, 0
        for site in self.sites:
            found[site.name] = slice(start, start + site.size)
            start += site.size
        return found

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector as named tensors; a shared parameter appears under each of its names."""
        # split (not slicing) so that the backward pass is one concatenation.
        pieces = split(flat, self.sizes)
        tensors = {}
        for site, piece in zip(self.sites, pieces, strict=True):
            view = piece.view(site.shape)
            for name in site.names:
                tensors[name] = view
        return tensors

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """As ``unflatten``, in less time, of a vector in memory that needs no gradient."""
        flat = flat.contiguous()
        begin, tensors = flat.storage_offset(), {}
        for site, strides, start in self._strides_and_starts:
            view = flat.as_strided(site.shape, strides, begin + start)
            for name in site.names:
                tensors[name] = view
        return tensors

    @cached_property
    def _strides_and_starts(self) -> list[tuple[Site, tuple[int, ...], int]]:
        """Each site with the strides and the beginning of its tensor."""
        strides = [torch.empty(site.shape, device="meta").stride() for site in self.sites]
        return [(site, own, self.slices[site.name].start) for site, own in zip(self.sites, strides, strict=True)]

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The flat vector of named tensors (each site by its own name)."""
        return torch.cat([tensors[site.name].reshape(-1) for site in self.sites])

    def spread(self, values: Tensor) -> Tensor:
        """A flat vector that repeats one number of ``values`` for each site."""
        return torch.cat([value.expand(size) for value, size in zip(values.unbind(), self.sizes, strict=True)])
