"""Independent Gaussian weights: what mean-field and k-tied posteriors share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..native import fresh_draws, takes
from ..native.memory import empty_like
from ..random import KeyedNoise, is_counted, standard_normal
from ..tree import Layout
from ..types import Covariance, Posterior, Prior
from .draws_in_groups import draws_in_groups
from .kernels import ChannelsLastKernels
from .one_pass import GaussianPrior, draws_and_kl, variances, weighted_squares
from .std_forms import AS_IT_IS, FROM_LOG_STD, StdForm
from .streamed import keyed_draw_and_kl

_TOGETHER = 1 << 22
"""Weights of small networks that are drawn together, at most: what a shared cache holds."""


class FactorisedPosterior(Posterior):
    """q(w) = prod_i N(w_i; mean_i, std_i^2). A family says what stds are made of: ``std_state`` and ``std_form``."""

    std_form: ClassVar[StdForm]

    def __init__(self, layout: Layout, means: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.noise_size = layout.size
        self.mean = nn.Parameter(means.detach().clone())

    def std_state(self) -> Tensor:
        """(P,): the numbers that ``std_form`` makes standard deviations of."""
        raise NotImplementedError

    def stds(self) -> tuple[Tensor, Tensor]:
        """(P,) standard deviations, and the sum of their logarithms."""
        state = self.std_state()
        return self.std_form.std(state), self.std_form.log_std(state).sum()

    def mean_vector(self) -> Tensor:
        """(P,): the means."""
        return self.mean

    def std_vector(self) -> Tensor:
        """(P,): the standard deviations, in kept memory: to be given new memory takes longer than the exponents."""
        state = self.std_state()
        if self.std_form is not FROM_LOG_STD or torch.is_grad_enabled() or not takes(state):
            return self.std_form.std(state)
        return torch.exp(state, out=empty_like(state))

    def variance_vector(self) -> Tensor:
        """(P,): the variances."""
        return variances(self.std_state(), self.std_form)

    def covariance(self) -> Covariance:
        """The variances."""
        return Covariance(self.variance_vector())

    def scaled_square_sum(self, values: Tensor) -> Tensor:
        """sum_i (std_i values_i)^2."""
        return weighted_squares(self.std_state(), values, self.std_form)

    def sample(self, noise: Tensor) -> Tensor:
        """w = mean + std * noise."""
        return torch.addcmul(self.mean, self.std_vector(), noise)

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """As ``sample`` draws them from the same generator; the stds are made once, and no noise is kept.

        Where they are compiled a few are drawn at a time, as rows of one tensor: who keeps one keeps its memory.
        """
        return self._drawn(count, generator, again=False)

    def passing_draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """The same in the same memory."""
        return self._drawn(count, generator, again=True)

    def channels_last_draws(
        self, count: int, generator: torch.Generator | None, kernels: Collection[str]
    ) -> Iterator[dict[str, Tensor]]:
        """As ``passing_draws``; where they are compiled, the kernels are written with channels last, without a copy."""
        return self._drawn(count, generator, again=True, kernels=kernels)

    def _drawn(
        self, count: int, generator: torch.Generator | None, again: bool, kernels: Collection[str] = ()
    ) -> Iterator[dict[str, Tensor]]:
        with torch.no_grad():
            mean, std = self.mean.detach(), self.std_vector()
        if not (is_counted(mean.numel(), mean) and takes(mean, std)):
            for _ in range(count):
                yield self.layout.views(
                    torch.addcmul(mean, std, standard_normal(mean.shape, like=mean, generator=generator))
                )
            return
        laid_out = ChannelsLastKernels(self.layout, kernels)

        def draw(keys: Tensor, rows_of: Tensor | None) -> Tensor:
            return fresh_draws(AS_IT_IS.native, keys, mean, std, rows_of, laid_out.table)

        rows = draws_in_groups(draw, mean.numel(), count, generator, most=_TOGETHER, again=again)
        yield from map(laid_out.views, rows)

    def forward(self, weights: Tensor) -> Tensor:
        """log q(w) = -sum [log std + log(2 pi)/2 + (w - mean)^2 / (2 std^2)]."""
        std, log_std_sum = self.stds()
        squares = ((weights - self.mean) / std).square().sum(-1)
        return -0.5 * squares - log_std_sum - 0.5 * self.layout.size * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """sum log std + P/2 log(2 pi e)."""
        return self.stds()[1] + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    takes_keys = True

    def sample_and_kl(self, noise: Tensor | KeyedNoise | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Draws and KL in one pass: sum [log(p/s) + (s^2 + m^2)/(2 p^2) - 1/2] for prior stds p."""
        gaussian = GaussianPrior.of(prior, self.layout)
        if isinstance(noise, KeyedNoise):
            found = None if gaussian is None else self._keyed(noise, gaussian, prior)
            if found is not None:
                return found
            noise = noise.tensor()
        if gaussian is None or prior.log_std_sum is None:
            return super().sample_and_kl(noise, prior)
        constant = prior.log_std_sum - 0.5 * self.layout.size
        return draws_and_kl(self.mean, self.std_state(), noise, gaussian, constant, self.std_form)

    def _keyed(self, noise: KeyedNoise, gaussian: GaussianPrior, prior: Prior) -> tuple[Tensor, Tensor] | None:
        """One draw and the KL without the noise in memory; None where it cannot be had."""
        if prior.log_std_sum is None:
            return None
        constant = prior.log_std_sum - 0.5 * self.layout.size
        return keyed_draw_and_kl(self.mean, self.std_state(), noise, gaussian, constant, self.std_form)
