"""Checks of divergences: value and gradient in expectation, against the closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..random import make_generator
from ..types import WEIGHT_SAMPLE
from .problems import DOUBLE, PRIOR_STD, lifted, network
from .report import Omitted, Suite, require, require_close, require_mean

_REPETITIONS, _DRAWS = 600, 4


class Case:
    """KL(q, p) of a mean-field q and a Normal p, and of many estimates the values and gradients."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.model = lifted(network(4, 5, 2))
        self.posterior = self.model.posterior
        self.parameters = list(self.posterior.parameters())

    def closed_form(self) -> Tensor:
        """Sum of log(p/s) + (s^2 + m^2) / (2 p^2) - 1/2."""
        mean, std = self.posterior.mean_vector(), self.posterior.std_vector()
        return ((PRIOR_STD / std).log() + (std.square() + mean.square()) / (2 * PRIOR_STD**2) - 0.5).sum()

    def noise(self, seed: int, rows: int = _DRAWS) -> Tensor:
        """(D, P) standard normal numbers."""
        return torch.randn(rows, self.posterior.noise_size, generator=make_generator(seed), dtype=DOUBLE)

    def summary(self, value: Tensor) -> Tensor:
        """The value, and for each parameter the sum of its gradient and its projection on a generic direction."""
        found = torch.autograd.grad(value, self.parameters, materialize_grads=True, allow_unused=True)
        sums = [gradient.sum() for gradient in found]
        along = [gradient @ self.noise(50, 1)[0] for gradient in found]
        return torch.stack([value.detach(), *sums, *along])


def draws_are_those_of_the_noise(case: Case) -> None:
    """The weights that come back are the posterior's draws for the noise given, for the estimator to share."""
    noise = case.noise(1)
    weights, kl = case.part(case.posterior, case.model.prior, noise)
    require(kl.dim() == 0, f"the KL has shape {tuple(kl.shape)}, expected a single number")
    require(weights is not None, "it gives no draws back though noise was given: the estimator needs them")
    require_close("the draws", weights, case.posterior.sample(noise))


def works_without_draws(case: Case) -> None:
    """Without noise it gives None and the KL, for estimators that draw no weights."""
    if WEIGHT_SAMPLE in case.part.needs:
        raise Omitted(f"it `needs` '{WEIGHT_SAMPLE}'")
    weights, kl = case.part(case.posterior, case.model.prior, None)
    require(weights is None, "it gives draws back though there was no noise")
    require_close("the KL without draws", kl, case.closed_form())


def mean_is_the_kl(case: Case) -> None:
    """Value and gradient are those of the KL on average."""
    expected = case.summary(case.closed_form())
    found = [
        case.summary(case.part(case.posterior, case.model.prior, case.noise(100 + repetition))[1])
        for repetition in range(_REPETITIONS)
    ]
    samples = torch.stack(found)
    require_mean("the KL", samples[:, :1], expected[:1])
    require_mean("the gradient of the KL", samples[:, 1:], expected[1:])


_CHECKS = (draws_are_those_of_the_noise, works_without_draws, mean_is_the_kl)
SUITE = Suite(Case, _CHECKS)
