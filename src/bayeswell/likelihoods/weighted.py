"""Likelihoods of labels whose positions count by weights.

With class weights the NLL is the sum over positions of weight_y * -log p(y | f). It is not divided by the sum of the
weights, as the mean of torch's weighted ``cross_entropy`` is: a weight of 2 is the label met twice. The posterior is
that of p(y | f)^weight_y. Weights that average to 1 over the data keep the balance of data and prior; weights twice as
large halve the temperature of the likelihood.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.protocols import Likelihood
from .common import sum_per_example


class LabelLikelihood(Likelihood):
    """Labels at positions that are independent given the outputs; any weights are applied by ``nll``."""

    def position_nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S, ...): the NLL of every position, without weights."""
        raise NotImplementedError

    def unweighted_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return random u with E[u u'] = the Hessian of the NLL without weights."""
        raise NotImplementedError

    def expand_to_outputs(self, positions: Tensor, outputs: Tensor) -> Tensor:
        """Return one number a position in a shape that multiplies the outputs."""
        raise NotImplementedError


class WeightedPositions(Likelihood):
    """A likelihood for sampled labels whose positions keep the weights of the observed ones.

    The Hessian H of a position's NLL does not depend on the label. With square roots of weights in the NLL, labels
    drawn from the model have scores s with E[s s'] = weight H: the Hessian of the weighted NLL at the observed labels.
    """

    def __init__(self, likelihood: LabelLikelihood, weights: Tensor) -> None:
        super().__init__()
        self.likelihood, self.roots = likelihood, weights.sqrt()

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum over positions of sqrt(weight) * -log p(y | f), for sampled labels only."""
        losses = self.likelihood.position_nll(outputs, targets)
        return sum_per_example(self.roots.reshape(losses.shape).to(losses.dtype) * losses)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.likelihood.sample(outputs, generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return random u with E[u u'] = weight H."""
        root = self.likelihood.unweighted_root(outputs, generator)
        return root * self.likelihood.expand_to_outputs(self.roots, outputs).to(root.dtype)
