"""May the posterior be believed? k-hat for a density, R-hat and effective draws for chains."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellWarning, CompositionError, require_count, require_positive
from ..lifting import BayesianModule
from ..metrics.chains import ESS_PER_CHAIN, R_HAT_LIMIT, ChainReport
from ..plain import plain
from ..random import make_generator, standard_normal
from ..types import LOG_PROB, Inputs, Likelihood
from .losses import DataLoss
from .pareto import k_hat, k_hat_limit
from .records import Record


@dataclass(frozen=True)
class ParetoReport(Record):
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
        return {**super().as_json(), "good": self.good, "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Trust(Record):
    """What is known of a posterior's fidelity; ``trusted`` is for machines (None: nothing was checked)."""

    pareto: ParetoReport | None = None
    chains: ChainReport | None = None

    @property
    def trusted(self) -> bool | None:
        """Whether all that was checked is well."""
        if self.pareto is None and self.chains is None:
            return None
        return not self.warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that is wrong."""
        return tuple(line for part in (self.pareto, self.chains) if part is not None for line in part.warnings)

    def as_json(self) -> dict[str, Any]:
        """The parts, the thresholds of the chains, ``trusted`` and ``warnings``."""
        chains = self.chains
        told = None
        if chains is not None:
            limits = {"r_hat_limit": R_HAT_LIMIT, "ess_limit": 2 * chains.chains * ESS_PER_CHAIN}
            told = {**plain(chains, finite=True), **limits, "good": chains.converged, "warnings": list(chains.warnings)}
        return {
            "trusted": self.trusted,
            "warnings": list(self.warnings),
            "pareto": None if self.pareto is None else self.pareto.as_json(),
            "chains": told,
        }


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


def trust(*, pareto: ParetoReport | None = None, chains: ChainReport | None = None) -> Trust:
    """Both in one record; whatever is above the usual limits is warned of."""
    found = Trust(pareto, chains)
    for line in found.warnings:
        warnings.warn(line, BayeswellWarning, stacklevel=2)
    return found
