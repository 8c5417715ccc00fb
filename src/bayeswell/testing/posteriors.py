"""Checks of posteriors: draws, density, entropy and KL must be of one distribution."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from ..random import make_generator
from ..types import BANK, ENTROPY, FACTORISED, LOG_PROB, POINT, Posterior
from .problems import DOUBLE, lifted, network, normal, require_draws, shapes_of
from .report import Omitted, Suite, require, require_close, require_mean, require_same

_DRAWS = 20_000
_NETWORKS = 500


class Case:
    """The part's posterior over a small network, its parameters moved to generic places."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.model = lifted(network(4, 5, 2), "delta")
        self.start = self.model.posterior.mean_vector().detach().clone()
        self.built = self.build()
        self.posterior = moved(self.build())

    def build(self) -> Posterior:
        """The posterior as it starts."""
        posterior: Posterior = self.part.build(self.model.layout, self.model.prior, self.start)
        return posterior

    def noise(self, rows: int, seed: int = 1) -> Tensor:
        """(D, noise_size)."""
        return torch.randn(rows, self.posterior.noise_size, generator=make_generator(seed), dtype=DOUBLE)

    def need(self, *words: str) -> None:
        """Leave a check out where the part does not provide what it is about."""
        for word in words:
            if word not in self.part.provides:
                raise Omitted(f"it does not provide '{word}'")


@torch.no_grad()
def moved(posterior: Posterior) -> Posterior:
    """Every parameter by about a fifth of itself, so that nothing is at its start."""
    for place, parameter in enumerate(posterior.parameters()):
        away = 0.2 * normal(*parameter.shape, seed=20 + place)
        parameter.copy_(away if not bool(parameter.any()) else parameter * (1 + away))
    return posterior


def starts_at_the_means(case: Case) -> None:
    """``build`` begins at the flat means that it is given, and has the attributes that others read."""
    require_close("mean_vector() at the start", case.built.mean_vector(), case.start)
    require(case.built.layout is case.model.layout, "`layout` is not the one that it was built with")
    for site in case.model.layout.sites:
        require(isinstance(case.built.explain(site), str), "explain(site) gives no text")


def draws_have_the_moments(case: Case) -> None:
    """sample(noise) has the mean mean_vector() and the stds std_vector()."""
    if BANK in case.part.provides:
        raise Omitted("a bank is drawn member by member")
    posterior = case.posterior
    with torch.no_grad():
        weights = posterior.sample(case.noise(_DRAWS))
        mean, std = posterior.mean_vector(), posterior.std_vector()
        require(weights.shape == (_DRAWS, case.model.layout.size), f"sample gives shape {tuple(weights.shape)}")
        require_mean("a draw", weights, mean)
        require_mean("the square of a draw's distance from the mean", (weights - mean).square(), std.square())
        require_close("variance_vector()", posterior.variance_vector(), std.square())


def draws_are_networks(case: Case) -> None:
    """draws() gives every parameter by name, as the generator decides, with the same spread as sample."""
    require_draws(case.posterior, shapes_of(case.model))
    if case.posterior.noise_size == 0:
        return
    layout, posterior = case.model.layout, case.posterior
    networks = posterior.draws(_NETWORKS, make_generator(9))
    with torch.no_grad():
        weights = torch.stack([layout.flatten(tensors) for tensors in networks])
        scaled = (weights - posterior.mean_vector()) / posterior.std_vector()
    require_mean("the scaled square of a drawn network", scaled.square().mean(1), 1.0)


def density_is_that_of_the_draws(case: Case) -> None:
    """E[(w - mean) . d log q / dw] = -P (Stein): log q and the draws are of one distribution."""
    case.need(LOG_PROB)
    with torch.no_grad():
        weights, mean = case.posterior.sample(case.noise(_DRAWS)), case.posterior.mean_vector()
    weights.requires_grad_()
    (slope,) = torch.autograd.grad(case.posterior(weights).sum(), weights)
    require_mean("(w - mean) . d log q / dw", ((weights - mean) * slope).sum(1), -float(weights.shape[1]))
    require_mean("d log q / dw", slope, torch.zeros(weights.shape[1]))


