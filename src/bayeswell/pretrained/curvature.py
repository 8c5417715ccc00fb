"""The Laplace approximation of a network that was trained elsewhere.

    q = N(w, P^-1),   P = (N/T) F + a P0

at the given weights w, which stay as they are (``post_hoc.laplace`` has F and its structures): one pass over the data
gives F, and the posterior and the evidence of every prior precision a P0 follow from it without another.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from ..composition import check_likelihood
from ..errors import BayeswellWarning, CompositionError, NetworkError, SettingError, nearest
from ..lifting import FROZEN, BayesianModule, Saved, Where, bayesian
from ..likelihoods import LIKELIHOODS
from ..nested import map_tensors
from ..post_hoc import LaplaceApproximation
from ..post_hoc.evidence import ALL, BY_LAYER, MARGINAL_LIKELIHOOD, OF_THE_MODEL, at_an_end, highest, same_factor
from ..post_hoc.laplace import Curvature
from ..predictive import draws_outputs, predictive_nll
from ..priors import FlatPrior, Normal, PriorChoice
from ..random import derive_seed, make_generator
from ..training import Batches, as_batches
from ..training.as_given import learned_noise, outputs_and_targets, settle_noise
from ..training.examples import dtype_of
from ..types import LINEARISED, Inputs
from .result import PostHoc

HELD_OUT = "held_out"
CHOICES = (MARGINAL_LIKELIHOOD, BY_LAYER, HELD_OUT, OF_THE_MODEL)
_POINTS, _TOLERANCE = 9, 0.2
"""Of the search on held-out data: three quarters of a decade, then a fifth of the factor."""
_NETWORKS, _OUTPUTS = 20, 200
"""Draws there, of networks or of outputs. -log of an average over D draws is too large by Var / 2D, which asks for
narrower priors than the data do; so more are taken where they cost little."""


def laplace(
    net: nn.Module,
    data: Any,
    likelihood: Any = "categorical",
    *,
    structure: str = "kronecker",
    where: Where = "all",
    prior: PriorChoice | None = None,
    prior_precision: str | float | None = None,
    held_out: Any = None,
    temperature: float = 1.0,
    batch_size: int = 100,
    prediction: str = LINEARISED,
    draws: int | None = None,
    max_weights: int = 5000,
    seed: int = 0,
) -> PostHoc:
    """A Gaussian at the weights of a trained network, its covariance from the curvature there. Nothing is trained.

    Args:
        net: a network that was trained in any way; it is copied, not changed. Layers are in evaluation mode.
        data: what it was trained on: ``(inputs, targets)``, a Dataset or a DataLoader, which is read batch by batch.
        likelihood: as in ``fit``. Noise that it learns is set to its maximum-likelihood value at the given weights.
        structure: "kronecker", "diagonal", or "full" (up to ``max_weights`` weights).
        where: which parameters are Bayesian, as in ``bayesian``; all others stay as given.
        prior: as in ``bayesian``, Gaussian. None: N(0, 1); where its precision is chosen, a normal one whose std is the
            root mean square of the given weights.
        prior_precision: by which the prior's own precision is multiplied (of N(0, 1): the precision itself); or how to
            choose it: by "marginal_likelihood", the same for each parameter "by_layer", by the NLL of "held_out" data;
            or 1 ("prior"). None: by held-out data if there are any, else by marginal likelihood.
        held_out: data as ``data``, which the network was not trained on.
        temperature: 1 is Bayes' rule; below 1 a cold posterior, (N/T) F.
        batch_size: examples at a time; a DataLoader keeps its own.
        prediction: what predictions average: the network to first order in its weights ("linearised"), or "sampled".
        draws: random directions for the curvature in the outputs; None: exact up to 100 outputs an example.
        seed: decides the order of the data and those directions.
    """
    _require_network(net)
    usual = MARGINAL_LIKELIHOOD if held_out is None else HELD_OUT
    how = _choice(usual if prior_precision is None else prior_precision)
    if (how == HELD_OUT) != (held_out is not None):
        raise SettingError(
            "laplace: prior_precision = 'held_out' needs held_out=(inputs, targets) that the network was not trained on"
            if held_out is None
            else f"laplace: held_out has no use with prior_precision = {prior_precision!r}; use 'held_out'"
        )
    part = LaplaceApproximation(
        structure, temperature, draws, max_weights=max_weights, prior_precision=OF_THE_MODEL if how == HELD_OUT else how
    )
    model = _lifted(net, where, prior, prediction, chosen=how in (MARGINAL_LIKELIHOOD, BY_LAYER, HELD_OUT))
    own = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    check_likelihood(own, "post_hoc", part)
    part.check(model)
    batches = as_batches(data, batch_size, dtype_of(net))
    tested = None if held_out is None else as_batches(held_out, batch_size, dtype_of(net))
    order = derive_seed(seed, "ending")
    if isinstance(own, nn.Module):
        own.to(model.posterior.mean_vector().device)
    if learned_noise(own):
        settle_noise(own, *outputs_and_targets(model, own, _placed(model, batches, order)))
    generator = make_generator(derive_seed(seed, "directions"), model.posterior.mean_vector().device)
    curvature = part.curvature(model, own, _placed(model, batches, order), batches.examples, generator)
    if tested is not None:
        factors = same_factor(_best_on(tested, model, own, curvature, seed))
    else:
        factors = curvature.factors(part.prior_precision)
    posterior, evidence = curvature.posterior(factors), curvature.log_evidence(factors)
    by_site = {site.name: factors[ALL if structure == "full" else site.name] for site in model.layout.sites}
    if how in (MARGINAL_LIKELIHOOD, BY_LAYER, HELD_OUT):
        _warn_of_ends(by_site)
    assert isinstance(model.prior, FlatPrior)  # ``bayesian`` lays out no other
    model.prior.set_scale({name: factor**-0.5 for name, factor in by_site.items()})
    return PostHoc(model.with_posterior(*posterior), own, log_evidence=evidence)


def _require_network(net: Any) -> None:
    if isinstance(net, Saved | BayesianModule):
        raise NetworkError(
            "laplace() takes a network with weights of its own; of what fit has trained: "
            "fit(result, data, method='laplace', epochs=0)"
        )


def _choice(value: Any) -> str | float:
    """The way to choose in the words of ``post_hoc``; "marginal likelihood" and "held-out" are understood."""
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]  # the part itself refuses what is no factor
    found = value.replace(" ", "_").replace("-", "_")
    if found not in CHOICES:
        raise SettingError(
            f"laplace: prior_precision = {value!r}; a factor above 0 of the prior's own, or: {nearest(value, CHOICES)}"
        )
    return found


def _lifted(
    net: nn.Module, where: Where, prior: PriorChoice | None, prediction: str, *, chosen: bool
) -> BayesianModule:  # fmt: skip
    """A point at the given weights; all else stays as it is."""

    def lifted(own: PriorChoice) -> BayesianModule:
        return bayesian(net, "delta", own, where=where, rest=FROZEN, prediction=prediction)

    if prior is not None:
        return lifted(prior)
    model = lifted(Normal(1.0))
    size = float(model.posterior.mean_vector().detach().double().square().mean().sqrt())
    return lifted(Normal(size)) if chosen and size > 0 else model


def _placed(model: BayesianModule, batches: Batches, order: int) -> Iterator[tuple[Inputs, Tensor]]:
    """One pass over the data, on the model's device."""
    device = model.posterior.mean_vector().device
    for inputs, targets, weights in batches.weighted(order):
        if weights is not None:
            raise CompositionError("laplace knows no example weights; repeat the examples instead")
        yield map_tensors(inputs, lambda tensor: tensor.to(device)), targets.to(device)


