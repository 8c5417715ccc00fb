"""Dropout as a posterior: a draw is the network under one set of masks.

Gal & Ghahramani 2016 read dropout as q(W) = M diag(z), z ~ Bernoulli(1 - p)/(1 - p): one set of masks is one
weight draw. Training is ordinary dropout, with masks of their own for every example; a drawn network uses one
mask for all examples, so that a prediction depends on the draw alone and not on how the inputs are batched.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from ..errors import NetworkError, SettingError
from ..layers import is_linear_layer

_PUT_IN = "input_dropout"


class DrawnDropout(nn.Module):
    """Dropout that, given a ``seed``, applies the mask of that seed to every example alike.

    ``axes`` counts the axes behind the first that the mask covers; None covers all of them (``nn.Dropout``), 1 the
    channels only (``nn.Dropout2d``). Without a draw the ``seed`` is a tensor of no numbers: training reads none.
    """

    seed: Tensor

    def __init__(self, p: float, axes: int | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise SettingError(f"dropout: p = {p!r}; it must lie in [0, 1)")
        self.p, self.axes = p, axes
        self.register_buffer("seed", torch.empty(0, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Ordinary dropout in training, the drawn mask where there is one, else the identity."""
        if self.seed.numel():
            return x * self._mask(x, int(self.seed))
        if self.axes is None:
            return F.dropout(x, self.p, self.training)
        return torch.feature_dropout(x, self.p, self.training)

    def _mask(self, x: Tensor, seed: int) -> Tensor:
        if x.dim() == 3 and self.axes is None:
            # A sequence, with examples or time first: one mask for all steps, on the features (Gal & Ghahramani 2016b).
            return self._kept(x, x.shape[-1:], seed)
        return self._kept(x, x.shape[1:] if self.axes is None else x.shape[1 : 1 + self.axes], seed)

    def _kept(self, x: Tensor, covered: torch.Size, seed: int) -> Tensor:
        # On the CPU, so that one seed means one mask on every device.
        generator = torch.Generator().manual_seed(seed)
        kept = torch.rand(covered, generator=generator) >= self.p
        lead = x.dim() - 1 if x.dim() == 3 and self.axes is None else 1
        shape = (*([1] * lead), *covered, *([1] * (x.dim() - lead - len(covered))))
        return (kept.to(x) / (1 - self.p)).view(shape)


def with_drawn_dropout(net: nn.Module, p: float | None = None) -> nn.Module:
    """A copy of the network whose dropout can be drawn.

    Its own dropout layers are used (with their own p unless one is given); a network without any gets dropout of
    probability p (0.1 if None) on the input of every linear layer but the first.
    """
    copied = copy.deepcopy(net)
    if any(isinstance(module, DrawnDropout) for module in copied.modules()):
        return copied
    places: list[tuple[nn.Module, str, Any]] = []
    for parent in copied.modules():
        places += [(parent, name, child) for name, child in parent.named_children()]
    # AlphaDropout keeps mean and variance of its input in another way; it is left as it is.
    own = [place for place in places if isinstance(place[2], _DropoutNd) and not _is_alpha(place[2])]
    for parent, name, child in own:
        axes = None if isinstance(child, nn.Dropout) else 1
        setattr(parent, name, DrawnDropout(float(child.p) if p is None else p, axes))
    if not own:
        layers = [module for module in copied.modules() if is_linear_layer(module)][1:]
        if not layers:
            raise NetworkError("mc_dropout: the network has no dropout layer, and no second linear layer to put one in")
        for layer in layers:
            layer.add_module(_PUT_IN, DrawnDropout(0.1 if p is None else p))
            layer.register_forward_pre_hook(_drop_input)
    return copied


def _is_alpha(module: nn.Module) -> bool:
    return isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout)


def dropout_settings(net: nn.Module) -> dict[str, float] | None:
    """How to make another copy of such a network drawable in the same way; None if it has no drawn dropout."""
    chances = {module.p for module in net.modules() if isinstance(module, DrawnDropout)}
    if not chances:
        return None
    # Layers with chances of their own keep them; one chance for all is the one that was given.
    return {"p": chances.pop()} if len(chances) == 1 else {}


def _drop_input(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    dropout: nn.Module = layer.get_submodule(_PUT_IN)
    return (dropout(inputs[0]), *inputs[1:])


def put_in_dropout(net: nn.Module) -> list[DrawnDropout]:
    """The dropout that ``with_drawn_dropout`` has put into a network that had none."""
    found = (getattr(module, _PUT_IN, None) for module in net.modules())
    return [layer for layer in found if isinstance(layer, DrawnDropout)]


def draw_masks(net: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """A seed for every dropout that can be drawn, by the name of its buffer; nothing for other networks."""
    return {
        name: torch.randint(0, 2**62, (), generator=generator, device=generator.device) for name in seeds_of_masks(net)
    }


def seeds_of_masks(net: nn.Module) -> list[str]:
    """The buffers that belong to a draw and not to the network: the seeds of drawn dropout, by name."""
    return [
        f"{name}.seed" if name else "seed" for name, module in net.named_modules() if isinstance(module, DrawnDropout)
    ]
