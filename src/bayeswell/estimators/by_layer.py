"""Other forward passes for the linear layers of a network, for the length of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor

from ..core.protocols import BayesianModel, Inputs, LinearLayer

LayerForward = Callable[..., Any]
"""(layer, input, ...) -> output of the layer."""


@contextmanager
def replaced_forwards(model: BayesianModel, layers: Iterable[LinearLayer], forward: LayerForward) -> Iterator[None]:
    """Let each of these layers of a model compute ``forward(layer, input, ...)`` within the block."""
    with model.lock:
        try:
            for layer in layers:
                layer.module.forward = partial(_call, forward, layer)
            yield
        finally:
            for layer in layers:
                # The replacement is an attribute of the instance; without it the method of the class is back.
                layer.module.__dict__.pop("forward", None)


def _call(forward: LayerForward, layer: LinearLayer, input: Any, *args: Any, **kwargs: Any) -> Any:
    return forward(layer, input, *args, **kwargs)


def call_with(model: BayesianModel, weights: Mapping[str, Tensor], inputs: Inputs, forward: LayerForward) -> Tensor:
    """Return the outputs of the network with another forward for its linear layers."""
    with replaced_forwards(model, model.linear_layers.values(), forward):
        return model.call(weights, inputs)


def signs_shape(layer: LinearLayer, x: Tensor, channels: int, examples: int) -> list[int]:
    """Return the shape of signs with one number for each example and channel, constant over positions.

    Examples lie on the first axis, or on the second of a dense layer's input if only that has their number (sequences
    with time first). Where neither has it, every row of the first axis counts as an example.
    """
    shape = [1] * x.dim()
    shape[-layer.spatial_dims - 1] = channels
    if x.dim() < layer.spatial_dims + 2:
        return shape
    time_first = layer.spatial_dims == 0 and x.dim() > 2 and x.shape[1] == examples != x.shape[0]
    axis = 1 if time_first else 0
    shape[axis] = x.shape[axis]
    return shape
