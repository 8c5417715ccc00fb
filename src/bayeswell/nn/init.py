"""Starts of the posterior mean: a new initialization of the network, or weights drawn from the prior's scale."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ..core.protocols import Prior

SAME_SCALE = 1.5
"""Norms within this factor are of one initialization."""


def reinitialized(net: nn.Module, generator: torch.Generator) -> nn.Module:
    """Return a copy of the network with weights drawn again; buffers as in a new network, frozen weights as they are.

    Every module with ``reset_parameters`` (torch's convention) draws its weights, children before their parents. A
    tensor that no module draws, or that comes out on another scale than before (a network with a custom
    initialization), has its entries shuffled instead: for independent entries of one distribution that is a new draw,
    and constants do not change.
    """
    fresh = copy.deepcopy(net).cpu()
    # torch's initializers draw from its global CPU stream, which is seeded here and then restored.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(_seed(generator))
        _reset(fresh)
        for given, own in zip(net.parameters(), fresh.parameters(), strict=True):
            before = given.detach().cpu()
            if not given.requires_grad:
                own.copy_(before)
            elif not _is_new_draw(before, own):
                own.copy_(before.flatten()[torch.randperm(before.numel())].view(before.shape))
    copied = copy.deepcopy(net)
    copied.load_state_dict(fresh.state_dict())
    return copied


def uniform_start(prior: Prior, generator: torch.Generator) -> Tensor:
    """Return (P,) weights uniform around the prior's center with the prior's stds (Book 2020, section 2.3)."""
    std, center = prior.std(), prior.center()
    share = torch.rand(len(std), generator=generator, device=generator.device).to(std)
    return center + (2 * share - 1) * math.sqrt(3) * std


def _reset(net: nn.Module) -> None:
    for module in reversed(list(net.modules())):
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset) and any(parameter.requires_grad for parameter in module.parameters()):
            try:
                reset()
            except TypeError:  # a function of that name with arguments
                continue


def _is_new_draw(given: Tensor, own: Tensor) -> bool:
    if not bool(given.isfinite().all()):
        return True
    if torch.equal(given, own) or bool((given == given.flatten()[0]).all()):
        return False
    if given.numel() < 20:
        return True
    ratio = float(given.float().norm() / own.float().norm().clamp_min(1e-30))
    return 1 / SAME_SCALE < ratio < SAME_SCALE


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(0, 2**62, (), generator=generator, device=generator.device))
