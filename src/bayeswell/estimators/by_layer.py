"""Replacing the forward of chosen layers for the length of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..tree import Site
from ..types import BayesianModel, LinearLayer

LayerForward = Callable[..., Tensor]


@contextmanager
def replaced_forwards(layers: Sequence[LinearLayer], forward: LayerForward) -> Iterator[None]:
    """Within the block each layer computes ``forward(layer, x, ...)`` instead of its own forward.

    torch's fused attention path reads weights past their layer's forward, so it is off within the block.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for layer in layers:
            layer.module.forward = partial(forward, layer)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for layer in layers:
            # The replacement is an attribute of the instance; without it the class's own forward is back.
            layer.module.__dict__.pop("forward", None)


def example_signs_shape(layer: LinearLayer, x: Tensor, channels: int) -> list[int]:
    """The shape of signs that are constant over positions: (examples, 1..., channels) or (examples, channels, 1...)."""
    if layer.spatial_dims == 0:
        shape = [1] * x.dim()
        shape[-1] = channels
        batched = x.dim() > 1
    else:
        shape = [1] * x.dim()
        shape[-layer.spatial_dims - 1] = channels
        batched = x.dim() == layer.spatial_dims + 2
    if batched:
        shape[0] = x.shape[0]
    return shape


def unused_site(site: Site) -> str:
    """Why a site gets plain weight sampling although the estimator treats linear layers specially."""
    if len(site.names) > 1:
        return "weight_sampling (shared by several layers)"
    return f"weight_sampling ({site.layer} is not linear in it through its own forward)"


def linear_names(model: BayesianModel) -> set[str]:
    """Names of the weights and biases that lie in layers linear in their weight."""
    names: set[str] = set()
    for layer in model.linear_layers.values():
        names.add(layer.weight)
        if layer.bias is not None:
            names.add(layer.bias)
    return names


def any_nan(outputs: Any) -> bool:
    """Whether some tensor among the outputs has a NaN; False where values cannot be looked at (vmap, compilation)."""
    if isinstance(outputs, Tensor):
        if torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(outputs):
            return False
        return outputs.is_floating_point() and bool(outputs.isnan().any())
    if isinstance(outputs, dict):
        return any(any_nan(value) for value in outputs.values())
    if isinstance(outputs, list | tuple):
        return any(any_nan(value) for value in outputs)
    return False
