"""The Jacobian J = df/dw of a network in its Bayesian weights, layer by layer and never as one matrix.

A layer y_t = W a_t + b at the places t of an example (one place of a dense layer, each pixel of a convolution), with
g_kt the gradient of output k in y_t, has J_k = sum_t g_kt a_t', and for the bias sum_t g_kt. With one place

    J dW = g (dW a),     J diag(v) J' = g diag(V a^2) g',     J (A A' (x) B B') J' = |B' a|^2 (g A)(g A)'.

Each example is differentiated by itself (``vmap``), and the network runs with its Bayesian parameters empty while the
layers hold theirs: a network that reads a weight outside its layer fails, and is ``Unsuitable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import jacrev, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree

from ..core.errors import NetworkError
from ..core.layout import Layout, Site
from ..core.protocols import Covariance, Inputs, LinearLayer
from ..core.pytree import num_examples, tree_index
from ..estimators.by_layer import replaced_forwards
from ..nn import BayesianModule, evaluation_mode, input_patches, plain_attention
from .draws import has_masks

MOST_OUTPUTS = 64
"""Of an example; with more, the Jacobian costs more than draws."""
MOST_NUMBERS = 1 << 22
"""Numbers of the Jacobian of one example and layer, and of those that are worked on at a time."""
COLUMNS = 64
"""Columns of a factor that are multiplied at a time."""

Result = TypeVar("Result")


class Unsuitable(Exception):
    """The network has no layer-wise Jacobian."""


@dataclass(frozen=True)
class LayerJacobian:
    """The Jacobian of one layer for S examples and K outputs; its weight is a matrix (o, i).

    Args:
        layer: the layer.
        site: its weight.
        gradients: (S, K, places, o).
        patches: (S, places, i): the numbers that an output unit is the weighted sum of.
    """

    layer: LinearLayer
    site: Site
    gradients: Tensor
    patches: Tensor

    @cached_property
    def bias(self) -> Tensor:
        """(S, K, o)."""
        return self.gradients.sum(2)

    @cached_property
    def weight(self) -> Tensor:
        """(S, K, o, i)."""
        return torch.einsum("skpo,spi->skoi", self.gradients, self.patches)

    @property
    def one_place(self) -> Tensor | None:
        """(S, i): the inputs of a layer with one place."""
        return self.patches[:, 0] if self.patches.shape[1] == 1 else None

    def times(self, changes: Mapping[str, Tensor]) -> Tensor:
        """(D, S, K): J dw for D changes (D, ...) of the weights."""
        matrices, x = self.site.to_matrix(changes[self.layer.weight]), self.one_place
        if x is None:
            output_changes = (self.weight.flatten(2) @ matrices.flatten(1).T).permute(2, 0, 1)
        else:
            output_changes = torch.einsum("dso,sko->dsk", x @ matrices.mT, self.bias)
        if self.layer.bias is not None:
            output_changes = output_changes + (self.bias @ changes[self.layer.bias].T).permute(2, 0, 1)
        return output_changes

    def covariance(self, variances: Mapping[str, Tensor], known: Covariance) -> Tensor:
        """(S, K, K): the part of J Cov[w] J' from diagonal and Kronecker terms."""
        if self.layer.weight in known.matrices:
            covariance = self._of_kronecker(*known.matrices[self.layer.weight])
        else:
            covariance = self._of_diagonal(self.site.to_matrix(variances[self.layer.weight]))
        if self.layer.bias is not None:
            covariance = covariance + torch.bmm(self.bias * variances[self.layer.bias], self.bias.mT)
        return covariance

    def _of_diagonal(self, variances: Tensor) -> Tensor:
        x = self.one_place
        if x is None:
            flat = self.weight.flatten(2)
            return torch.bmm(flat * variances.flatten(), flat.mT)
        return torch.bmm(self.bias * (x.square() @ variances.T)[:, None], self.bias.mT)

    def _of_kronecker(self, rows: Tensor, columns: Tensor) -> Tensor:
        x = self.one_place
        if x is None:
            scaled = (rows.T @ (self.weight @ columns)).flatten(2)
            return torch.bmm(scaled, scaled.mT)
        scaled = self.bias @ rows
        return torch.bmm(scaled, scaled.mT) * (x @ columns).square().sum(1)[:, None, None]


@dataclass(frozen=True)
class Jacobian:
    """f(x; m) as (S, K), and df/dw there."""

    outputs: Tensor
    layout: Layout
    layers: Sequence[LayerJacobian]

    def times(self, changes: Mapping[str, Tensor]) -> Tensor:
        """(D, S, K): J dw for D changes of the weights, tensors (D, ...) by name."""
        return torch.stack([layer.times(changes) for layer in self.layers]).sum(0)

    def covariance(self, known: Covariance) -> Tensor:
        """(S, K, K): J Cov[w] J'."""
        variances = self.layout.unflatten(known.variances)
        total = torch.stack([layer.covariance(variances, known) for layer in self.layers]).sum(0)
        if known.factor is not None:
            for columns in known.factor.split(COLUMNS, dim=1):
                output_columns = self.times(self.layout.unflatten(columns.T.contiguous())).permute(1, 2, 0)
                total = total + torch.bmm(output_columns, output_columns.mT)
        return total


