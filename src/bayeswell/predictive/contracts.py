"""What can be predicted with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..types import Inputs


class Drawable(Protocol):
    """A network with a distribution over its weights: any ``nn.Module`` with ``draws`` and ``call``."""

    training: bool

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        """``count`` draws of the Bayesian parameters, by name, one at a time."""
        ...

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The network's outputs with these tensors in place of its Bayesian parameters."""
        ...

    def train(self, mode: bool = True) -> Any:
        """As in ``nn.Module``."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """As in ``nn.Module``."""
        ...