def density_is_gaussian(case: Case) -> None:
    """What is factorised has log q(w) = sum of log N(w; mean, std^2)."""
    case.need(LOG_PROB, FACTORISED)
    posterior = case.posterior
    weights = posterior.sample(case.noise(5))
    z = (weights - posterior.mean_vector()) / posterior.std_vector()
    expected = (-0.5 * z.square() - posterior.std_vector().log() - 0.5 * math.log(2 * math.pi)).sum(1)
    require_close("log q", posterior(weights), expected)


def entropy_is_that_of_the_density(case: Case) -> None:
    """entropy() is E_q[-log q]; of what is factorised, sum of log std + P/2 log(2 pi e)."""
    case.need(ENTROPY)
    with torch.no_grad():
        entropy, std = case.posterior.entropy(), case.posterior.std_vector()
        if FACTORISED in case.part.provides:
            require_close("entropy()", entropy, std.log().sum() + 0.5 * len(std) * math.log(2 * math.pi * math.e))
        case.need(LOG_PROB)
        found = -case.posterior(case.posterior.sample(case.noise(_DRAWS)))
        require_mean("-log q of a draw, against entropy(),", found, entropy.reshape(1))


def kl_is_that_of_the_draws(case: Case) -> None:
    """sample_and_kl gives the draws of sample and E_q[log q - log p] (of a point: -log p)."""
    posterior, prior = case.posterior, case.model.prior
    if POINT in case.part.provides:
        _, kl = posterior.sample_and_kl(None, prior)
        require_close("the KL of a point", kl, -prior.log_prob(posterior.mean_vector()))
        return
    case.need(ENTROPY)
    noise = case.noise(_DRAWS)
    with torch.no_grad():
        weights, kl = posterior.sample_and_kl(noise, prior)
        none, same = posterior.sample_and_kl(None, prior)
        require(none is None and weights is not None, "sample_and_kl gives draws if and only if there is noise")
        assert weights is not None
        require_close("the draws of sample_and_kl", weights, posterior.sample(noise))
        require_close("the KL without noise", same, kl)
        # The entropy has a check of its own.
        require_mean(
            "-entropy() - log p of a draw, against the KL,",
            -posterior.entropy() - prior.log_prob(weights),
            kl.reshape(1),
        )


def state_round_trip(case: Case) -> None:
    """A state loaded into another one gives the same distribution."""
    other = case.build()
    other.load_state_dict(copy.deepcopy(case.posterior.state_dict()))
    require_same("the mean after loading", other.mean_vector().detach(), case.posterior.mean_vector().detach())
    require_same("the stds after loading", other.std_vector().detach(), case.posterior.std_vector().detach())
    pairs = [next(iter(q.draws(1, make_generator(2)))) for q in (other, case.posterior)]
    require_same("a draw after loading", dict(pairs[0]), dict(pairs[1]))


def gradients_reach_every_parameter(case: Case) -> None:
    """What a draw is used for moves each of the parameters."""
    parameters = dict(case.posterior.named_parameters())
    if not parameters:
        raise Omitted("it has no parameters: it is not trained itself")
    weights = case.posterior.sample(case.noise(20))  # enough for each component of a mixture
    loss = (weights * normal(*weights.shape, seed=8)).sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        require(bool(gradient.isfinite().all()), f"the gradient of '{name}' is not finite")
        require(bool(gradient.any()), f"no gradient of a draw reaches '{name}'")


_CHECKS = (
    starts_at_the_means,
    draws_have_the_moments,
    draws_are_networks,
    density_is_that_of_the_draws,
    density_is_gaussian,
    entropy_is_that_of_the_density,
    kl_is_that_of_the_draws,
    state_round_trip,
    gradients_reach_every_parameter,
)
SUITE = Suite(Case, _CHECKS)
