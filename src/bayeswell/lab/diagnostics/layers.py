"""Posterior of each Bayesian parameter: its width against the prior, its share of the KL, its signal."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from ...core.errors import Unsupported
from ...core.protocols import ENTROPY, FACTORIZED, POINT, Prior
from ...core.random import make_generator, standard_normal
from ...nn import BayesianModule
from ...posteriors import Empirical, Mixture
from ...priors.gaussian import GaussianPrior
from ...priors.independent import IndependentPrior, JoinedPrior
from ...training.elbo import kl_to_prior

DRAWS = 100
AT_ONCE = 1 << 21


@dataclass(frozen=True)
class LayerRow:
    """One Bayesian parameter of the network.

    Args:
        std_ratio: mean over its weights of posterior std / prior std: 1 is the prior, near 0 deterministic.
        signal_to_noise: mean |mean| over mean std.
        kl: KL of the weights' marginals from the prior in nats; None where it is not known.
    """

    name: str
    size: int
    std_ratio: float
    signal_to_noise: float
    kl: float | None


@dataclass(frozen=True)
class LayerSummary:
    """All parameters. KL(q || p) is the sum of their KLs plus ``correlation``.

    The prior has independent weights, so KL(q || p) = sum_i KL(q_i || p_i) + (sum_i H[q_i] - H[q]). The last bracket,
    the total correlation, belongs to no parameter alone; it is 0 for independent weights.
    """

    layers: tuple[LayerRow, ...]
    kl: float | None
    correlation: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@torch.no_grad()
def layer_summary(model: BayesianModule, *, seed: int = 0) -> LayerSummary:
    """Return the posterior of each parameter; ``seed`` serves KLs without a closed form.

    Raises ``Unsupported`` for a point estimate.
    """
    posterior, prior = model.posterior, model.prior
    if POINT in posterior.provides:
        raise Unsupported(f"posterior '{posterior.part.name}' has no stds; layer_summary needs a distribution")
    std, prior_std = posterior.std().double(), prior.std().double()
    mean, kl = _mean_of(model), None
    if ENTROPY in posterior.provides:
        densities = mean_log_densities(prior, mean, std, seed)
        if densities is not None:
            # A std that underflowed keeps a finite logarithm, as in the posterior itself.
            entropies = std.clamp_min(torch.finfo(torch.float32).tiny).log() + 0.5 * math.log(2 * math.pi * math.e)
            kl = -entropies - densities
    rows = [
        LayerRow(
            site.name,
            site.size,
            float((std[place] / prior_std[place]).mean()),
            float(mean[place].abs().mean() / std[place].mean()),
            None if kl is None else float(kl[place].sum()),
        )
        for site, place in zip(model.layout.sites, model.layout.slices.values(), strict=True)
    ]
    if kl is None:
        return LayerSummary(tuple(rows), None, None)
    marginals = float(kl.sum())
    if FACTORIZED in posterior.provides:
        return LayerSummary(tuple(rows), marginals, 0.0)
    total = kl_to_prior(model, seed)[0]
    return LayerSummary(tuple(rows), total, total - marginals)


def _mean_of(model: BayesianModule) -> Tensor:
    # Sets of networks and mixtures have means of weights, but no mean network.
    posterior = model.posterior
    if isinstance(posterior, Empirical):
        return posterior.weights.double().mean(0)
    if isinstance(posterior, Mixture):
        return torch.stack([component.mean for component in posterior.each()]).mean(0).double()
    return posterior.mean.double()


@singledispatch
def mean_log_densities(prior: Prior, mean: Tensor, std: Tensor, seed: int = 0) -> Tensor | None:
    """(P,): E[log p(w_i)] for w_i ~ N(mean_i, std_i^2); None for a prior whose weights are not independent."""
    return None


@mean_log_densities.register
def _(prior: GaussianPrior, mean: Tensor, std: Tensor, seed: int = 0) -> Tensor:
    # -((m_i - c_i)^2 + std_i^2) / (2 s_i^2) - log s_i - log(2 pi) / 2
    scale, center = prior.std().double(), prior.center().double()
    squares = (mean - center).square() + std.square()
    return -0.5 * squares / scale.square() - scale.log() - 0.5 * math.log(2 * math.pi)


@mean_log_densities.register
def _(prior: IndependentPrior, mean: Tensor, std: Tensor, seed: int = 0) -> Tensor:
    around = prior.around.double()
    if prior.has_closed_form:
        return prior.part.mean_log_density(mean - around, std)
    generator, total = make_generator(seed, mean.device), torch.zeros_like(mean)
    at_once = max(1, AT_ONCE // len(mean))
    for start in range(0, DRAWS, at_once):
        noise = standard_normal((min(at_once, DRAWS - start), len(mean)), like=mean, generator=generator)
        total += prior.part.log_density(mean + std * noise - around).sum(0)
    return total / DRAWS


@mean_log_densities.register
def _(prior: JoinedPrior, mean: Tensor, std: Tensor, seed: int = 0) -> Tensor | None:
    pieces = zip(prior.runs, mean.split(prior.sizes), std.split(prior.sizes), strict=True)
    found = [mean_log_densities(part, m, s, seed) for part, m, s in pieces]
    return None if any(part is None for part in found) else torch.cat([part for part in found if part is not None])
