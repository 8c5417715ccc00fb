"""Prediction through the network linearized in its weights.

    f(x; w) ~ f(x; m) + J(x) (w - m),   J = df/dw at the posterior mean m,   w ~ q

(Immer et al. 2021, "Improving predictions of Bayesian neural nets via local linearization"). A Gaussian fitted to the
Gauss-Newton curvature at m is the posterior of this model. With q = N(m, S) the outputs are N(f(x; m), J S J').

J is never one matrix. A layer y_t = W a_t + b at the places t of an example (one place of a dense layer, each pixel of
a convolution), with g_kt the gradient of output k in y_t, has J_k = sum_t g_kt a_t', and for the bias sum_t g_kt. With
one place, a and g are kept:

    J dW = g (dW a),     J diag(v) J' = g diag(V a^2) g',     J (A A' (x) B B') J' = |B' a|^2 (g A)(g A)'.

Each example is differentiated by itself (``vmap``), and the network runs with its Bayesian parameters empty while the
layers hold theirs: a network that reads a weight outside its layer fails. It is then linearized by one pass in forward
mode for each draw, as are networks with other Bayesian layers or many outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vmap
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree

from ..core.layout import Layout, Site
from ..core.protocols import Covariance, Inputs, LinearLayer
from ..core.pytree import num_examples, tree_index
from ..core.random import standard_normal
from ..estimators.by_layer import replaced_forwards
from ..nn import evaluation_mode, plain_attention
from .draws import Model, draws, has_masks
from .inputs import batches_of, like_of, on_device

MOST_OUTPUTS = 64
"""Of an example; with more, the Jacobian costs more than draws."""
MOST_NUMBERS = 1 << 22
"""Numbers of the Jacobian of one example and layer, and of those that are worked on at a time."""
MOST_DRAWN = 1 << 25
"""Weights of drawn networks that are held at a time."""
COLUMNS = 64
"""Columns of a factor that are multiplied at a time."""

_forward_mode = threading.Lock()
"""torch counts passes in forward mode in one number for all threads."""


class Unsuitable(Exception):
    """The network has no layer-wise Jacobian."""


@torch.no_grad()
def linearized_outputs(
    model: Model,
    inputs: Inputs,
    count: int,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    *,
    joint: bool = True,
) -> Iterator[Tensor]:
    """Yield f(m) + J (w - m) for one drawn network after another; arguments as in ``outputs``."""
    try:
        pieces = _Pieces(model, inputs, count, batch_size)
    except Unsuitable:
        pieces = None
    if pieces is None:
        yield from _by_forward_mode(model, inputs, count, generator, batch_size)
        return
    covariance = None if joint else model.posterior.covariance()
    if covariance is None:
        yield from _of_networks(model, pieces, count, generator)
    else:
        yield from _of_each_example(pieces, covariance, count, generator)


@dataclass(frozen=True)
class LayerJacobian:
    """The Jacobian of one layer for S examples and K outputs; its weight is a matrix (o, i).

    Args:
        layer: the layer.
        site: its weight.
        bias: (S, K, o): gradients summed over places.
        inputs: (S, i) for a layer with one place.
        weight: (S, K, o, i) for layers with several places.
    """

    layer: LinearLayer
    site: Site
    bias: Tensor
    inputs: Tensor | None = None
    weight: Tensor | None = None

    def times(self, changes: Mapping[str, Tensor]) -> Tensor:
        """(D, S, K): J dw for D changes (D, ...) of the weights."""
        matrices = self.site.to_matrix(changes[self.layer.weight])
        biases = None if self.layer.bias is None else changes[self.layer.bias]
        if self.inputs is not None:
            units = self.inputs @ matrices.mT
            units = units if biases is None else units + biases[:, None]
            return torch.einsum("dso,sko->dsk", units, self.bias)
        assert self.weight is not None
        found = self.weight.flatten(2) @ matrices.flatten(1).T
        found = found if biases is None else found + self.bias @ biases.T
        return found.permute(2, 0, 1)

    def covariance(self, variances: Mapping[str, Tensor], known: Covariance) -> Tensor:
        """(S, K, K): the part of J Cov[w] J' from diagonal and Kronecker terms."""
        of_bias = None if self.layer.bias is None else variances[self.layer.bias]
        if self.layer.weight in known.matrices:
            found = self._of_kronecker(*known.matrices[self.layer.weight])
        else:
            found = self._of_diagonal(self.site.to_matrix(variances[self.layer.weight]))
        return found if of_bias is None else found + torch.bmm(self.bias * of_bias, self.bias.mT)

    def _of_diagonal(self, variances: Tensor) -> Tensor:
        if self.inputs is not None:
            units = F.linear(self.inputs.square(), variances)
            return torch.bmm(self.bias * units[:, None], self.bias.mT)
        assert self.weight is not None
        flat = self.weight.flatten(2)
        return torch.bmm(flat * variances.flatten(), flat.mT)

    def _of_kronecker(self, rows: Tensor, columns: Tensor) -> Tensor:
        if self.inputs is not None:
            turned = self.bias @ rows
            return torch.bmm(turned, turned.mT) * (self.inputs @ columns).square().sum(1)[:, None, None]
        assert self.weight is not None
        turned = (rows.T @ (self.weight @ columns)).flatten(2)
        return torch.bmm(turned, turned.mT)


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
                found = self.times(self.layout.unflatten(columns.T.contiguous())).permute(1, 2, 0)
                total = total + torch.bmm(found, found.mT)
        return total


