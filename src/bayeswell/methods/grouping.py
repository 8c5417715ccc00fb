"""The parameter groups of a run, means and stds first of all, and what each is moved by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import CompositionError, SettingError, nearest
from ..lifting import BayesianModule
from ..objectives import ELBO
from ..optimizers import NOISE, STDS, OptimizersTogether, Plateau, parameter_groups
from ..types import Rate, Stepper
from .method import Method


def groups_of(
    method: Method, model: BayesianModule, elbo: ELBO, stepper: Stepper, std_stepper: Stepper | None = None
) -> list[dict[str, Any]]:
    """Means, stds and, for a sampler, the parameters that take no noise, as groups of their own."""
    noise = list(elbo.parameters())
    has_stds = any(name != "mean" for name, _ in model.posterior.named_parameters())
    lr = stepper.lr or 1.0
    multiplier = method.std_multiplier if has_stds or noise else 1.0
    if method.std_lr is not None or method.std_rate is not None or std_stepper is not None:
        _require_stds(method, has_stds or bool(noise), stepper)
        own = method.std_lr if std_stepper is None or method.std_lr is not None else std_stepper.lr
        multiplier = multiplier if own is None else own / lr
    groups = parameter_groups(model, lr, multiplier, noise)
    if not stepper.samples:
        return groups
    means = groups[0]
    drawn = {**means, "params": means["params"][:1]}
    rest = [{**group, "noise": False} for group in groups[1:]]
    if len(means["params"]) > 1:
        rest.append({**means, "name": "deterministic", "params": means["params"][1:], "noise": False})
    return [drawn, *rest]


def _require_stds(method: Method, trained: bool, stepper: Stepper) -> None:
    name = next(one for one in ("std_lr", "std_rate", "std_stepper") if getattr(method, one) is not None)
    if not trained:
        raise SettingError(f"{method.name}: {name} has no use: the network has no stds to train")
    if method.std_lr is not None and stepper.samples and stepper.lr is None:
        raise CompositionError(
            f"{method.name}: std_lr = {method.std_lr:g} with sampler '{stepper.name}', which finds its rates by "
            "itself; use std_multiplier, or give lr a number"
        )
    if stepper.handles_divergence:
        raise CompositionError(
            f"{method.name}: {name} has no use: optimizer '{stepper.name}' moves means and stds together"
        )


def built(
    groups: list[dict[str, Any]], stepper: Stepper, std_stepper: Stepper | None, context: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """The optimizer of all groups; with a ``std_stepper`` that of two that step as one."""

    def build(part: Stepper, own: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return part.build(own, **{name: context[name] for name in part.wants})

    if std_stepper is None:
        return build(stepper, groups)
    stds = [group for group in groups if group["name"] in (STDS, NOISE)]
    means = [group for group in groups if group["name"] not in (STDS, NOISE)]
    return OptimizersTogether([build(stepper, means), build(std_stepper, stds)])


def gradient_factor(method: Method, stepper: Stepper, batches: int) -> float:
    """What gradients are multiplied by before the step: 1, or 1 / M where that is asked for."""
    if method.gradient_scale is None:
        return 1.0
    if stepper.samples or stepper.handles_divergence:
        raise CompositionError(
            f"{method.name}: gradient_scale = '{method.gradient_scale}' lets '{stepper.name}' draw from another "
            "posterior, as it reads the scale off the gradient; leave it out"
        )
    return 1.0 / batches


def require_groups(plateaus: Mapping[str, Plateau], groups: list[dict[str, Any]]) -> None:
    """Refuse a plateau of a group that is not there."""
    names = [group["name"] for group in groups]
    for name in plateaus:
        if name not in names:
            raise SettingError(f"plateau: there is no parameter group '{name}'; {nearest(name, names)}")


def rate_of(group: str, rate: Rate, std_rate: Rate | None) -> Rate:
    """The schedule of a group: stds, and learned noise with them, may have one of their own."""
    return rate if std_rate is None or group not in (STDS, NOISE) else std_rate
