"""The Jacobian J = df/dw of a network in its Bayesian weights, layer by layer and never as one matrix.

A layer that is linear in its weight W, y_t = W a_t + b at the places t of an example (one place of a dense layer, every
pixel of a convolution), and g_kt the gradient of output k in y_t, have

    J_k = sum_t g_kt a_t',      J_k for the bias = sum_t g_kt.

The gradients of all K outputs take K passes backwards through the activations, whatever there is to be done with J
afterwards. Of a layer with one place a and g themselves are kept: with them

    J dW = g (dW a),            J diag(v) J' = g diag(V a^2) g',        J (A A' (x) B B') J' = |B'a|^2 (g A)(g A)',

each a product or two with the weight matrix, as an ordinary pass has one. Of others the sum over places is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..estimators.by_layer import replaced_forwards
from ..layers import shape_of
from ..outputs import require_tensor
from ..tree import Layout, Site
from ..types import Covariance, Inputs, LinearLayer

_COLUMNS = 64
"""Columns of a factor that are multiplied at a time."""
MOST_NUMBERS = 1 << 22
"""Of the Jacobian of one example and layer, and of what is worked on at a time: beyond it forward mode is better."""


GradientsOf = Callable[[Tensor, Sequence[Tensor]], list[Tensor]]
"""``one_by_one`` or ``all_at_once``."""


class HasLayers(Protocol):
    """A drawable network whose Bayesian weights all lie in layers that are linear in them."""

    net: nn.Module
    layout: Layout

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The network's outputs with these tensors in place of its Bayesian parameters."""
        ...


