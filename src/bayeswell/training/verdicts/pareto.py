"""k-hat: how well q stands in for the posterior, from the importance ratios of its draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import CompositionError, require_count, require_positive
from ...lifting import BayesianModule
from ...metrics.pareto import k_hat, k_hat_limit
from ...plain import fields_of
from ...predictive.losses import DataLoss
from ...random import make_generator, standard_normal
from ...types import LOG_PROB, Inputs, Likelihood

MOST_WEIGHTS = 500
"""A Gaussian whose variances are 10 % off has log ratios with a std of sqrt(P / 2) / 10: with more weights than this
k-hat is above its limit for every q that is not exact, however well it predicts."""


@dataclass(frozen=True)
class ParetoReport:
    """How well q stands in for the posterior, from the importance ratios of its draws.

    ``k_hat`` above ``limit`` (0.7, less for few draws) means that q misses part of the posterior; it is -inf (None in
    JSON) if the ratios of the tail are all equal, which is as good as it gets. ``elbo`` = mean log ratio with its
    standard error, ``log_evidence`` = log mean ratio (biased low, of no use above the limit), both in nats.
    """

    k_hat: float
    limit: float
    draws: int
    examples: int
    temperature: float
    elbo: float
    elbo_error: float
    log_evidence: float

    @property
    def good(self) -> bool:
        """Whether k-hat is at most the limit."""
        return self.k_hat <= self.limit

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line if it is not."""
        if self.good:
            return ()
        note = f"k-hat {self.k_hat:.2f} > {self.limit:.2f}: the posterior is far from the true one"
        return (f"{note}; its stds, and an ELBO as evidence, are not to be trusted (try a richer posterior)",)

    def as_json(self) -> dict[str, Any]:
        """The fields, ``good`` and ``warnings``."""
        return {**fields_of(self, finite=True), "good": self.good, "warnings": list(self.warnings)}


def why_no_k_hat(model: BayesianModule) -> str:
    """Why k-hat is not part of what a fit says at its end."""
    part, size = model.posterior_part, model.layout.size
    if LOG_PROB not in part.provides:
        return f"posterior '{part.name}' has no density"
    if size > MOST_WEIGHTS:
        return f"{size:,} weights: above {MOST_WEIGHTS} only an exact posterior passes, however well another predicts"
    return "each draw needs a pass over all the training data; result.pareto_report(data) makes them"


def importance_ratios(
    model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], *, draws: int = 400,
    temperature: float = 1.0, batch_size: int | None = None, seed: int = 0,
) -> Tensor:  # fmt: skip
    """(S,): log p(D given w) / T + log p(w) - log q(w) for w ~ q, over all of the training data, in float64."""
    require_count("importance ratios", "draws", draws)
    require_positive("importance ratios", "temperature", temperature)
    posterior = model.posterior
    if LOG_PROB not in model.posterior_part.provides:
        raise CompositionError(
            f"importance ratios need the density of q, which posterior '{model.posterior_part.name}' does not have; "
            "look at the chains instead (R-hat, effective draws)"
        )
    loss = DataLoss(model, likelihood, data, batch_size)
    generator = make_generator(seed, loss.home.device)
    ratios = []
    with torch.no_grad():
        for _ in range(draws):
            noise = standard_normal((1, posterior.noise_size), like=posterior.mean_vector(), generator=generator)
            weights = posterior.sample(noise)
            log_joint = float(model.prior.log_prob(weights)) - loss.examples * loss.at(weights[0], {}) / temperature
            ratios.append(log_joint - float(posterior(weights)))
    return torch.tensor(ratios, dtype=torch.float64)


def pareto_report(
    model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], *, draws: int = 400,
    temperature: float = 1.0, batch_size: int | None = None, seed: int = 0,
) -> ParetoReport:  # fmt: skip
    """k-hat of q against the (tempered) posterior given all the training data (Yao et al. 2018).

    Costs one pass over the data a draw. In high dimensions k-hat is large even for a q that predicts well: it asks for
    all weights at once. Parameters without a posterior, and learned noise, stay where they are.
    """
    ratios = importance_ratios(
        model, likelihood, data, draws=draws, temperature=temperature, batch_size=batch_size, seed=seed
    )
    examples = len(data[1])
    error = float(ratios.std() / math.sqrt(draws))
    evidence = float(ratios.logsumexp(0)) - math.log(draws)
    return ParetoReport(
        k_hat(ratios), k_hat_limit(draws), draws, examples, temperature, float(ratios.mean()), error, evidence
    )
