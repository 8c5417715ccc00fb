"""Checks of a trained posterior; each runs and fails on its own."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import FitWarning
from ..core.protocols import Inputs, Likelihood
from ..core.pytree import tree_index, tree_map
from ..core.random import make_generator
from ..metrics import chain_report
from ..nn import BayesianModule, evaluation_mode
from ..posteriors import Empirical
from ..prediction import outputs
from .data import Batch
from .devices import device_of

LEAST_EFFECTIVE = 25
"""Effective draws below which R-hat cannot tell whether chains have mixed."""


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Args:
        ok: None if it could not be measured.
        message: what was found.
        value: the number behind it.
    """

    name: str
    ok: bool | None
    message: str
    value: float = math.nan

    @classmethod
    def not_measured(cls, name: str, error: Exception) -> Check:
        return cls(name, None, f"not measured: {' '.join(str(error).split())[:200]}")


@dataclass(frozen=True)
class Trained:
    """A trained model with some rows of its training data.

    Args:
        losses: (D, S): NLL of each row under each drawn network.
        chains: members of a sampler, whose draws follow each other in the posterior; 0 for other methods.
        temperature: measured temperature of the sampler; NaN if unknown.
        sampler_warnings: what the samplers found wrong with themselves.
    """

    model: BayesianModule
    likelihood: Likelihood
    rows: Batch
    losses: Tensor
    chains: int = 0
    temperature: float = math.nan
    sampler_warnings: Sequence[str] = ()


def check_fit(trained: Trained) -> tuple[Check, ...]:
    """Run all checks and warn about those that fail."""
    probes: dict[str, Callable[[Trained], Check | None]] = {"baseline": _better_than_constant}
    if trained.chains:
        probes |= {"mixing": _chains_have_mixed, "sampler temperature": _sampler_temperature}
    found = []
    for name, probe in probes.items():
        try:
            check = probe(trained)
        except (RuntimeError, ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
            check = Check.not_measured(name, error)
        if check is not None:
            found.append(check)
            if check.ok is False:
                warnings.warn(check.message, FitWarning, stacklevel=2)
    return tuple(found)


def _better_than_constant(trained: Trained) -> Check | None:
    losses, weight = trained.losses, trained.rows.sample_weight
    mixed = math.log(len(losses)) - (-losses).logsumexp(0)
    nll = float((mixed if weight is None else mixed * weight.double().cpu()).mean())
    constant = constant_nll(trained)
    if constant is None:
        return None
    learned = nll < constant - 0.01
    message = f"NLL {nll:.3g} on training data, the best constant prediction has {constant:.3g}"
    if not learned:
        message = f"the model has learned nothing: {message}; train longer or change lr"
        if trained.likelihood.supports("mean_and_variance") and not trained.likelihood.is_discrete:
            message += "; if targets are far from unit scale: standardize=True"
    return Check("baseline", learned, message, nll - constant)


def constant_nll(trained: Trained) -> float | None:
    """The least mean NLL with the same outputs for all rows; None for fewer than 5 rows per output."""
    rows = trained.rows
    device = device_of(trained.model)
    first = next(iter(outputs(trained.model, tree_index(rows.inputs, slice(2)), 1, make_generator(0, device))))
    if first[0].numel() * 5 > len(rows.targets):
        return None
    constant = torch.zeros_like(first[:1], dtype=torch.float64).requires_grad_()
    likelihood = copy.deepcopy(trained.likelihood).double()
    found = minimize_nll(likelihood, constant, rows.targets.to(device), rows.sample_weight)
    return found if math.isfinite(found) else None


def minimize_nll(likelihood: Likelihood, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Minimize the mean NLL over learned noise, and over the outputs if they need gradients; all in float64.

    Args:
        outputs: (S, ...), or (1, ...) for all examples.
    """
    parameters = [p for p in (outputs, *likelihood.parameters()) if p.requires_grad]
    targets = targets.double() if targets.is_floating_point() else targets
    search = torch.optim.LBFGS(parameters, max_iter=100, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        losses = likelihood.nll(outputs.expand(len(targets), *outputs.shape[1:]), targets)
        value = losses.mean() if weights is None else (losses * weights.to(losses)).mean()
        value.backward()
        return value

    with torch.enable_grad():
        search.step(loss)
        return loss().item()


def _chains_have_mixed(trained: Trained) -> Check:
    # R-hat and effective draws of predictions: weights have symmetries.
    draws = _predictions(trained.model, trained.likelihood, tree_index(trained.rows.inputs, slice(64)))
    chains = trained.chains
    draws = draws.view(chains, len(draws) // chains, *draws.shape[1:])
    kept = f"{draws.shape[0] * draws.shape[1]} draws of {chains} chain{'s' if chains > 1 else ''}"
    if draws.shape[1] < 4:
        return Check("mixing", False, f"whether the sampler has mixed cannot be told from {kept}; train longer", 0.0)
    report = chain_report(draws)
    if math.isnan(report.r_hat):
        return Check("mixing", False, "all draws of the sampler are equal: it never moved; raise lr", 0.0)
    if report.median_ess < max(LEAST_EFFECTIVE, report.ess_limit):
        found = f"whether the sampler has mixed cannot be told: {report.median_ess:.0f} effective draws ({kept})"
        return Check("mixing", False, f"{found}; train longer or use more members", report.median_ess)
    numbers = f"R-hat {report.r_hat:.2f}, {report.median_ess:.0f} effective draws ({kept})"
    if report.r_hat > report.r_hat_limit:
        return Check("mixing", False, f"the chains have not mixed: {numbers}; train longer", report.r_hat)
    return Check("mixing", True, numbers, report.r_hat)


@torch.no_grad()
def _predictions(model: BayesianModule, likelihood: Likelihood, inputs: Inputs) -> Tensor:
    # (M, S, ...): class probabilities or means of each network of a set, in the order it was kept.
    posterior, found = model.posterior, []
    if not isinstance(posterior, Empirical):
        raise TypeError(f"posterior '{posterior.part.name}' is no set of draws")
    inputs = tree_map(lambda tensor: tensor.to(device_of(model)), inputs)
    with evaluation_mode(model):
        for index in range(posterior.num_networks):
            out = model.call(posterior.network(index), inputs)
            if likelihood.supports("probabilities"):
                out = likelihood.probabilities(out)
            elif likelihood.supports("mean_and_variance"):
                out = likelihood.mean_and_variance(out)[0]
            found.append(out.cpu())
    return torch.stack(found)


def _sampler_temperature(trained: Trained) -> Check | None:
    if trained.sampler_warnings:
        return Check("sampler temperature", False, trained.sampler_warnings[0], trained.temperature)
    if math.isnan(trained.temperature):
        return None
    return Check("sampler temperature", True, f"measured temperature {trained.temperature:.3g}", trained.temperature)
