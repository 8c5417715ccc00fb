"""The two factors of the curvature of each linear layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.layout import Site
from ..core.protocols import LinearLayer
from ..nn import by_place, input_patches


class LayerCurvature:
    """Running sums for one layer, whose curvature per datum is about ``gradients`` (x) ``inputs``.

    With a_nt the inputs that meet the weight at position t of example n, and g_ntu the gradient of u'f in the layer's
    outputs there, for each column u of the output curvature::

        inputs = sum_nt a a' / examples,     gradients = sum_ntu g g' / (examples x positions)

    Exact where g does not vary with n and there is one position; gradients of different positions (of a convolution,
    a sequence, several calls) are taken as uncorrelated and alike (Grosse & Martens 2016).
    """

    def __init__(self, layer: LinearLayer, site: Site, like: Tensor) -> None:
        assert site.matrix_shape is not None
        self.layer, self.site = layer, site
        rows, columns = site.matrix_shape
        # float64: sums over a whole data set.
        self._inputs = like.new_zeros(columns, columns, dtype=torch.float64)
        self._gradients = like.new_zeros(rows, rows, dtype=torch.float64)
        self._positions = 0

    def add_call(self, x: Tensor, *args: Any, **kwargs: Any) -> None:
        """Add the inputs of a call of the layer."""
        with torch.no_grad():
            vectors = input_patches(self.layer, self.site, x, *args, **kwargs)
        self._inputs += (vectors.T @ vectors).double()
        self._positions += len(vectors)

    def add_gradient(self, gradient: Tensor) -> None:
        """Add the gradient in the layer's outputs, for one column of the output curvature."""
        vectors = by_place(self.layer, gradient)
        self._gradients += (vectors.T @ vectors).double()

    def factors(self, examples: int) -> tuple[Tensor, Tensor]:
        """Return (gradients, inputs), for rows and columns of the weight matrix; zeros for a layer never called."""
        return self._gradients / max(self._positions, 1), self._inputs / examples


Call = tuple[LayerCurvature, Tensor]


@contextmanager
def recorded_calls(curvatures: Sequence[LayerCurvature]) -> Iterator[list[Call]]:
    """Add the inputs of all calls of the layers within the block; the list receives their outputs."""
    calls: list[Call] = []

    def hook(
        curvature: LayerCurvature, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Tensor
    ) -> Tensor:
        curvature.add_call(*(value.detach() if isinstance(value, Tensor) else value for value in args), **kwargs)
        calls.append((curvature, outputs))
        # The network continues with a copy: an activation in place would change what was kept.
        return outputs.clone()

    handles = [c.layer.module.register_forward_hook(partial(hook, c), with_kwargs=True) for c in curvatures]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def add_gradients(calls: Sequence[Call], outputs: Tensor, columns: Tensor) -> None:
    """Add, for each column of the output curvature, the gradients in the outputs of the recorded calls."""
    layer_outputs = [layer_output for _, layer_output in calls]
    for column in columns if calls else ():
        gradients = torch.autograd.grad(outputs, layer_outputs, column, retain_graph=True, materialize_grads=True)
        for (curvature, _), gradient in zip(calls, gradients, strict=True):
            curvature.add_gradient(gradient)


def damped(
    gradients: Tensor, inputs: Tensor, scale: float, prior_precision: float, balanced: bool
) -> tuple[Tensor, Tensor]:
    """Return the precisions of rows and columns: (sqrt(scale) G + sqrt(p)/b I) (x) (sqrt(scale) A + b sqrt(p) I).

    Multiplied out this is scale G (x) A + p I, which is wanted, and two cross terms that only add: stds come out too
    small where data and prior weigh alike. b = 1 is Ritter et al.'s form, in which the result depends on how a common
    factor is shared by G and A; ``balanced`` takes Martens & Grosse's b = sqrt(mean diagonal of A / that of G), which
    does not and keeps the cross terms small.
    """
    balance = 1.0
    means = float(inputs.diagonal().mean()), float(gradients.diagonal().mean())
    if balanced and min(means) > 0:
        balance = math.sqrt(means[0] / means[1])
    root, prior_root = math.sqrt(scale), math.sqrt(prior_precision)
    rows, columns = (torch.eye(len(m), dtype=m.dtype, device=m.device) * prior_root for m in (gradients, inputs))
    return root * gradients + rows / balance, root * inputs + columns * balance
