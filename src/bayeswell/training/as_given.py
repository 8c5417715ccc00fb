"""A network that is taken as it was given: what training would have found beside its weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..eager import eager
from ..errors import NetworkError, SettingError
from ..finite import all_finite
from ..lifting import BayesianModule
from ..likelihoods import check_targets
from ..methods import ResolvedMethod
from ..modes import evaluation_mode
from ..types import POINT, Inputs
from .run import Run
from .scores import Score

_WHILE_IT_ADAPTS = 0.5
"""The share of training at which a temperature that follows from the fit may still be set."""


def learned_noise(likelihood: Any) -> list[nn.Parameter]:
    """What a likelihood would learn in training."""
    return [p for p in likelihood.parameters() if p.requires_grad] if isinstance(likelihood, nn.Module) else []


@torch.no_grad()
def outputs_and_targets(
    model: BayesianModule, likelihood: Any, batches: Iterable[tuple[Inputs, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Of all the data, at the posterior's mean in evaluation mode; inputs are let go batch by batch."""
    outputs, all_targets = [], []
    with evaluation_mode(model):
        for inputs, targets in batches:
            found = model.call(model.centre(), inputs)
            check_targets(likelihood, targets, found)
            if not all_finite([found]):
                raise NetworkError("the outputs of the network given hold NaN or inf; look at its weights and inputs")
            outputs.append(found)
            all_targets.append(targets)
    return torch.cat(outputs), torch.cat(all_targets)


def settle_noise(likelihood: Any, outputs: Tensor, targets: Tensor) -> None:
    """Set what a likelihood learns (the noise of real targets) to its maximum-likelihood value at these outputs."""
    learned = learned_noise(likelihood)
    if not learned:
        return
    own = copy.deepcopy(likelihood).double()
    wide, aim = outputs.detach().double(), targets.double() if targets.is_floating_point() else targets
    search = eager(torch.optim.LBFGS)(
        learned_noise(own), max_iter=100, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        value: Tensor = own.nll(wide, aim).mean()
        value.backward()
        return value.detach()

    with torch.enable_grad():
        search.step(loss)
    with torch.no_grad():
        for parameter, found in zip(learned, learned_noise(own), strict=True):
            parameter.copy_(found)


def require_epochs(epochs: Any) -> None:
    """Refuse anything but a whole number of at least 0."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise SettingError(
            f"fit: epochs = {epochs!r}; it must be a whole number of at least 1 (0: the network as it is)"
        )


def require_nothing_to_train(parts: ResolvedMethod) -> None:
    """Refuse a method whose posterior only training finds."""
    name, reason = parts.name, ""
    if POINT not in parts.posterior.provides:
        reason = f"the spread of posterior '{parts.posterior.name}' is found in training"
    elif parts.stepper.samples:
        reason = f"the draws of sampler '{parts.stepper.name}' are its steps"
    elif parts.collector is not None:
        reason = f"collector '{parts.collector.name}' looks at the path of training (of given checkpoints: bw.swag)"
    elif parts.method.members > 1:
        reason = f"its {parts.method.members} members differ by their training"
    if reason:
        raise SettingError(
            f"epochs = 0 takes the network as it is, but method '{name}' cannot: {reason}; use method 'laplace', "
            "'mc-dropout' or 'map', or train"
        )


def take_as_given(run: Run, batches: Iterable[tuple[Inputs, Tensor]], *, noise: bool) -> None:
    """For a run of no steps: a temperature that follows from the fit and, if asked, ``noise``, in one pass."""
    assembly = run.assembly
    settles = noise and bool(learned_noise(assembly.likelihood))
    if assembly.tempering is None and not settles:
        return
    outputs, targets = outputs_and_targets(assembly.model, assembly.likelihood, batches)
    if settles:
        settle_noise(assembly.likelihood, outputs, targets)
    if assembly.tempering is not None:
        score = Score(assembly.likelihood)
        with torch.no_grad():
            value = float(score(outputs, targets, None)) / len(targets)
            nll = float(assembly.likelihood.nll(outputs, targets).double().mean())
        scores = {} if score.name is None else {score.name: value**0.5 if score.name == "rmse" else value}
        assembly.tempering.targets.observe(targets)
        assembly.tempering.after_epoch(_WHILE_IT_ADAPTS, nll, scores)
