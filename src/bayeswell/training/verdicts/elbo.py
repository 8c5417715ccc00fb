"""The evidence lower bound of the posterior that training ended with, and the error of the number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import CompositionError, DataError
from ...lifting import BayesianModule
from ...plain import fields_of
from ...predictive.evaluate import nll_matrix
from ...random import make_generator, standard_normal
from ...types import ENTROPY, LOG_PROB, POINT, Inputs, Likelihood

ELBO, LOG_JOINT = "elbo", "log joint"
_KL_DRAWS, _KL_NUMBERS = 200, 2_000_000
_AT_ONCE = 250_000
"""Numbers of draws that are made together; of a larger network one draw at a time."""


@dataclass(frozen=True)
class FinalELBO:
    """-(N E_q[nll] + T KL(q, p)) in nats, of the final q: N times what training minimised, with the sign of evidence.

    ``elbo`` is at the run's ``temperature`` T, ``elbo_at_one`` at 1, where it is a lower bound of log p(D);
    ``error`` is the standard error of both: of the draws, and of the ``examples`` that stand for all ``dataset_size``
    if they are fewer. ``nll`` is E_q[nll] in nats per datum, of the linearised network where the model predicts so;
    ``kl`` is in nats, in closed form where there is one. What a point ends with is no bound: ``kind`` is "log joint",
    ``kl`` is -log p(w), and ``elbo`` is log p(D given w) + T log p(w).
    """

    kind: str
    elbo: float
    elbo_at_one: float
    error: float
    temperature: float
    nll: float
    kl: float
    draws: int
    examples: int
    dataset_size: int

    def as_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return fields_of(self, finite=True)

    def __str__(self) -> str:
        name = "ELBO" if self.kind == ELBO else "log joint"
        return (
            f"{name} {self.elbo:,.0f} ± {self.error:,.0f} nats at temperature {self.temperature:g}"
            f" ({self.elbo_at_one:,.0f} at 1)"
        )


def why_no_elbo(model: BayesianModule) -> str:
    """Why this posterior has no ELBO; empty if it has one."""
    provides = model.posterior_part.provides
    if POINT in provides or ENTROPY in provides or LOG_PROB in provides:
        return ""
    return f"posterior '{model.posterior_part.name}' has no density, and so no ELBO"


def elbo_of(
    model: BayesianModule, losses: Tensor, dataset_size: int, temperature: float, weights: Tensor | None = None
) -> FinalELBO:
    """From the NLL of every example under each draw (D, S)."""
    reason = why_no_elbo(model)
    if reason:
        raise CompositionError(f"{reason}; look at its chains or members (result.trust)")
    each = losses.double() if weights is None else losses.double() * weights.double().cpu()
    draws, examples = each.shape
    kl, kl_variance = divergence_of(model)
    # Draws and examples are crossed: the variance of the mean is that over draws plus that over examples.
    over_draws = float(each.mean(1).var()) / draws if draws > 1 else 0.0
    left = 1 - examples / dataset_size
    over_examples = float(each.mean(0).var()) / examples * max(0.0, left) if examples > 1 else 0.0
    nll = float(each.mean())
    error = math.sqrt(dataset_size**2 * (over_draws + over_examples) + kl_variance)
    kind = LOG_JOINT if POINT in model.posterior_part.provides else ELBO
    tempered, at_one = (-(dataset_size * nll + t * kl) for t in (temperature, 1.0))
    return FinalELBO(kind, tempered, at_one, error, temperature, nll, kl, draws, examples, dataset_size)


def measure_elbo(
    model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], *, temperature: float = 1.0,
    draws: int = 100, batch_size: int | None = 1000, seed: int = 0, dataset_size: int | None = None,
) -> FinalELBO:  # fmt: skip
    """The same over given training data; ``dataset_size`` if they are only some of them."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(f"data of type {type(data).__name__}; give (inputs, targets), or (inputs, targets, weights)")
    losses = nll_matrix(model, data[0], data[1], likelihood, draws=draws, batch_size=batch_size, seed=seed)
    weights = torch.as_tensor(data[2]) if len(data) == 3 else None
    return elbo_of(model, losses, dataset_size or losses.shape[1], temperature, weights)


def has_bound(model: BayesianModule) -> bool:
    """Whether the posterior has a KL to the prior: not a point, nor a bank of networks."""
    return not why_no_elbo(model) and POINT not in model.posterior_part.provides


def bound_per_datum(expected_nll: float, kl: float, dataset_size: int, temperature: float) -> dict[str, float]:
    """-ELBO per datum on any data, in nats: E_q[nll] + KL / N with N the *training* examples, and with T KL / N.

    As k-tied (Swiatkowski et al. 2020) has it on validation and test data: E_q[nll] is the mean NLL of single draws
    there, not the NLL of their average.
    """
    return {
        "expected_nll": expected_nll,
        "minus_elbo": expected_nll + kl / dataset_size,
        "minus_elbo_tempered": expected_nll + temperature * kl / dataset_size,
    }


@torch.no_grad()
def divergence_of(model: BayesianModule) -> tuple[float, float]:
    """KL(q, p) and the variance of that number: 0 where it has a closed form."""
    posterior, provides = model.posterior, model.posterior_part.provides
    if POINT in provides:
        return -float(model.prior.log_prob(posterior.mean_vector()[None])), 0.0
    if ENTROPY in provides and model.prior.analytic:
        return float(posterior.sample_and_kl(None, model.prior)[1]), 0.0
    like = posterior.mean_vector()
    generator = make_generator(0, like.device)
    found: list[Tensor] = []
    draws = min(_KL_DRAWS, max(10, _KL_NUMBERS // max(1, len(like))))
    block = max(1, _AT_ONCE // max(1, len(like)))
    for begun in range(0, draws, block):
        size = (min(block, draws - begun), posterior.noise_size)
        weights = posterior.sample(standard_normal(size, like=like, generator=generator))
        log_q = -posterior.entropy() if ENTROPY in provides else posterior(weights)
        found.append(log_q.double() - model.prior.log_prob(weights).double())
    values = torch.cat(found)
    return float(values.mean()), float(values.var()) / draws
