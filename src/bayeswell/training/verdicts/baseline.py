"""Has the network learned anything? The best prediction that does not look at the inputs."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ...eager import eager
from ...types import Likelihood

_FEW = 5
"""Examples for each number of the constant: with fewer it would learn the examples themselves."""


def constant_nll(likelihood: Likelihood, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> float | None:
    """The least mean NLL of the same outputs for every example: class frequencies, or the targets' mean and variance.

    Noise that the likelihood learns is learned anew. ``outputs`` (S, ...) only tell their shape. None where they have
    too many numbers for the examples, or where no minimum is found.
    """
    if outputs[0].numel() * _FEW > len(targets):
        return None
    own = copy.deepcopy(likelihood)
    learned = [p for p in own.parameters() if p.requires_grad] if isinstance(own, nn.Module) else []
    constant = torch.zeros_like(outputs[:1], dtype=torch.float64).requires_grad_()
    if isinstance(own, nn.Module):
        own.double()
    aim = targets.double() if targets.is_floating_point() else targets
    search = eager(torch.optim.LBFGS)([constant, *learned], max_iter=40, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        losses = own.nll(constant.expand(len(aim), *constant.shape[1:]), aim)
        value = losses.mean() if weights is None else (weights.to(losses) * losses).mean()
        value.backward()
        return value.detach()

    with torch.enable_grad():
        search.step(loss)
        found = float(loss())
    return found if math.isfinite(found) else None


_OFF_SCALE = 3.0


def advice_for(targets: Tensor) -> str:
    """What helps a network that is on its way: real targets far from mean 0 and std 1 make the way long."""
    if not targets.is_floating_point() or len(targets) < 2:
        return "train longer"
    rows = targets.detach().reshape(len(targets), -1).double()
    mean, std = float(rows.mean(0).abs().max()), float(rows.std(0).max())
    off = std > _OFF_SCALE or 0 < std < 1 / _OFF_SCALE or mean > _OFF_SCALE * std > 0
    return "standardise the targets, or train longer" if off else "train longer"