class _Slopes(Protocol):
    """The Jacobian of one layer for S examples and K outputs; its weight is a matrix of (o, i)."""

    @property
    def bias(self) -> Tensor:
        """(S, K, o)."""
        ...

    def times(self, weights: Tensor, biases: Tensor | None) -> Tensor:
        """(S, D, K): J applied to D matrices (D, o, i), and biases (D, o)."""
        ...

    def spread(self, variances: Tensor, biases: Tensor | None) -> Tensor:
        """(S, K, K): J diag(v) J'."""
        ...

    def matrix_spread(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(S, K, K): J Cov[A E B'] J'."""
        ...

    def summed(self, outputs: Tensor) -> Tensor:
        """(o, i): the gradient of sum(outputs * f), for outputs (S, K)."""
        ...


@dataclass(frozen=True)
class _OnePlace:
    inputs: Tensor
    """(S, i)."""
    bias: Tensor

    def times(self, weights: Tensor, biases: Tensor | None) -> Tensor:
        some = max(1, MOST_NUMBERS // max(1, self.bias[:, 0].numel()))
        if len(weights) > some:
            parts = [slice(start, start + some) for start in range(0, len(weights), some)]
            pairs = ((weights[part], None if biases is None else biases[part]) for part in parts)
            return torch.cat([self.times(*pair) for pair in pairs], dim=1)
        units = F.linear(self.inputs, weights.flatten(0, 1), None if biases is None else biases.flatten())
        return torch.bmm(units.unflatten(1, (len(weights), -1)), self.bias.mT)

    def spread(self, variances: Tensor, biases: Tensor | None) -> Tensor:
        units = F.linear(self.inputs.square(), variances, biases)
        return torch.bmm(self.bias * units[:, None], self.bias.mT)

    def matrix_spread(self, rows: Tensor, columns: Tensor) -> Tensor:
        turned = self.bias @ rows
        scale = (self.inputs @ columns).square().sum(1)
        return torch.bmm(turned, turned.mT) * scale[:, None, None]

    def summed(self, outputs: Tensor) -> Tensor:
        return torch.einsum("sk,sko->so", outputs, self.bias).T @ self.inputs


@dataclass(frozen=True)
class _ManyPlaces:
    weight: Tensor
    """(S, K, o, i)."""
    bias: Tensor

    def times(self, weights: Tensor, biases: Tensor | None) -> Tensor:
        found = self.weight.flatten(2) @ weights.flatten(1).T
        found = found if biases is None else found + self.bias @ biases.T
        return found.mT

    def spread(self, variances: Tensor, biases: Tensor | None) -> Tensor:
        flat = self.weight.flatten(2)
        found = torch.bmm(flat * variances.flatten(), flat.mT)
        return found if biases is None else found + torch.bmm(self.bias * biases, self.bias.mT)

    def matrix_spread(self, rows: Tensor, columns: Tensor) -> Tensor:
        turned = (rows.T @ (self.weight @ columns)).flatten(2)
        return torch.bmm(turned, turned.mT)

    def summed(self, outputs: Tensor) -> Tensor:
        return torch.einsum("sk,skoi->oi", outputs, self.weight)


@dataclass(frozen=True)
class _Call:
    """What a layer was called with, and what it gave; without the example axis where a call had none."""

    layer: LinearLayer
    inputs: Tensor
    more: tuple[tuple[Any, ...], Mapping[str, Any]]
    outputs: Tensor


class Unsuitable(Exception):
    """This network has no Jacobian of this kind for these inputs: it has to be linearised draw by draw."""


@dataclass(frozen=True)
class Jacobian:
    """f(x; m) as (S, K), and df/dw there, of S examples; ``numbers`` were worked on for each.

    ``shape`` is that of the network's own outputs of an example, K numbers in all.
    """

    outputs: Tensor
    shape: torch.Size
    layout: Layout
    slopes: Sequence[tuple[LinearLayer, _Slopes]]
    numbers: int

    def times(self, changes: Mapping[str, Tensor]) -> Tensor:
        """(D, S, K): J dw for D changes of the weights, tensors (D, *shape) by name."""
        total: Tensor | None = None
        for layer, slopes in self.slopes:
            weights = self._site(layer).to_matrix(changes[layer.weight])
            found = slopes.times(weights, None if layer.bias is None else changes[layer.bias])
            total = found if total is None else total + found
        assert total is not None
        return total.transpose(0, 1)

    def covariance(self, known: Covariance) -> Tensor:
        """(S, K, K): J Cov[w] J'."""
        examples, outputs = self.outputs.shape
        total = self.outputs.new_zeros(examples, outputs, outputs)
        variances = self.layout.unflatten(known.variances)
        for layer, slopes in self.slopes:
            of_bias = None if layer.bias is None else variances[layer.bias]
            if layer.weight in known.matrices:
                total += slopes.matrix_spread(*known.matrices[layer.weight])
                if of_bias is not None:
                    total += torch.bmm(slopes.bias * of_bias, slopes.bias.mT)
            else:
                total += slopes.spread(self._site(layer).to_matrix(variances[layer.weight]), of_bias)
        if known.factor is None:
            return total
        for columns in known.factor.split(_COLUMNS, dim=1):
            rows = columns.T.split(self.layout.sizes, dim=1)
            changes = {
                site.name: row.reshape(-1, *site.shape) for site, row in zip(self.layout.sites, rows, strict=True)
            }
            found = self.times(changes).permute(1, 2, 0)
            total += torch.bmm(found, found.mT)
        return total

    def summed(self, outputs: Tensor) -> Tensor:
        """(P,): the gradient of sum(outputs * f) in the weights, for outputs (S, K); 0 in layers never called."""
        found = {site.name: self.outputs.new_zeros(site.shape) for site in self.layout.sites}
        for layer, slopes in self.slopes:
            found[layer.weight] = self._site(layer).from_matrix(slopes.summed(outputs))
            if layer.bias is not None:
                found[layer.bias] = torch.einsum("sk,sko->o", outputs, slopes.bias)
        return self.layout.flatten(found)

    def _site(self, layer: LinearLayer) -> Site:
        return next(site for site in self.layout.sites if site.name == layer.weight)


def jacobian(
    model: HasLayers, layers: Sequence[LinearLayer], centre: Mapping[str, Tensor], inputs: Inputs, most_outputs: int,
    gradients_of: GradientsOf,
) -> Jacobian:  # fmt: skip
    """The Jacobian at ``centre`` of every example; ``Unsuitable`` where there are more outputs, or a strange layer."""
    calls: list[_Call] = []

    def noted(layer: LinearLayer, x: Tensor, *extra: Any, **named: Any) -> Tensor:
        outputs = layer.op(x, layer.module.weight, layer.module.bias, *extra, **named)
        if not outputs.requires_grad:
            outputs.requires_grad_()
        calls.append(_Call(layer, x.detach(), (extra, named), outputs))
        # The network goes on with a copy: an activation that works in place would change what was kept.
        return outputs.clone()

    with torch.enable_grad():
        with replaced_forwards(model.net, layers, noted):
            outputs = require_tensor(model.call(centre, inputs))
        if outputs.dim() == 0 or not calls or not outputs.requires_grad:
            raise Unsuitable
        flat = outputs.reshape(len(outputs), -1)
        if flat.shape[1] > most_outputs:
            raise Unsuitable
        gradients = gradients_of(flat, [call.outputs for call in calls])
    slopes, sites = [], {site.name: site for site in model.layout.sites}
    for layer in layers:
        own = [(call, g) for call, g in zip(calls, gradients, strict=True) if call.layer is layer]
        if own:
            slopes.append((layer, _slopes(layer, own, len(flat), sites[layer.weight])))
    numbers = sum(gradient.numel() for gradient in gradients) // len(flat)
    return Jacobian(flat.detach(), outputs.shape[1:], model.layout, slopes, numbers)


def one_by_one(outputs: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """(K, ...) for each place: the gradients of all K outputs there, of every example by itself."""
    rows = [
        torch.autograd.grad(output.sum(), places, retain_graph=True, materialize_grads=True)
        for output in outputs.unbind(1)
    ]
    return [torch.stack(of_place) for of_place in zip(*rows, strict=True)]


def all_at_once(outputs: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """The same in one pass of K times the size: less time where torch knows how to vectorise each operation."""
    units = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    each = units[:, None].expand(-1, len(outputs), -1)
    return list(torch.autograd.grad(outputs, places, each, is_grads_batched=True, materialize_grads=True))


def _slopes(layer: LinearLayer, calls: Sequence[tuple[_Call, Tensor]], examples: int, site: Site) -> _Slopes:
    """Summed over the calls of the layer."""
    weight: Tensor | None = None
    bias: Tensor | None = None
    for call, gradients in calls:
        if call.outputs.dim() < 2 + layer.spatial_dims or len(call.outputs) != examples:
            raise Unsuitable  # examples lie elsewhere than on the first axis
        units = _by_place(layer, gradients)
        at_places = units.sum(2).transpose(0, 1).contiguous()
        if len(calls) == 1 and units.shape[2] == 1:
            return _OnePlace(_patches(call, site)[:, 0], at_places)
        _require_small(units, site)
        own = torch.einsum("kspo,spi->skoi", units, _patches(call, site))
        weight = own if weight is None else weight + own
        bias = at_places if bias is None else bias + at_places
    assert weight is not None
    assert bias is not None
    return _ManyPlaces(weight, bias)


def _require_small(units: Tensor, site: Site) -> None:
    if len(units) * site.size > MOST_NUMBERS:
        raise Unsuitable


@torch.no_grad()
def _patches(call: _Call, site: Site) -> Tensor:
    """(S, places, i): the numbers that an output unit is the weighted sum of."""
    layer, x, (extra, named) = call.layer, call.inputs, call.more
    if layer.spatial_dims == 0:
        return _by_place(layer, x[None])[0]
    if getattr(layer.module, "groups", 1) > 1:
        raise Unsuitable
    shape = shape_of(layer.module)
    if shape is not None and layer.spatial_dims == 2:
        how = tuple(shape.dilation), tuple(shape.padding), tuple(shape.stride)
        return F.unfold(x, site.shape[2:], *how).mT
    # A convolution called with the unit vectors for kernels copies each number to a channel of its own.
    assert site.matrix_shape is not None
    units = torch.eye(site.matrix_shape[1], dtype=x.dtype, device=x.device)
    return _by_place(layer, layer.op(x, site.from_matrix(units), None, *extra, **named)[None])[0]


def _by_place(layer: LinearLayer, values: Tensor) -> Tensor:
    """(K, S, places, channels) of K times a layer's inputs, outputs or gradients."""
    last = values.movedim(-layer.spatial_dims - 1, -1)
    return last.reshape(*last.shape[:2], -1, last.shape[-1])
