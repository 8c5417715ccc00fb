"""Layers whose output is linear in their weight: ``op(x, weight, bias)``.

Local reparameterization and flipout need of a layer only this. One entry a layer kind, no Bayesian code.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

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


# kind -> (op, number of spatial axes)
_KINDS: dict[type[nn.Module], tuple[Callable[..., Tensor], int]] = {
    nn.Linear: (_dense, 0),
    nn.Conv1d: (_convolution, 1),
    nn.Conv2d: (_convolution, 2),
    nn.Conv3d: (_convolution, 3),
    nn.ConvTranspose1d: (partial(_transposed, F.conv_transpose1d), 1),
    nn.ConvTranspose2d: (partial(_transposed, F.conv_transpose2d), 2),
    nn.ConvTranspose3d: (partial(_transposed, F.conv_transpose3d), 3),
}


def _kind(module: nn.Module) -> type[nn.Module] | None:
    for kind in _KINDS:
        # A subclass, or an instance, that computes something else in its forward is not known to be linear.
        if isinstance(module, kind) and type(module).forward is kind.forward and "forward" not in module.__dict__:
            return kind
    return None


def is_linear_layer(module: nn.Module) -> bool:
    """Whether the layer's output is linear in its weight."""
    return _kind(module) is not None


def find_linear_layers(net: nn.Module, bayesian: Set[str], shared: Set[str]) -> dict[str, LinearLayer]:
    """The layers of ``net`` that are linear in a Bayesian weight which no other layer shares.

    ``bayesian`` and ``shared`` are parameter names. Left out, because their weight is read outside the
    layer's own forward: the projections inside ``nn.MultiheadAttention``.
    """
    fused = {
        f"{name}.{child}" if name else child
        for name, module in net.named_modules()
        if isinstance(module, nn.MultiheadAttention)
        for child, _ in module.named_children()
    }
    found = {}
    for name, module in net.named_modules():
        kind = _kind(module)
        prefix = f"{name}." if name else ""
        weight, bias = f"{prefix}weight", f"{prefix}bias"
        if kind is None or name in fused or weight not in bayesian or weight in shared:
            continue
        op, spatial_dims = _KINDS[kind]
        found[name] = LinearLayer(
            name=name,
            module=module,
            op=partial(op, module),
            weight=weight,
            bias=bias if bias in bayesian and bias not in shared else None,
            spatial_dims=spatial_dims,
        )
    return found
