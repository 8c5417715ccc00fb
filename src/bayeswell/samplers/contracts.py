"""What the rest of the house may count on from a sampler."""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch.optim.optimizer import ParamsT

from ..types import Progress
from .stepping import Sampler


class SamplerPart(Protocol):
    """The settings of a sampler; ``build`` makes the optimizer that carries them out."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def build(
        self, params: ParamsT, dataset_size: int, generator: torch.Generator, total_steps: int | None = None
    ) -> Sampler:
        """An optimizer for the gradients of ``total`` = -log joint / N, with its own noise.

        A group may carry its own ``lr`` and ``temperature``; ``noise=False`` marks deterministic parameters.
        ``total_steps`` matters only to samplers whose rate depends on the planned length.
        """
        ...

    def sampling(self, at: Progress) -> bool:
        """Whether the weights after step ``at.step`` may be kept as a draw (burn-in and thinning aside)."""
        ...
