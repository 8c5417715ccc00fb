"""Named tensors as one flat vector and back.

All Bayesian parameters of a network lie in one flat vector of P weights, so sampling, divergence and optimizer steps
are a few operations on long vectors instead of a loop over tensors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Site:
    """One Bayesian parameter of the network.

    Args:
        names: every name of the (possibly shared) parameter; the first is its own.
        shape: its shape.
        layer: class name of the module that owns it.
        fan_in: inputs of one output unit.
        fan_out: units fed by one input.
        output_dim: axis of the output units.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    layer: str
    fan_in: int
    fan_out: int
    output_dim: int = 0

    @cached_property
    def name(self) -> str:
        return self.names[0]

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    def matches(self, patterns: str | Sequence[str]) -> bool:
        """Return True if the name matches any of the shell-style patterns."""
        patterns = (patterns,) if isinstance(patterns, str) else patterns
        return any(fnmatchcase(self.name, pattern) for pattern in patterns)

    @cached_property
    def matrix_shape(self) -> tuple[int, int] | None:
        """(output units, inputs x kernel area) of a weight matrix or convolution kernel, else None."""
        if len(self.shape) < 2:
            return None
        rows = self.shape[self.output_dim]
        return rows, self.size // rows

    def from_matrix(self, matrix: Tensor) -> Tensor:
        """Return a (..., output units, inputs x kernel area) matrix in the parameter's own axis order."""
        rest = [n for axis, n in enumerate(self.shape) if axis != self.output_dim]
        lead = matrix.shape[:-2]
        return matrix.reshape(*lead, -1, *rest).movedim(len(lead), len(lead) + self.output_dim)

    def to_matrix(self, tensor: Tensor) -> Tensor:
        """Invert ``from_matrix``."""
        lead = tensor.dim() - len(self.shape)
        moved = tensor.movedim(lead + self.output_dim, lead)
        return moved.reshape(*moved.shape[: lead + 1], -1)


@dataclass(frozen=True)
class Layout:
    """The place of each site in the flat vector."""

    sites: tuple[Site, ...]
    sizes: list[int] = field(init=False, compare=False, repr=False)
    size: int = field(init=False, compare=False, repr=False)
    ends: Tensor = field(init=False, compare=False, repr=False)
    """(sites,) int64: the index after the last weight of each site."""
    slices: dict[str, slice] = field(init=False, compare=False, repr=False)
    """The slice of the flat vector of each site, by its own name."""

    def __post_init__(self) -> None:
        # Not cached properties, whose lock torch.compile cannot trace.
        sizes = [site.size for site in self.sites]
        ends = list(itertools.accumulate(sizes))
        slices = {site.name: slice(end - site.size, end) for site, end in zip(self.sites, ends, strict=True)}
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "size", sum(sizes))
        object.__setattr__(self, "ends", torch.tensor(ends, dtype=torch.int64, device="cpu"))
        object.__setattr__(self, "slices", slices)

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of a (..., P) vector by name; a shared parameter appears under each of its names."""
        # Split, not slices: the backward pass is then one concatenation.
        pieces = flat.split(self.sizes, dim=-1)
        lead = flat.shape[:-1]
        tensors = {}
        for site, piece in zip(self.sites, pieces, strict=True):
            view = piece.view(lead + site.shape)
            for name in site.names:
                tensors[name] = view
        return tensors

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the (P,) vector of named tensors (each site by its own name)."""
        return torch.cat([tensors[site.name].reshape(-1) for site in self.sites])

    def repeat_by_site(self, values: Tensor) -> Tensor:
        """Return the (P,) vector that repeats ``values[i]`` over site i."""
        return torch.cat([value.expand(size) for value, size in zip(values.unbind(), self.sizes, strict=True)])
