"""One weight vector: maximum a posteriori, or maximum likelihood at temperature 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ..tree import Layout, Site
from ..types import POINT, WEIGHT_SAMPLE, Posterior, Prior
from .one_pass import GaussianPrior, point_and_kl


class DeltaPosterior(Posterior):
    """Trainable state: ``mean``. It has no density: the divergence is -log p(w), up to a constant."""

    def __init__(self, layout: Layout, means: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.noise_size = 0
        self.mean = nn.Parameter(means.detach().clone())

    def mean_vector(self) -> Tensor:
        """(P,): the weights."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): zeros."""
        return self.mean.new_zeros(self.mean.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """The same weights in every draw."""
        return self.mean.expand(noise.shape[0], -1)

    def sample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """The weights and -log p(w): with mean NLL and 1/N this is the MAP objective."""
        gaussian = GaussianPrior.of(prior, self.layout)
        if gaussian is None or prior.log_std_sum is None:
            return None if noise is None else self.sample(noise), -prior.log_prob(self.mean)
        # The same for a Gaussian prior, in fewer passes over memory.
        constant = prior.log_std_sum + 0.5 * self.layout.size * math.log(2 * math.pi)
        weights, kl = point_and_kl(self.mean, gaussian, constant)
        return None if noise is None else weights.expand(len(noise), -1), kl

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return "delta"


@dataclass(frozen=True)
class Delta:
    """A single weight vector (MAP): the prior acts as weight decay, nothing is sampled."""

    name: ClassVar[str] = "delta"
    paper: ClassVar[str] = "MacKay 1992"
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, POINT})

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        return DeltaPosterior(layout, means)
