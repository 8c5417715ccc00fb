"""One weight vector: maximum a posteriori, or maximum likelihood at temperature 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.protocols import POINT, WEIGHT_SAMPLE, Posterior, Prior


class DeltaPosterior(Posterior):
    """Trainable state: ``mean``. It has no density; its divergence is -log p(w)."""

    def __init__(self, part: Delta, layout: Layout, mean: Tensor) -> None:
        super().__init__()
        self.part, self.layout, self.noise_size = part, layout, 0
        self.mean = nn.Parameter(mean.detach().clone())

    def std(self) -> Tensor:
        return torch.zeros_like(self.mean)

    def rsample(self, noise: Tensor) -> Tensor:
        return self.mean.expand(len(noise), -1)

    def rsample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Return the weights and -log p(w): the loss is then that of maximum a posteriori."""
        return None if noise is None else self.rsample(noise), -prior.log_prob(self.mean[None])[0]


@dataclass(frozen=True)
class Delta:
    """A single weight vector (MAP): the prior acts as weight decay, nothing is sampled."""

    name: ClassVar[str] = "delta"
    paper: ClassVar[str] = "MacKay 1992"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, POINT})

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        return DeltaPosterior(self, layout, mean)
