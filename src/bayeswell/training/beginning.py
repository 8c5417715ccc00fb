"""What a run begins from: a network, or what was trained before."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import CompositionError, SettingError
from ..lifting import BayesianModule, Saved, Trained
from ..methods import Method, ResolvedMethod, find_method, resolve
from ..priors import is_posterior
from .run import Run

USUAL_METHOD, USUAL_LIKELIHOOD = "bbb", "categorical"


@dataclass(frozen=True)
class Beginning:
    """The parts of a method, and the network or the trained model that they are put to.

    ``state`` is where an earlier training ended after ``epochs_done`` epochs, if this one is to go on from there.
    """

    parts: ResolvedMethod
    likelihood: Any
    module: nn.Module
    trained: Trained | None = None
    state: Mapping[str, Any] | None = None
    epochs_done: int = 0

    @property
    def method(self) -> Method:
        """The method that was asked for."""
        return self.parts.method

    def on(self, device: torch.device) -> nn.Module | Trained:
        """The network, or the trained model, on a device; a copy where it has to move."""
        if self.trained is not None:
            moved = copy.deepcopy(self.trained.model).to(device)
            return Trained(moved, self.trained.keeps_prior, self.trained.refilled)
        return self.module if device.type == "cpu" else copy.deepcopy(self.module).to(device)


def beginning(
    net: nn.Module | Saved, method: str | Method | None, likelihood: Any, settings: Mapping[str, Any]
) -> Beginning:
    """What ``fit`` was given, with everything that was left open filled in."""
    if not isinstance(net, Saved | BayesianModule):
        parts = resolve(find_method(method or USUAL_METHOD).changed(**settings))
        return Beginning(parts, USUAL_LIKELIHOOD if likelihood is None else likelihood, net)
    earlier: Method | None = getattr(net, "method", None)
    state: Mapping[str, Any] | None = getattr(net, "state", None)
    if method is None and earlier is None:
        raise SettingError("which method? a model alone does not say how it was trained: fit(model, data, method=...)")
    chosen = find_method(method if method is not None else earlier or USUAL_METHOD).changed(**settings)
    if chosen.members > 1:
        raise CompositionError(
            f"method '{chosen.name}' has members = {chosen.members}: its networks are trained one by one and gathered, "
            "and cannot go on together; train longer from the start"
        )
    same = chosen == earlier and likelihood is None and not is_posterior(chosen.prior)
    goes_on = state is not None and same
    trained = Trained(net.model if isinstance(net, Saved) else net, "prior" not in settings, goes_on)
    own_likelihood = getattr(net, "likelihood", None) if likelihood is None else likelihood
    if own_likelihood is None:
        raise SettingError("which likelihood? a model alone does not say: fit(model, data, likelihood=...)")
    return Beginning(
        resolve(chosen),
        own_likelihood,
        trained.model,
        trained,
        state if goes_on else None,
        int(state["position"][0]) if state is not None and goes_on else 0,
    )


def end_state(run: Run) -> dict[str, Any]:
    """Where a run stands at its end; its own where the model that is kept will be changed on the way there."""
    state = run.state_dict()
    state["callbacks"] = {}
    return copy.deepcopy(state) if run.assembly.collector is not None else state