def _best_on(held_out: Batches, model: BayesianModule, likelihood: Any, curvature: Curvature, seed: int) -> float:
    """The factor under which held-out data are predicted best, with the same noise for every factor."""

    def tried_with(factor: float) -> BayesianModule:
        return model.with_posterior(*curvature.posterior(same_factor(factor)))

    first, _ = next(iter(_placed(model, held_out, 0)))
    given: dict[str, Any] = {
        "draws": _OUTPUTS if draws_outputs(tried_with(1.0), first, _OUTPUTS) else _NETWORKS,
        "seed": seed,
    }

    def log_likelihood(factor: float) -> float:
        tried = tried_with(factor)
        found = (predictive_nll(tried, x, y, likelihood, **given) for x, y in _placed(model, held_out, 0))
        return -sum(float(losses.double().sum()) for losses in found)

    return highest(log_likelihood, _POINTS, _TOLERANCE)


def _warn_of_ends(factors: dict[str, float]) -> None:
    """Say if the search ended at one of its ends: then no best factor was found."""
    if all(map(at_an_end, factors.values())):
        one = next(iter(factors.values()))
        warnings.warn(
            f"laplace: the prior is as {'wide' if one < 1 else 'narrow'} as the search allows (its precision times "
            f"{one:.3g}): the data do not tell how large the weights may be (a network that fits its training data "
            "without error has no curvature left to tell it); use held_out=, or give prior_precision a number",
            BayeswellWarning,
            stacklevel=3,
        )
