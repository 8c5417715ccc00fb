"""A trained posterior as the prior for later data: sequential Bayes."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..core.errors import CompositionError
from ..core.protocols import FACTORIZED, LOG_PROB, GaussianTerms, Posterior, Prior
from .gaussian import GaussianPrior


class PosteriorPrior(Prior):
    """p(w) = q(w) of earlier data, held fixed: p(w | both data) is proportional to p(new data | w) q(w).

    Exact where q is the exact posterior of the earlier data. Independent Gaussian weights (mean-field, k-tied) have a
    closed form of E[log p]; any other posterior with a density needs drawn weights (divergence ``monte_carlo`` or
    ``path_derivative``). The posterior is copied and its parameters become buffers.
    """

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        if LOG_PROB not in posterior.provides:
            raise CompositionError(f"posterior '{posterior.part.name}' has no density and cannot be a prior")
        self.layout, self.posterior = posterior.layout, _frozen(posterior)
        self.marginals: GaussianPrior | None = None
        if FACTORIZED in posterior.provides:
            with torch.no_grad():
                mean, std = self.posterior.mean.clone(), self.posterior.std().clone()
            self.marginals = GaussianPrior(self.layout, std, mean)

    @property
    def gaussian(self) -> GaussianTerms | None:
        return None if self.marginals is None else self.marginals.gaussian

    def log_prob(self, weights: Tensor) -> Tensor:
        density: Prior | Posterior = self.marginals or self.posterior
        return density.log_prob(weights)

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        if self.marginals is None:
            return super().expected_log_prob(mean, std)
        return self.marginals.expected_log_prob(mean, std)

    def std(self) -> Tensor:
        return self.posterior.std()

    def center(self) -> Tensor:
        return self.posterior.mean

    def scaled(self, factor: float) -> Prior:
        return super().scaled(factor) if self.marginals is None else self.marginals.scaled(factor)


def _frozen(posterior: Posterior) -> Posterior:
    copied = copy.deepcopy(posterior)
    for module in copied.modules():
        for name, parameter in list(module._parameters.items()):
            del module._parameters[name]
            module.register_buffer(name, None if parameter is None else parameter.detach().clone())
    return copied
