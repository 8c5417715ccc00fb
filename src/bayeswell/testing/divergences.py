"""Checks of divergences: value and gradient on average, against the closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.protocols import WEIGHT_SAMPLE
from .problems import PRIOR_STD, make_model, network, normal
from .report import Omitted, require, require_close, require_mean

REPETITIONS, DRAWS = 600, 4


class DivergenceChecks:
    """KL(q || p) of a mean-field q and a normal p."""

    def __init__(self, part: Any) -> None:
        self.part, self.model = part, make_model(network(4, 5, 2))
        self.posterior, self.prior = self.model.posterior, self.model.prior
        self.parameters = list(self.posterior.parameters())

    def _closed_form(self) -> Tensor:
        mean, std = self.posterior.mean, self.posterior.std()
        return ((PRIOR_STD / std).log() + (std.square() + mean.square()) / (2 * PRIOR_STD**2) - 0.5).sum()

    def _noise(self, seed: int, rows: int = DRAWS) -> Tensor:
        return normal(rows, self.posterior.noise_size, seed=seed)

    def _summary(self, value: Tensor) -> Tensor:
        # The value, and for each parameter the sum of its gradient and a projection of it.
        found = torch.autograd.grad(value, self.parameters, materialize_grads=True, allow_unused=True)
        sums = [gradient.sum() for gradient in found]
        along = [gradient.flatten() @ normal(gradient.numel(), seed=50) for gradient in found]
        return torch.stack([value.detach(), *sums, *along])

    def check_returns_the_draws_of_the_noise(self) -> None:
        noise = self._noise(1)
        weights, kl = self.part(self.posterior, self.prior, noise)
        require(kl.dim() == 0, f"the KL has shape {tuple(kl.shape)}, expected a single number")
        require(weights is not None, "it returns no draws although there is noise; the estimator needs them")
        require_close("the draws", weights, self.posterior.rsample(noise))

    def check_works_without_draws(self) -> None:
        if WEIGHT_SAMPLE in self.part.needs:
            raise Omitted(f"it needs '{WEIGHT_SAMPLE}'")
        weights, kl = self.part(self.posterior, self.prior, None)
        require(weights is None, "it returns draws although there is no noise")
        require_close("the KL without draws", kl, self._closed_form())

    def check_mean_is_the_kl(self) -> None:
        expected = self._summary(self._closed_form())
        found = [self.part(self.posterior, self.prior, self._noise(100 + i))[1] for i in range(REPETITIONS)]
        samples = torch.stack([self._summary(value) for value in found])
        require_mean("the KL", samples[:, :1], expected[:1])
        require_mean("the gradient of the KL", samples[:, 1:], expected[1:])
