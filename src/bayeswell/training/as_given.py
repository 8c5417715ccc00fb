"""A network that is used as it was given: what training would have found beside its weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ..core.protocols import Inputs, Likelihood
from ..methods import TrainState
from ..nn import BayesianModule, evaluation_mode
from .checks import minimize_nll

Batches = Iterable[tuple[Inputs, Tensor]]
_WHEN = 0.5
"""Share of training at which an automatic temperature may be set."""


@torch.no_grad()
def mean_outputs(model: BayesianModule, batches: Batches) -> tuple[Tensor, Tensor]:
    """Return outputs at the mean network, and targets, of all batches."""
    weights = model.layout.unflatten(model.posterior.mean.detach())
    with evaluation_mode(model):
        pairs = [(model.call(weights, inputs), targets) for inputs, targets in batches]
    return torch.cat([outputs for outputs, _ in pairs]), torch.cat([targets for _, targets in pairs])


def settle_noise(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> None:
    """Set what a likelihood learns to its maximum-likelihood value at these outputs."""
    learned = [p for p in likelihood.parameters() if p.requires_grad]
    if not learned:
        return
    exact = copy.deepcopy(likelihood).double()
    minimize_nll(exact, outputs.double(), targets)
    with torch.no_grad():
        for parameter, found in zip(learned, (p for p in exact.parameters() if p.requires_grad), strict=True):
            parameter.copy_(found)


def use_as_given(state: TrainState, batches: Batches) -> None:
    """Find learned noise and an automatic temperature for a run without epochs."""
    likelihood, learns = state.likelihood, any(p.requires_grad for p in state.likelihood.parameters())
    if state.auto_temperature is None and not learns:
        return
    outputs, targets = mean_outputs(state.model, batches)
    settle_noise(likelihood, outputs, targets)
    if state.auto_temperature is None:
        return
    with torch.no_grad():
        metrics = {"nll": float(likelihood.nll(outputs, targets).double().mean())}
        if likelihood.supports("mean_and_variance") and not likelihood.is_discrete:
            mean = likelihood.mean_and_variance(outputs)[0]
            metrics["rmse"] = math.sqrt(float((mean - targets.reshape(mean.shape)).double().square().mean()))
    state.auto_temperature.spread.observe(likelihood, targets)
    state.auto_temperature.after_epoch(_WHEN, metrics)
