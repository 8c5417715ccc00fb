"""From any network to a Bayesian one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..composition import check_estimator
from ..errors import BayeswellWarning, NetworkError, SettingError, nearest
from ..estimators import ESTIMATORS
from ..finite import all_finite
from ..posteriors import POSTERIORS
from ..priors import PriorChoice, lay_out
from ..types import PREDICTIONS, SAMPLED, Estimator, PosteriorPart
from .module import BayesianModule
from .redrawing import redrawn
from .swapping import keep_padding
from .where import Selection, Where, select

STARTS = ("network", "redrawn", "prior")


def bayesian(
    net: nn.Module,
    posterior: str | Mapping[str, Any] | PosteriorPart = "mean_field",
    prior: PriorChoice = "kaiming",
    estimator: str | Mapping[str, Any] | Estimator = "weight_sampling",
    where: Where = "all",
    *,
    means: str = "network",
    prediction: str = SAMPLED,
) -> BayesianModule:
    """Turn any network into a Bayesian one. The given network is copied, not changed.

    Args:
        net: any ``nn.Module``; its code is not touched.
        posterior: the shape of q: a name, ``{"name": ..., setting: value}``, or a part such as ``KTied(rank=3)``.
        prior: p(w): likewise; or ``{pattern: prior}`` by parameter name, or a function of the site.
        estimator: how the expected log-likelihood is got.
        where: which parameters are Bayesian: ``"all"`` (but normalisation layers), ``"last_layer"``, name or
            module patterns, module types, or a function (name, module, parameter) -> bool.
        means: posterior means start at the network's present weights (``"network"``), at new ones from the network's
            own initialisation (``"redrawn"``: each module's ``reset_parameters``; what no module draws is shuffled), or
            uniformly at random with the prior's std (``"prior"``, the thesis' choice).
        prediction: what ``predict`` averages: drawn networks (``"sampled"``), or the network to first order around
            the posterior's mean (``"linearised"``), which is what a Gaussian fitted to curvature is the posterior of;
            or none: the network at that mean (``"mean"``).
    """
    if not isinstance(net, nn.Module):
        raise NetworkError(f"bayesian() takes an nn.Module, not {type(net).__name__}")
    _refuse_lifted(net)
    if means not in STARTS:
        raise SettingError(f"means = {means!r}; {nearest(str(means), STARTS)}")
    if prediction not in PREDICTIONS:
        raise SettingError(f"prediction = {prediction!r}; {nearest(str(prediction), PREDICTIONS)}")
    posterior_part = POSTERIORS.resolve(posterior)
    chosen_estimator = ESTIMATORS.resolve(estimator)
    check_estimator(posterior_part, chosen_estimator)
    selection = select(net, where)
    _check_uniform(net, selection)
    for note in chosen_estimator.cautions(net):
        warnings.warn(note, BayeswellWarning, stacklevel=2)
    parameters = dict(net.named_parameters())
    start = selection.layout.flatten(parameters).detach()
    flat_prior = lay_out(prior, selection.layout, like=start)
    if means == "prior":
        start = torch.empty_like(start).uniform_(-1, 1) * math.sqrt(3) * flat_prior.std_vector()
        start = start if flat_prior.centre is None else start + flat_prior.centre
    elif means == "redrawn":  # the prior stays where it was laid out: all chains have one target
        net = redrawn(net)
        start = selection.layout.flatten(dict(net.named_parameters())).detach()
    if not all_finite([start]):
        raise NetworkError("the network's weights hold NaN or inf; repair them, or start with means='prior'")
    state = posterior_part.build(selection.layout, flat_prior, start)
    bare = _without_bayesian_parameters(net, selection, parameters)
    return BayesianModule(bare, selection, flat_prior, state, posterior_part, chosen_estimator, prediction)


def _refuse_lifted(net: nn.Module) -> None:
    for name, module in net.named_modules():
        if isinstance(module, BayesianModule):
            what = f"its part '{name}'" if name else "it"
            raise NetworkError(
                f"bayesian() takes a network with weights of its own, but {what} is a Bayesian network already; to go "
                "on training use fit(result, ...), to begin anew give the network that was lifted, which is unchanged"
            )


def _check_uniform(net: nn.Module, selection: Selection) -> None:
    """One flat vector needs one dtype and one device."""
    parameters = dict(net.named_parameters())
    kinds = {(parameters[site.name].dtype, parameters[site.name].device) for site in selection.layout.sites}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise NetworkError(f"the Bayesian parameters differ in dtype or device ({found}); bring them to one first")


def _without_bayesian_parameters(
    net: nn.Module, selection: Selection, given: dict[str, nn.Parameter]
) -> nn.Module:  # fmt: skip
    """A copy of the network in which the Bayesian parameters are empty slots."""
    bare = copy.deepcopy(net)
    for site in selection.layout.sites:
        for name in site.names:
            module_name, _, local_name = name.rpartition(".")
            bare.get_submodule(module_name)._parameters[local_name] = None
    keep_padding(bare, selection.layout, given)
    return bare