class Jacobians:
    """Iterates over the Jacobians of some examples at a time; ``Unsuitable`` is raised if there are none."""

    def __init__(self, model: BayesianModule, inputs: Inputs, count: int, batch_size: int | None) -> None:
        self.model, self.inputs = model, inputs
        self.layers = layers_of_all_weights(model)
        self.sites = {site.name: site for site in model.layout.sites}
        self.center = model.layout.unflatten(model.posterior.mean.detach())
        with evaluation_mode(model):
            first, calls = _or_unsuitable(lambda: self._run(self._examples(slice(1)), None))
        self.shape, self.called = first.shape[1:], [layer for layer, _, _ in calls]
        self.unit_shapes = [y.shape for _, _, y in calls]
        size = first.numel() * sum(shape.numel() for shape in self.unit_shapes)
        max_layer_size = max(first.numel() * self.sites[layer.weight].size for layer in self.called)
        if first.numel() > min(MOST_OUTPUTS, count) or max_layer_size > MOST_NUMBERS:
            raise Unsuitable
        self.block = max(1, min(batch_size or MOST_NUMBERS, MOST_NUMBERS // (2 * size)))
        self.first = self._jacobian(self._examples(slice(self.block)))

    def __iter__(self) -> Iterator[Jacobian]:
        yield self.first
        for start in range(self.block, num_examples(self.inputs), self.block):
            try:
                jacobian = self._jacobian(self._examples(slice(start, start + self.block)))
            except Unsuitable as error:
                message = f"linearized: the network has no layer-wise Jacobian from example {start} on, but before it"
                raise NetworkError(f"{message}; use prediction='sampled'") from error
            yield jacobian

    def _jacobian(self, inputs: Inputs) -> Jacobian:
        tensors, structure = _pytree.tree_flatten(inputs)

        def single(offsets: list[Tensor], *example: Tensor) -> tuple[Tensor, Any]:
            batch = _pytree.tree_unflatten([tensor[None] for tensor in example], structure)
            outputs, calls = self._run(batch, offsets)
            flat = outputs[0].reshape(-1)
            return flat, (flat, [patches for _, patches, _ in calls])

        like = self.center[self.layers[0].weight]
        offsets = [like.new_zeros(shape) for shape in self.unit_shapes]
        differentiate = vmap(jacrev(single, has_aux=True), in_dims=(None, *[0] * len(tensors)))
        with evaluation_mode(self.model), plain_attention():
            gradients, (outputs, patches) = _or_unsuitable(lambda: differentiate(offsets, *tensors))
        layers = []
        for layer in self.layers:
            # Several calls of a layer are more places.
            calls = [call for call, called in enumerate(self.called) if called is layer]
            if calls:
                unit_gradients = torch.cat([_by_place(layer, gradients[call].squeeze(2)) for call in calls], dim=2)
                layer_patches = torch.cat([patches[call] for call in calls], dim=1)
                layers.append(LayerJacobian(layer, self.sites[layer.weight], unit_gradients, layer_patches))
        return Jacobian(outputs, self.model.layout, layers)

    def _run(
        self, inputs: Inputs, offsets: Sequence[Tensor] | None
    ) -> tuple[Tensor, list[tuple[LinearLayer, Tensor, Tensor]]]:
        """Run the network with its Bayesian parameters in the layers alone, with the offsets added to their outputs.

        Return its outputs, and for each call the layer, its patches and its output.
        """
        calls: list[tuple[LinearLayer, Tensor, Tensor]] = []

        def forward(layer: LinearLayer, x: Tensor, *extra: Any, **named: Any) -> Tensor:
            bias = layer.module.bias if layer.bias is None else self.center[layer.bias]
            y: Tensor = layer.op(x, self.center[layer.weight], bias, *extra, **named)
            y = y if offsets is None else y + offsets[len(calls)]
            if len(y) != 1 or y.dim() < 2 + layer.spatial_dims:
                raise Unsuitable  # the first axis does not count examples
            # A copy: the network may change its activations in place.
            patches = input_patches(layer, self.sites[layer.weight], x.detach(), *extra, **named).clone()
            calls.append((layer, patches, y))
            return y

        with replaced_forwards(self.model, self.layers, forward):
            return self.model.call({}, inputs), calls

    def _examples(self, rows: slice) -> Inputs:
        return tree_index(self.inputs, rows)


def layers_of_all_weights(model: BayesianModule) -> list[LinearLayer]:
    """Return the linear layers if they hold all that is drawn; else raise ``Unsuitable``."""
    layers = list(model.linear_layers.values())
    of_layers = {name for layer in layers for name in (layer.weight, layer.bias) if name is not None}
    drawn = {name for site in model.layout.sites for name in site.names}
    mixes = any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.net.modules())
    extra = has_masks(model.net) or bool(model.posterior.extra_names)
    is_precise = model.posterior.mean.dtype in (torch.float32, torch.float64)
    grouped = any(getattr(layer.module, "groups", 1) > 1 for layer in layers)
    if of_layers != drawn or mixes or extra or grouped or not is_precise or torch.is_autocast_enabled("cpu"):
        raise Unsuitable
    return layers


def _or_unsuitable(function: Callable[[], Result]) -> Result:
    try:
        return function()
    except (RuntimeError, TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise
        raise Unsuitable from error  # If the network cannot run at all, forward mode raises its error.


def _by_place(layer: LinearLayer, gradients: Tensor) -> Tensor:
    last = gradients.movedim(-layer.spatial_dims - 1, -1)
    return last.reshape(*last.shape[:2], -1, last.shape[-1])
