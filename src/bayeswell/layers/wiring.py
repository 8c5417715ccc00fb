"""How the units of a layer are wired: fan-in, fan-out and the axis of output units of each parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

NORMALISATION_LAYERS = (
    _BatchNorm,
    _InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)
"""Layers whose scale and offset stay deterministic unless asked for by name."""


@dataclass(frozen=True)
class Wiring:
    """Inputs of a unit, units fed by an input, and the axis that counts output units."""

    fan_in: int
    fan_out: int
    output_dim: int = 0


def wiring_of(module: nn.Module, local_name: str, shape: tuple[int, ...]) -> Wiring:
    """The wiring of one parameter of a module.

    fan_in of a convolution is in_channels / groups x kernel area (He et al. 2015), of an embedding 1 (its
    input is one-hot). A bias takes the fan_in of the weight it goes with.
    """
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Wiring(fan_in=1, fan_out=shape[-1])
    if len(shape) < 2:
        partner = module._parameters.get(local_name.replace("bias", "weight"))
        if "bias" in local_name and partner is not None and partner.dim() >= 2:
            weight = wiring_of(module, local_name.replace("bias", "weight"), tuple(partner.shape))
            return Wiring(weight.fan_in, weight.fan_out)
        return Wiring(fan_in=1, fan_out=1)
    if isinstance(module, _ConvTransposeNd):
        area = math.prod(shape[2:])
        return Wiring(fan_in=shape[0] // module.groups * area, fan_out=shape[1] * area, output_dim=1)
    if isinstance(module, _ConvNd):
        area = math.prod(shape[2:])
        return Wiring(fan_in=shape[1] * area, fan_out=shape[0] // module.groups * area)
    return Wiring(fan_in=math.prod(shape[1:]), fan_out=shape[0])
