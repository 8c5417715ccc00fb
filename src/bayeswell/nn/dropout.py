"""Dropout as a posterior: a draw is the network under one set of masks.

Gal & Ghahramani 2016 read dropout as q(W) = M diag(z), z ~ Bernoulli(1 - p)/(1 - p): one set of masks is one
weight draw. Training is ordinary dropout, with a mask for each example; a drawn network uses one
mask for all examples, so that a prediction depends on the draw alone and not on how the inputs are batched.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from ..core.errors import NetworkError, check_number
from .linear import is_linear_layer

ADDED_DROPOUT = "input_dropout"


class DrawnDropout(nn.Module):
    """Dropout that applies the mask of ``seed`` to every example alike; without a seed it is ordinary dropout.

    Args:
        p: the probability of a zero.
        channels: the mask covers channels only (``nn.Dropout2d``), not all axes but the first (``nn.Dropout``).
    """

    seed: Tensor

    def __init__(self, p: float, channels: bool = False) -> None:
        super().__init__()
        self.p, self.channels = check_number("dropout", "p", p, 0, 1), channels
        self.register_buffer("seed", torch.empty(0, dtype=torch.int64), persistent=False)
        # Transformer layers with hooks call their submodules, which torch's fused path does not.
        self.register_forward_pre_hook(_no_fused_path)

    def forward(self, x: Tensor) -> Tensor:
        if self.seed.numel():
            return x * self._mask(x)
        if self.channels:
            return torch.feature_dropout(x, self.p, self.training)
        return F.dropout(x, self.p, self.training)

    def _mask(self, x: Tensor) -> Tensor:
        if self.channels:
            shape = (1, x.shape[1], *[1] * (x.dim() - 2))
        elif x.dim() == 3:
            # A sequence, with examples or time first: one mask for all steps, on the features (Gal & Ghahramani 2016b).
            shape = (1, 1, x.shape[2])
        else:
            shape = (1, *x.shape[1:])
        # On the CPU, so that one seed means one mask on every device.
        generator = torch.Generator().manual_seed(int(self.seed))
        kept = torch.rand(shape, generator=generator) >= self.p
        return kept.to(x) / (1 - self.p)


def drawn_dropout(net: nn.Module, p: float | None = None) -> nn.Module:
    """Return a copy of the network whose dropout can be drawn.

    Its own dropout layers are used (with their own p unless one is given); a network without any gets dropout of
    probability p (0.1 if None) on the input of every linear layer but the first.
    """
    copied = copy.deepcopy(net)
    if any(isinstance(module, DrawnDropout) for module in copied.modules()):
        return copied
    places = [(parent, name, child) for parent in copied.modules() for name, child in parent.named_children()]
    # AlphaDropout keeps mean and variance of its input in another way; it stays as it is.
    alpha = (nn.AlphaDropout, nn.FeatureAlphaDropout)
    own = [place for place in places if isinstance(place[2], _DropoutNd) and not isinstance(place[2], alpha)]
    for parent, name, child in own:
        chance = float(child.p) if p is None else p  # type: ignore[arg-type]
        setattr(parent, name, DrawnDropout(chance, channels=not isinstance(child, nn.Dropout)))
    if not own:
        _add_dropout(copied, 0.1 if p is None else p)
    for module in copied.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # only the fused path can take nested tensors
    return copied


def added_dropout(net: nn.Module) -> list[DrawnDropout]:
    """Return the layers that ``drawn_dropout`` added to a network that had none."""
    found = [getattr(module, ADDED_DROPOUT, None) for module in net.modules()]
    return [layer for layer in found if isinstance(layer, DrawnDropout)]


def draw_masks(net: nn.Module, generator: torch.Generator | None) -> dict[str, Tensor]:
    """Return a seed for every layer of drawn dropout, by the name of its buffer; for ``BayesianModule.call``."""
    device = "cpu" if generator is None else generator.device
    return {
        f"{name}.seed" if name else "seed": torch.randint(0, 2**62, (), generator=generator, device=device)
        for name, module in net.named_modules()
        if isinstance(module, DrawnDropout)
    }


def _add_dropout(net: nn.Module, p: float) -> None:
    layers = [module for module in net.modules() if is_linear_layer(module)][1:]
    if not layers:
        raise NetworkError("mc-dropout: the network has no dropout layer, and no second linear layer to add one to")
    for layer in layers:
        layer.add_module(ADDED_DROPOUT, DrawnDropout(p))
        layer.register_forward_pre_hook(drop_input)


def drop_input(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Apply the dropout that was added to a layer."""
    dropout: Any = layer.get_submodule(ADDED_DROPOUT)
    return (dropout(inputs[0]), *inputs[1:])


def _no_fused_path(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    pass
