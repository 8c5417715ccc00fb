"""The evidence lower bound of the final posterior, with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.protocols import ENTROPY, LOG_PROB, POINT, Likelihood
from ..core.random import make_generator, standard_normal
from ..nn import BayesianModule
from ..prediction import nll_matrix
from .data import Batch
from .devices import device_of

DRAWS = 16
MOST_ROWS, LEAST_ROWS, SHARE = 2000, 256, 0.05


@dataclass(frozen=True)
class FinalELBO:
    """log p(D) >= elbo = -(N E_q[nll] + KL(q || p)) in nats, under the given prior and at temperature 1.

    Of a point estimate it is no bound but the log joint density log p(D | w) + log p(w), and ``kl`` is -log p(w).

    Args:
        error: standard error from the draws and from the rows, where these are fewer than N.
        nll: E_q[nll], nats per datum.
        rows: examples that were used, all or a random choice.
    """

    elbo: float
    error: float
    nll: float
    kl: float
    draws: int
    rows: int
    dataset_size: int
    is_bound: bool = True

    def __str__(self) -> str:
        name = "ELBO" if self.is_bound else "log joint density"
        return f"{name} {self.elbo:,.1f} ± {self.error:,.1f} nats"


def final_elbo(
    model: BayesianModule, losses: Tensor, dataset_size: int, seed: int = 0, sample_weight: Tensor | None = None
) -> FinalELBO | None:
    """Return the ELBO from the losses of ``nll_of_draws``; None for a posterior without a density.

    With losses l of D draws and S rows, the variance of their mean is Var_d[mean_s l] / D for the draws plus
    Var_s[mean_d l] / S (1 - S / N) for the rows.
    """
    if not model.posterior.provides & {POINT, ENTROPY, LOG_PROB}:
        return None
    losses = losses if sample_weight is None else losses * sample_weight.double().cpu()
    count, size = losses.shape
    kl, kl_variance = kl_to_prior(model, seed)
    over_draws = float(losses.mean(1).var()) / count if count > 1 else 0.0
    over_rows = float(losses.mean(0).var()) / size * max(0.0, 1 - size / dataset_size) if size > 1 else 0.0
    nll = float(losses.mean())
    error = math.sqrt(dataset_size**2 * (over_draws + over_rows) + kl_variance)
    return FinalELBO(
        -(dataset_size * nll + kl), error, nll, kl, count, size, dataset_size, POINT not in model.posterior.provides
    )


def nll_of_draws(model: BayesianModule, likelihood: Likelihood, rows: Batch, draws: int, seed: int) -> Tensor:
    """(D, S): the NLL of each row under each drawn network, without example weights."""
    return nll_matrix(model, rows.inputs, rows.targets, likelihood, draws, batch_size=500, seed=seed).double()


@torch.no_grad()
def kl_to_prior(model: BayesianModule, seed: int = 0, draws: int = 100) -> tuple[float, float]:
    """KL(q || p) and the variance of that number: 0 where it has a closed form."""
    posterior, prior = model.posterior, model.prior
    if POINT in posterior.provides:
        return -float(prior.log_prob(posterior.mean[None])), 0.0
    if ENTROPY in posterior.provides and prior.has_closed_form:
        return float(posterior.rsample_and_kl(None, prior)[1]), 0.0
    generator = make_generator(seed, device_of(model))
    ratios = []
    for _ in range(draws):
        noise = standard_normal((1, posterior.noise_size), like=posterior.mean, generator=generator)
        weights = posterior.rsample(noise)
        log_q = -posterior.entropy() if ENTROPY in posterior.provides else posterior.log_prob(weights)[0]
        ratios.append(float(log_q) - float(prior.log_prob(weights)))
    values = torch.tensor(ratios, dtype=torch.float64)
    return float(values.mean()), float(values.var()) / draws


def rows_to_measure(dataset_size: int, epochs: int) -> int:
    """Rows for ``DRAWS`` draws in about a twentieth of the passes of training; all rows of small data."""
    affordable = int(SHARE * 3 * epochs * dataset_size / DRAWS)
    return min(dataset_size, MOST_ROWS, max(LEAST_ROWS, affordable))