@dataclass(frozen=True)
class _Call:
    """A call of a layer: its input, further arguments, and the shape of its output."""

    layer: LinearLayer
    inputs: Tensor
    more: tuple[tuple[Any, ...], Mapping[str, Any]]
    shape: torch.Size


class _Pieces:
    """Jacobians of some examples at a time."""

    def __init__(self, model: Model, inputs: Inputs, count: int, batch_size: int | None) -> None:
        self.model, self.inputs = model, inputs
        self.layers = layers_of_all_weights(model)
        self.center = model.layout.unflatten(model.posterior.mean.detach())
        self.device = like_of(model).device
        with evaluation_mode(model):
            first, self.calls = self._try(lambda: self._run(self._examples(slice(1)), None))
        self.shape = first.shape[1:]
        outputs = first.numel()
        sizes = sum(call.shape.numel() for call in self.calls)
        if outputs > min(MOST_OUTPUTS, count) or any(call.shape[:1] != (1,) for call in self.calls):
            raise Unsuitable
        self.block = max(1, min(batch_size or MOST_NUMBERS, MOST_NUMBERS // (2 * max(1, outputs * sizes))))
        self.first = self.jacobian(self._examples(slice(self.block)))

    def __iter__(self) -> Iterator[Jacobian]:
        yield self.first
        for start in range(self.block, num_examples(self.inputs), self.block):
            yield self.jacobian(self._examples(slice(start, start + self.block)))

    def jacobian(self, inputs: Inputs) -> Jacobian:
        """Return the Jacobian of these examples."""
        leaves, structure = _pytree.tree_flatten(inputs)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def single(offsets: list[Tensor], *tensors: Tensor) -> tuple[Tensor, Any]:
            own = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                own[place] = tensor[None]
            found, calls = self._run(_pytree.tree_unflatten(own, structure), offsets)
            flat = found[0].reshape(-1)
            return flat, (flat, [call.inputs for call in calls])

        like = self.center[self.layers[0].weight]
        offsets = [like.new_zeros(call.shape) for call in self.calls]
        differentiate = vmap(jacrev(single, has_aux=True), in_dims=(None, *[0] * len(places)))
        with evaluation_mode(self.model), plain_attention():
            gradients, (outputs, seen) = self._try(lambda: differentiate(offsets, *[leaves[i] for i in places]))
        return Jacobian(outputs, self.model.layout, self._layers(gradients, seen))

    def _run(self, inputs: Inputs, offsets: Sequence[Tensor] | None) -> tuple[Tensor, list[_Call]]:
        """Run the network with its Bayesian parameters in the layers alone; offsets are added to the layers' outputs."""
        calls: list[_Call] = []

        def forward(layer: LinearLayer, x: Tensor, *extra: Any, **named: Any) -> Tensor:
            bias = layer.module.bias if layer.bias is None else self.center[layer.bias]
            y = layer.op(x, self.center[layer.weight], bias, *extra, **named)
            y = y if offsets is None else y + offsets[len(calls)]
            calls.append(_Call(layer, x.clone(), (extra, named), y.shape))
            return y

        with replaced_forwards(self.model, self.layers, forward):
            return self.model.call({}, inputs), calls

    def _layers(self, gradients: Sequence[Tensor], seen: Sequence[Tensor]) -> list[LayerJacobian]:
        sites = {site.name: site for site in self.model.layout.sites}
        found = []
        for layer in self.layers:
            own = [
                (call, g.squeeze(2), x.squeeze(1))
                for call, g, x in zip(self.calls, gradients, seen, strict=True)
                if call.layer is layer
            ]
            if own:
                found.append(_layer_jacobian(layer, sites[layer.weight], own))
        return found

    def _examples(self, rows: slice) -> Inputs:
        return on_device(tree_index(self.inputs, rows), self.device)

    def _try(self, function: Any) -> Any:
        try:
            return function()
        except (RuntimeError, TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
            # If the network cannot be called at all, forward mode says so.
            raise Unsuitable from error


def layers_of_all_weights(model: Model) -> list[LinearLayer]:
    """Return the linear layers if they hold all that is drawn; else raise ``Unsuitable``."""
    layers = list(model.linear_layers.values())
    known = {name for layer in layers for name in (layer.weight, layer.bias) if name is not None}
    needed = {name for site in model.layout.sites for name in site.names}
    mixes = any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.net.modules())
    extra = has_masks(model.net) or getattr(model.posterior, "extra_names", ())
    exact = model.posterior.mean.dtype in (torch.float32, torch.float64)
    grouped = any(getattr(layer.module, "groups", 1) > 1 for layer in layers)
    if known != needed or mixes or extra or grouped or not exact or torch.is_autocast_enabled("cpu"):
        raise Unsuitable
    return layers


def _layer_jacobian(layer: LinearLayer, site: Site, calls: Sequence[tuple[_Call, Tensor, Tensor]]) -> LayerJacobian:
    """Sum over the calls of a layer, given gradients (S, K, ...) and inputs (S, ...) of each."""
    weights, biases = [], []
    for call, gradients, x in calls:
        units = _by_place(layer, gradients)
        patches = _patches(call, site, x)
        if len(calls) == 1 and units.shape[2] == 1:
            return LayerJacobian(layer, site, units[:, :, 0], inputs=patches[:, 0])
        if units.shape[1] * site.size > MOST_NUMBERS:
            raise Unsuitable
        weights.append(torch.einsum("skpo,spi->skoi", units, patches))
        biases.append(units.sum(2))
    return LayerJacobian(layer, site, torch.stack(biases).sum(0), weight=torch.stack(weights).sum(0))


def _patches(call: _Call, site: Site, x: Tensor) -> Tensor:
    """(S, places, i): the numbers that an output unit is the weighted sum of."""
    layer, (extra, named) = call.layer, call.more
    if layer.spatial_dims == 0:
        return _by_place(layer, x[:, None])[:, 0]
    assert site.matrix_shape is not None
    # A convolution with the unit vectors as kernels copies each number to a channel of its own.
    units = torch.eye(site.matrix_shape[1], dtype=x.dtype, device=x.device)
    return _by_place(layer, layer.op(x, site.from_matrix(units), None, *extra, **named)[:, None])[:, 0]


def _by_place(layer: LinearLayer, values: Tensor) -> Tensor:
    """(S, K, places, channels) of K times a layer's inputs, outputs or gradients."""
    last = values.movedim(-layer.spatial_dims - 1, -1)
    return last.reshape(*last.shape[:2], -1, last.shape[-1])


def _of_networks(model: Model, pieces: _Pieces, count: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    networks = draws(model, count, generator)
    group = max(1, MOST_DRAWN // model.layout.size)
    for start in range(0, count, group):
        some = [next(networks) for _ in range(min(group, count - start))]
        changes = {name: torch.stack([own[name] for own in some]) - mean for name, mean in pieces.center.items()}
        found = torch.cat([piece.outputs + piece.times(changes) for piece in pieces], dim=1)
        yield from found.unflatten(2, pieces.shape) if len(pieces.shape) != 1 else found


def _of_each_example(
    pieces: _Pieces, covariance: Covariance, count: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    """Draw from the Gaussian of each example's outputs, with the same K numbers of noise for all examples."""
    found = [(piece.outputs, root(piece.covariance(covariance))) for piece in pieces]
    mean, roots = (torch.cat(parts) for parts in zip(*found, strict=True))
    noise = standard_normal((count, mean.shape[1]), like=mean, generator=generator)
    for numbers in noise:
        yield (mean + roots @ numbers).view(-1, *pieces.shape)


def root(covariance: Tensor) -> Tensor:
    """(S, K, K): R with R R' = covariance.

    Cholesky's factor, or the symmetric root of a nearly singular matrix: rounding changes neither, as it would change
    eigenvectors.
    """
    exact = covariance.double()
    found, fault = torch.linalg.cholesky_ex(exact)
    pivots = found.diagonal(dim1=-2, dim2=-1).square().amin(-1)
    least = 100 * torch.finfo(covariance.dtype).eps * exact.diagonal(dim1=-2, dim2=-1).amax(-1)
    good = (fault == 0) & (pivots > least)
    if not bool(good.all()):
        finite = exact.isfinite().flatten(1).all(1)
        values, vectors = torch.linalg.eigh(torch.where((finite & ~good)[:, None, None], exact, 0.0))
        symmetric = (vectors * values.clamp_min(0).sqrt()[:, None]) @ vectors.mT
        found = torch.where(good[:, None, None], found, symmetric)
        found = torch.where(finite[:, None, None], found, torch.nan)
    return found.to(covariance.dtype)


def _by_forward_mode(
    model: Model, inputs: Inputs, count: int, generator: torch.Generator | None, batch_size: int | None
) -> Iterator[Tensor]:
    center = model.layout.unflatten(model.posterior.mean.detach())
    device = like_of(model).device
    batches = list(batches_of(inputs, batch_size))
    for weights in draws(model, count, generator):
        yield torch.cat([linearized_call(model, center, weights, on_device(batch, device)) for batch in batches])


def linearized_call(
    model: Model, center: Mapping[str, Tensor], weights: Mapping[str, Tensor], inputs: Inputs
) -> Tensor:
    """Return f(m) + J (w - m) by one pass in forward mode, for any network; dropout masks are used as they are."""
    others = {name: tensor for name, tensor in weights.items() if name not in center}
    change = {name: weights[name] - mean for name, mean in center.items()}
    with _forward_mode, evaluation_mode(model), plain_attention():
        outputs, moved = jvp(lambda bayesian: model.call({**others, **bayesian}, inputs), (dict(center),), (change,))
    found: Tensor = outputs + moved
    return found
