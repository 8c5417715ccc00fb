"""Several draws of adapters in one pass through their base.

A base network is read from memory in every pass, and for a few examples that, and starting its operations, is most of
the work. D draws see the same examples, so these are put D times one behind the other, and each adapter multiplies its
part of the rows by its own draw (one batched product); the base runs once on all of them. Its weights are not copied.

For adapters of low rank alone: linear layers without anything around them. Outputs equal those of one draw at a time to
rounding, which is looked at once in every prediction: a network that mixes examples is run draw by draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..estimators.by_layer import replaced_forwards
from ..nested import map_tensors, tensors_in
from ..types import Inputs, LinearLayer

Network = Mapping[str, Tensor]
"""The tensors of one drawn network, by name."""

MOST_DRAWS = 16
MOST_ROWS = 1024
"""Rows (tokens of all examples) in a pass: with more, one draw alone keeps the base busy, and matrices leave caches."""
_SAME = 1e-3
"""Rounding of float32 through a deep network; other mistakes are of the size of the outputs."""


class Tiled:
    """A network with adapters that can run several draws at once.

    ``call`` runs one drawn network, or what stands in its place.
    """

    most_draws = MOST_DRAWS

    def __init__(
        self, net: nn.Module, layers: Sequence[LinearLayer], call: Callable[[nn.Module, Network, Inputs], Any]
    ) -> None:
        self._net, self._layers, self._call = net, layers, call
        self._agrees: bool | None = None

    def takes(self, inputs: Inputs) -> bool:
        """Whether at least two draws of these inputs are few rows."""
        return 2 * _rows(inputs) <= MOST_ROWS

    def outputs(self, networks: Sequence[Network], inputs: Inputs) -> Iterator[Any]:
        """The outputs of each network, in turn."""
        together = max(2, MOST_ROWS // _rows(inputs))
        for start in range(0, len(networks), together):
            group = networks[start : start + together]
            found = self._in_one_pass(group, inputs) if len(group) > 1 and self._agrees is not False else None
            if found is None:
                yield from (self._call(self._net, network, inputs) for network in group)
                continue
            if self._agrees is None:
                self._agrees = _same(self._call(self._net, group[0], inputs), found[0])
            yield from found if self._agrees else (self._call(self._net, network, inputs) for network in group)

    def _in_one_pass(self, networks: Sequence[Network], inputs: Inputs) -> Sequence[Tensor] | None:
        """One tensor for each network; None where the network does not run that way."""
        count = len(networks)
        weights = {layer.name: torch.stack([own[layer.weight] for own in networks]).mT for layer in self._layers}
        biases = {
            layer.name: torch.stack([own[layer.bias] for own in networks])[:, None]
            for layer in self._layers
            if layer.bias is not None
        }

        def multiply(layer: LinearLayer, x: Tensor) -> Tensor:
            rows = x.reshape(count, -1, x.shape[-1])
            found = torch.bmm(rows, weights[layer.name])
            if layer.name in biases:
                found = found + biases[layer.name]
            elif isinstance(layer.module.bias, Tensor):
                found = found + layer.module.bias
            return found.reshape(*x.shape[:-1], found.shape[-1])

        repeated = map_tensors(inputs, lambda tensor: tensor.repeat(count, *[1] * (tensor.dim() - 1)))
        try:
            with replaced_forwards(self._net, self._layers, multiply):
                outputs = self._call(self._net, networks[0], repeated)
        except RuntimeError:  # a shape that the network knows by heart: it says why, or runs, draw by draw
            self._agrees = False
            return None
        examples = len(next(tensors_in(inputs)))
        if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != count * examples:
            self._agrees = False
            return None
        found: Sequence[Tensor] = outputs.unflatten(0, (count, examples)).unbind()
        return found


def find_tiled(
    net: nn.Module, sites: Sequence[str], layers: Mapping[str, LinearLayer],
    call: Callable[[nn.Module, Network, Inputs], Any],
) -> Tiled | None:  # fmt: skip
    """How to run several draws of adapters at once; None where a Bayesian parameter is not one of a dense layer."""
    dense = [layer for layer in layers.values() if layer.spatial_dims == 0 and isinstance(layer.module, nn.Linear)]
    known = {name for layer in dense for name in (layer.weight, layer.bias) if name is not None}
    return Tiled(net, dense, call) if set(sites) == known else None


def _rows(inputs: Inputs) -> int:
    """Tokens of all examples, at least one for each example."""
    sizes = [t.numel() if not t.is_floating_point() else t[..., :1].numel() for t in tensors_in(inputs) if t.dim()]
    return max(sizes, default=MOST_ROWS)


def _same(one: Any, other: Tensor) -> bool:
    """Up to rounding, NaN being equal to NaN."""
    if not isinstance(one, Tensor) or one.shape != other.shape:
        return False
    scale = float(one.detach().abs().nan_to_num().max())
    return torch.allclose(one, other, rtol=0, atol=_SAME * max(scale, 1e-30), equal_nan=True)
