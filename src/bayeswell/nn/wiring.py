"""Fan-in, fan-out and the axis of output units of each parameter, by layer type; adapters (LoRA) by their names.

    W x  ->  W x + s B A x,      A (r, in), B (out, r), W frozen                                    (Hu et al. 2021)

``peft`` calls them ``lora_A``, ``lora_B``, ``lora_embedding_A`` and ``lora_embedding_B``, followed by the adapter's
name; other libraries write ``lora_a`` or hold them as parameters of the layer itself. No library is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

MAGNITUDE = "lora_magnitude_vector"
NORMALIZATION_LAYERS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
"""Layers whose scale and offset stay deterministic unless they are chosen by name or type."""


class Wiring(NamedTuple):
    """Inputs of a unit, units fed by an input, and the axis of output units."""

    fan_in: int
    fan_out: int
    output_dim: int = 0


def wiring_of(module: nn.Module, local_name: str, shape: tuple[int, ...]) -> Wiring:
    """Return the wiring of one parameter of a module.

    fan_in of a convolution is in_channels / groups x kernel area (He et al. 2015), of an embedding 1 (its
    input is one-hot). A bias has the fans of its weight.
    """
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Wiring(fan_in=1, fan_out=shape[-1])
    if len(shape) < 2:
        weight_name = local_name.replace("bias", "weight")
        weight = module._parameters.get(weight_name)
        if "bias" in local_name and weight is not None and weight.dim() >= 2:
            return wiring_of(module, weight_name, tuple(weight.shape))._replace(output_dim=0)
        return Wiring(fan_in=1, fan_out=1)
    area = math.prod(shape[2:])
    if isinstance(module, _ConvTransposeNd):
        return Wiring(fan_in=shape[0] // module.groups * area, fan_out=shape[1] * area, output_dim=1)
    if isinstance(module, _ConvNd):
        return Wiring(fan_in=shape[1] * area, fan_out=shape[0] // module.groups * area)
    return Wiring(fan_in=math.prod(shape[1:]), fan_out=shape[0])


def is_lora(name: str) -> bool:
    """Return whether a parameter is one of an adapter's matrices.

    DoRA's magnitudes (Liu et al. 2024) are not: each is the norm of a row of W, which a prior around zero would shrink.
    """
    return any(part == "lora" or (part.startswith("lora_") and part != MAGNITUDE) for part in parts_of(name))


def beside_magnitudes(adapters: Iterable[str], parameters: Iterable[str]) -> set[str]:
    """Return the adapters that DoRA reads again for the norms of W + s B A: outputs are not linear in them."""
    layers = {name.partition(MAGNITUDE)[0] for name in parameters if MAGNITUDE in name}
    return {name for name in adapters if name.partition("lora_")[0] in layers}


def parts_of(name: str) -> list[str]:
    return name.lower().split(".")
