"""Layers whose output is linear in their weight: ``op(x, weight, bias)``, for local reparameterization and flipout."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.layout import Site
from ..core.protocols import LinearLayer


def _dense(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight, bias)


def _convolution(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # torch's own method: it also handles the padding modes (circular, reflect, replicate, "same").
    result: Tensor = layer._conv_forward(x, weight, bias)
    return result


def _transposed(
    op: Callable[..., Tensor],
    layer: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    output_size: list[int] | None = None,
) -> Tensor:
    stride, padding, dilation = list(layer.stride), list(layer.padding), list(layer.dilation)
    kernel, spatial_dims = list(layer.kernel_size), len(layer.kernel_size)
    extra = layer._output_padding(x, output_size, stride, padding, kernel, spatial_dims, dilation)
    return op(x, weight, bias, layer.stride, layer.padding, extra, layer.groups, layer.dilation)


# layer type -> (op, number of spatial axes)
_TYPES: dict[type[nn.Module], tuple[Callable[..., Tensor], int]] = {
    nn.Linear: (_dense, 0),
    nn.Conv1d: (_convolution, 1),
    nn.Conv2d: (_convolution, 2),
    nn.Conv3d: (_convolution, 3),
    nn.ConvTranspose1d: (partial(_transposed, F.conv_transpose1d), 1),
    nn.ConvTranspose2d: (partial(_transposed, F.conv_transpose2d), 2),
    nn.ConvTranspose3d: (partial(_transposed, F.conv_transpose3d), 3),
}


def _linear_type(module: nn.Module) -> type[nn.Module] | None:
    for kind in _TYPES:
        # The forward of a subclass or an instance may compute something else.
        if isinstance(module, kind) and type(module).forward is kind.forward and "forward" not in module.__dict__:
            return kind
    return None


def is_linear_layer(module: nn.Module) -> bool:
    """Return whether the layer's output is linear in its weight."""
    return _linear_type(module) is not None


def find_linear_layers(net: nn.Module, bayesian: Set[str], shared: Set[str]) -> dict[str, LinearLayer]:
    """Return the layers that are linear in a Bayesian weight which no other layer shares, by name.

    ``nn.MultiheadAttention`` reads the weights of its projections itself, so these are left out.
    """
    attention = [module for module in net.modules() if isinstance(module, nn.MultiheadAttention)]
    fused = {id(child) for module in attention for child in module.children()}
    found = {}
    for name, module in net.named_modules():
        kind = _linear_type(module)
        prefix = f"{name}." if name else ""
        weight, bias = f"{prefix}weight", f"{prefix}bias"
        if kind is None or id(module) in fused or weight not in bayesian or weight in shared:
            continue
        op, spatial_dims = _TYPES[kind]
        own_bias = bias if bias in bayesian and bias not in shared else None
        found[name] = LinearLayer(name, module, partial(op, module), weight, own_bias, spatial_dims)
    return found


def input_patches(layer: LinearLayer, site: Site, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """(places, inputs x kernel area): the numbers that an output unit is the weighted sum of.

    A convolution with the unit vectors as kernels copies each number to a channel of its own, whatever its padding,
    stride, dilation or direction.
    """
    if layer.spatial_dims:
        assert site.matrix_shape is not None
        units = torch.eye(site.matrix_shape[1], dtype=x.dtype, device=x.device)
        x = layer.op(x, site.from_matrix(units), None, *args, **kwargs)
    return by_place(layer, x)


def by_place(layer: LinearLayer, values: Tensor) -> Tensor:
    """(places, channels) of a layer's inputs, outputs or gradients, of all examples."""
    channels_last = values.movedim(-layer.spatial_dims - 1, -1)
    return channels_last.reshape(-1, channels_last.shape[-1])
