"""Replacing the forward of chosen layers for the length of one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from ..guards import guarded
from ..layers import without_fused_attention
from ..nested import tensors_in
from ..tree import Site
from ..types import BayesianModel, LinearLayer

LayerForward = Callable[..., Any]


class Layer(Protocol):
    """Whatever stands for a layer of a network."""

    @property
    def module(self) -> nn.Module:
        """The layer itself."""
        ...


@contextmanager
def replaced_forwards(net: nn.Module, layers: Sequence[Layer], forward: LayerForward) -> Iterator[None]:
    """Within the block each of these layers of ``net`` computes ``forward(layer, x, ...)`` instead of its own forward.

    torch's fused attention path reads weights past their layer's forward, so it is off within the block. The network's
    guard is held: no other thread calls it meanwhile.
    """
    with guarded(net):
        try:
            for layer in layers:
                layer.module.forward = partial(_called, forward, layer)
            with without_fused_attention(net):
                yield
        finally:
            for layer in layers:
                # The replacement is an attribute of the instance; without it the class's own forward is back.
                layer.module.__dict__.pop("forward", None)


def _called(forward: LayerForward, layer: Layer, input: Any, *extra: Any, **named: Any) -> Any:
    """``input`` may also be given by this name, which is torch's."""
    return forward(layer, input, *extra, **named)


def example_signs_shape(layer: LinearLayer, x: Tensor, channels: int, examples: int) -> list[int]:
    """The shape of signs with one number for each example and channel, constant over positions.

    Examples lie on the first axis, or on the second of a dense layer's input where only that has their number
    (sequences with time first). Where neither has it (rows of several examples side by side) every row of the first
    axis counts as an example of its own.
    """
    shape = [1] * x.dim()
    shape[-layer.spatial_dims - 1] = channels
    if layer.spatial_dims and x.dim() < layer.spatial_dims + 2:
        return shape
    if layer.spatial_dims == 0 and x.dim() < 2:
        return shape
    time_first = layer.spatial_dims == 0 and x.dim() > 2 and x.shape[1] == examples != x.shape[0]
    axis = 1 if time_first else 0
    shape[axis] = x.shape[axis]
    return shape


def first_axis(inputs: Any) -> int:
    """The size of the first axis of the first tensor among the inputs; 0 if there is none."""
    return next((len(tensor) if tensor.dim() else 0 for tensor in tensors_in(inputs, deep=False)), 0)


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
