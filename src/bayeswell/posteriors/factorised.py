"""Independent Gaussian weights: what mean-field and k-tied posteriors share.

The draw and the divergence from a Gaussian prior are one autograd function with closed-form gradients: with
w = m + s eps, cross term C = sum (m^2 + s^2) / (2 p^2) and upstream gradients g (of w) and c (of C),

    d/dm = g + c m / p^2,        d/ds = g eps + c s / p^2.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..tree import Layout
from ..types import Posterior, Prior


class _SampleAndCrossTerm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, std: Tensor, noise: Tensor | None, inverse_variance: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        weights = None if noise is None else torch.addcmul(mean, std, noise)
        scaled_mean, scaled_std = mean * inverse_variance, std * inverse_variance
        cross_term = 0.5 * (torch.dot(scaled_mean, mean) + torch.dot(scaled_std, std))
        ctx.save_for_backward(noise, scaled_mean, scaled_std)
        ctx.set_materialize_grads(False)
        return weights, cross_term

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_weights: Tensor | None, grad_cross: Tensor | None) -> tuple[Tensor | None, ...]:
        noise, scaled_mean, scaled_std = ctx.saved_tensors
        grad_mean = grad_std = None
        if grad_weights is not None:
            single = grad_weights.shape[0] == 1
            grad_mean = grad_weights[0] if single else grad_weights.sum(0)
            grad_std = (grad_weights[0] * noise[0]) if single else (grad_weights * noise).sum(0)
        if grad_cross is not None:
            grad_mean = scaled_mean * grad_cross if grad_mean is None else grad_mean.addcmul(scaled_mean, grad_cross)
            grad_std = scaled_std * grad_cross if grad_std is None else grad_std.addcmul_(scaled_std, grad_cross)
        return grad_mean, grad_std, None, None


class FactorisedPosterior(Posterior):
    """q(w) = prod_i N(w_i; mean_i, std_i^2). A family says how its stds are made: ``stds``."""

    def __init__(self, layout: Layout, means: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.noise_size = layout.size
        self.mean = nn.Parameter(means.detach().clone())

    def stds(self) -> tuple[Tensor, Tensor]:
        """(P,) standard deviations, and the sum of their logarithms."""
        raise NotImplementedError

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): the standard deviations."""
        return self.stds()[0]

    def sample(self, noise: Tensor) -> Tensor:
        """w = mean + std * noise."""
        return torch.addcmul(self.mean, self.std_vector(), noise)

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w) = -sum [log std + log(2 pi)/2 + (w - mean)^2 / (2 std^2)]."""
        std, log_std_sum = self.stds()
        squares = ((weights - self.mean) / std).square().sum(-1)
        return -0.5 * squares - log_std_sum - 0.5 * self.layout.size * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """sum log std + P/2 log(2 pi e)."""
        return self.stds()[1] + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    def sample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Draws and KL in one pass: sum [log(p/s) + (s^2 + m^2)/(2 p^2) - 1/2] for prior stds p."""
        if prior.inverse_variance is None or prior.log_std_sum is None:
            return super().sample_and_kl(noise, prior)
        std, log_std_sum = self.stds()
        weights, cross_term = _SampleAndCrossTerm.apply(self.mean, std, noise, prior.inverse_variance)
        return weights, prior.log_std_sum - log_std_sum + cross_term - 0.5 * self.layout.size
