"""Any network becomes a Bayesian one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..core.errors import NetworkError, SettingError, check_choice
from ..core.protocols import SAMPLED, PosteriorPart
from ..core.random import derived_generator
from ..posteriors import POSTERIORS
from ..priors import PriorChoice, build_prior
from .functional import Output, keep_padding
from .init import reinitialized, uniform_start
from .module import BayesianModule, check_prediction
from .pooling import use_sliced_pooling
from .select import FROZEN, TRAINED, Where, select

STARTS = ("network", "reinit", "prior")


def bayesian(
    net: nn.Module,
    posterior: str | Mapping[str, Any] | PosteriorPart = "mean_field",
    prior: PriorChoice = "kaiming",
    where: Where = "all",
    *,
    other_params: str = TRAINED,
    init: str = "network",
    prediction: str = SAMPLED,
    output: Output | None = None,
    generator: torch.Generator | None = None,
) -> BayesianModule:
    """Turn any network into a Bayesian one. The given network is copied, not changed.

    Args:
        net: any ``nn.Module``; its code is not touched.
        posterior: the family of q: a name, ``{"name": ..., setting: value}``, or a part such as ``KTied(rank=3)``.
        prior: p(w): likewise; or ``{pattern: prior}`` by parameter name, or a function of the site.
        where: which parameters are Bayesian: ``"all"`` (but normalization layers), ``"last_layer"``, ``"lora"`` (the
            adapters of a ``peft`` model), name or module patterns, module types, or a function (name, module,
            parameter) -> bool.
        other_params: "trained" without a posterior, or "frozen": all other parameters and BatchNorm statistics stay
            as they are, and layers without a Bayesian parameter are in evaluation mode (their dropout is off).
        init: posterior means start at the network's weights (``"network"``), at new ones from the network's own
            initialization (``"reinit"``: each module's ``reset_parameters``), or uniformly at random with the prior's
            std (``"prior"``, as in Book's thesis).
        prediction: what ``predict`` averages: drawn networks (``"sampled"``), the network to first order around the
            posterior mean (``"linearized"``, for a Gaussian fitted to curvature), or nothing (``"mean"``).
        output: a function of what the network returns that gives the tensor of its logits or means; None where that is
            a tensor, has ``.logits`` or "logits", or is a tuple of one tensor.
        generator: draws the start; None: torch's global generator.
    """
    check_choice("bayesian", "init", init, STARTS)
    check_choice("bayesian", "other_params", other_params, (TRAINED, FROZEN))
    if isinstance(output, nn.Module) or not (output is None or callable(output)):
        raise SettingError(f"`output` must be a function of what the network returns, or None, got {output!r}")
    part = POSTERIORS.resolve(posterior)
    given, net = net, _copied(net)
    selection = select(net, where, other_params)
    layout = selection.layout
    parameters = dict(net.named_parameters())
    kinds = {f"{parameters[site.name].dtype} on {parameters[site.name].device}" for site in layout.sites}
    if len(kinds) > 1:
        found = ", ".join(sorted(kinds))
        raise NetworkError(f"the Bayesian parameters differ in dtype or device ({found}); convert them first")
    start = layout.flatten(parameters).detach()
    built_prior = build_prior(prior, layout, start)
    generator = derived_generator(generator)
    if init == "reinit":
        fresh = reinitialized(given, generator)
        start = layout.flatten(dict(fresh.named_parameters())).detach()
        net = net if other_params == FROZEN else fresh
    elif init == "prior":
        start = uniform_start(built_prior, generator)
    if not bool(start.isfinite().all()):
        raise NetworkError("the network's weights hold NaN or inf; repair them, or start with init='prior'")
    state = part.build(layout, built_prior, start, generator)
    check_prediction(state, prediction)
    for site in layout.sites:
        for name in site.names:
            module_name, _, local_name = name.rpartition(".")
            net.get_submodule(module_name)._parameters[local_name] = None
    use_sliced_pooling(net)
    keep_padding(net, layout, parameters)
    if other_params == FROZEN:
        net.requires_grad_(False)
    return BayesianModule(net, selection, state, built_prior, prediction, output).train()


def _copied(net: nn.Module) -> nn.Module:
    if not isinstance(net, nn.Module):
        raise NetworkError(f"bayesian() takes an nn.Module, got {type(net).__name__}")
    for module in net.modules():
        if isinstance(module, BayesianModule):
            raise NetworkError("the network already contains a BayesianModule; give the original network")
        if isinstance(module, torch.jit.ScriptModule):
            raise NetworkError("torch.jit networks have fixed parameters; give the original nn.Module")
    try:
        return copy.deepcopy(net)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise NetworkError(f"the network ({type(net).__name__}) cannot be copied: {reason:.150}") from error
