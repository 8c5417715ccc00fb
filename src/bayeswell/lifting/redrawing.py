"""A network's own initialisation, drawn again: a further start for a member of an ensemble or a chain.

Every module that can draw its weights anew (``reset_parameters``, by torch's convention) does so, children before the
modules that hold them. A tensor that no module draws, or that comes out on another scale than the given one (a network
with an initialisation of its own), has its entries shuffled instead: for entries that were drawn independently from any
one distribution that is a further draw, and constants stay what they are. What is frozen stays.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_SAME_SCALE = 1.5
_TELLS_SCALE = 20
_LOOKS_TRAINED = 1.5
_LEAST_SIDE = 8
_ITERATIONS = 30


def redrawn(net: nn.Module) -> nn.Module:
    """A copy of the network with weights drawn anew from torch's global stream; buffers as a new network has them."""
    fresh = copy.deepcopy(net)
    for module in reversed(list(fresh.modules())):
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset) and any(parameter.requires_grad for parameter in module.parameters()):
            try:
                reset()
            except TypeError:  # a function of that name which wants arguments
                continue
    with torch.no_grad():
        for given, own in zip(net.parameters(), fresh.parameters(), strict=True):
            if not given.requires_grad:
                own.copy_(given)
            elif not _is_draw_like(given, own):
                own.copy_(shuffled(given))
    return fresh


def shuffled(tensor: Tensor) -> Tensor:
    """The same numbers in random places."""
    values = tensor.detach().flatten()
    return values[torch.randperm(len(values)).to(values.device)].view(tensor.shape)


def _is_draw_like(given: Tensor, own: Tensor) -> bool:
    """Whether ``own`` may come from what ``given`` was drawn from: it is new, and on the same scale."""
    if not bool(given.isfinite().all()):
        return True
    if torch.equal(given, own) or bool((given == given.flatten()[0]).all()):
        return False
    if given.numel() < _TELLS_SCALE:
        return True
    ratio = float(given.float().norm() / own.float().norm().clamp_min(1e-30))
    return 1 / _SAME_SCALE < ratio < _SAME_SCALE


def looks_trained(net: nn.Module) -> float | None:
    """How many times larger the matrices' largest singular values are than with shuffled entries, if that tells.

    The median over the matrices (convolution kernels as output channels x the rest). Shuffling keeps everything about
    independent entries, so an initialisation gives about 1; training adds directions. None: no sign of training.
    """
    ratios = []
    for parameter in net.parameters():
        if parameter.requires_grad and parameter.dim() >= 2 and parameter.is_floating_point():
            matrix = parameter.detach().float().flatten(1)
            if min(matrix.shape) >= _LEAST_SIDE and bool(matrix.isfinite().all()):
                ratios.append(_largest_singular(matrix) / max(_largest_singular(shuffled(matrix)), 1e-30))
    if not ratios:
        return None
    median = sorted(ratios)[len(ratios) // 2]
    return median if median > _LOOKS_TRAINED else None


def _largest_singular(matrix: Tensor) -> float:
    """By power iteration: a little too small where nothing stands out, on both sides of the comparison."""
    vector = torch.ones_like(matrix[0]) + 0.1 * torch.randn_like(matrix[0])
    for _ in range(_ITERATIONS):
        vector = matrix.T @ (matrix @ vector)
        vector = vector / vector.norm().clamp_min(1e-30)
    return float((matrix @ vector).norm())
