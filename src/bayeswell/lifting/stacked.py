"""Several drawn networks at once, as far as they are convolutions in a row.

Thin convolutions leave most of a processor idle, and pooling the few channels of one network at a time costs more than
convolving them. D networks that see the same images are run as one with D times the channels: the first convolution
shares its input (D x C outputs), later ones are grouped by network, and everything between them works channel by
channel. Channels lie innermost in memory, so that those loops run over all networks in step.

Only layers whose meaning is known are taken, in plain ``nn.Sequential`` chains, up to the layer that flattens images
into features; from there on every network goes alone, through its own modules. Outputs equal those of one network at a
time to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as _module

from ..types import Inputs

Network = Mapping[str, Tensor]
"""The tensors of one drawn network, by name."""

MOST_DRAWS = 10
MOST_WEIGHTS = 1 << 22
"""In the drawn networks together: larger ones would leave the caches, and fill the processor alone."""
MOST_FEATURES = 1 << 23
"""Numbers that wait, flattened, for each network's own layers."""
_PIECE = 1 << 22
"""Numbers in the widest layer of a piece of the batch: what a shared cache holds, together with its neighbour."""

_MONOTONE = (nn.ReLU, nn.ReLU6, nn.Tanh, nn.Sigmoid)
_BY_ELEMENT = (
    *_MONOTONE, nn.Identity, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.LeakyReLU, nn.Softplus,
    nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.LogSigmoid,
)  # fmt: skip
_BY_CHANNEL = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d)
_UNUSED = (nn.Dropout, nn.Dropout2d)
"""Layers that do nothing in evaluation mode."""


@dataclass(frozen=True)
class _Step:
    """A layer, and what its parameters are called in the network before their own names."""

    prefix: str
    layer: nn.Module

    def joined(self, networks: Sequence[Network], name: str) -> Tensor | None:
        """A parameter of all networks, one after the other along its first axis."""
        full = f"{self.prefix}{name}"
        if full in networks[0]:
            return torch.cat([network[full] for network in networks])
        own = getattr(self.layer, name)
        return None if own is None else torch.cat([own] * len(networks))


class Stack:
    """A network that can run several draws at once: its stacked layers, and those that follow for each draw alone.

    ``call`` runs one drawn network on its inputs from a given module on: from the network itself, or from what follows
    the stacked layers.
    """

    def __init__(
        self,
        net: nn.Module,
        steps: Sequence[_Step],
        rest: nn.Module,
        most_draws: int,
        call: Callable[[nn.Module, Network, Inputs], Any],
    ) -> None:
        self.most_draws = most_draws
        self._net, self._steps, self._rest, self._call = net, steps, rest, call

    def takes(self, inputs: Inputs) -> bool:
        """Whether the inputs are images in the memory of the CPU, where stacking is known to pay."""
        is_image = isinstance(inputs, Tensor) and inputs.dim() == 4 and inputs.is_floating_point()
        return is_image and inputs.device.type == "cpu" and not torch.is_autocast_enabled("cpu")

    def outputs(self, networks: Sequence[Network], images: Tensor) -> Iterator[Any]:
        """The outputs of each network, in turn."""
        try:
            layers = self._filled(networks)
            # A copy: a layer may change its input in place.
            features, widest = _run(layers, images[:1].clone(), len(networks))
        except RuntimeError:
            # Images that do not fit the network: the network itself says why, or knows better.
            yield from (self._call(self._net, network, images) for network in networks)
            return
        examples = len(images)
        if len(networks) > 1 and features.numel() * examples > MOST_FEATURES:
            half = len(networks) // 2
            yield from self.outputs(networks[:half], images)
            yield from self.outputs(networks[half:], images)
            return
        pieces = images.tensor_split(-(-examples // max(1, _PIECE // widest)))
        features = torch.cat([_run(layers, piece, len(networks))[0] for piece in pieces], dim=1)
        for network, own in zip(networks, features.unbind(), strict=True):
            yield self._call(self._rest, network, own)

    def _filled(self, networks: Sequence[Network]) -> list[Callable[[Tensor], Tensor]]:
        """The layers as functions, with the parameters of all networks in place."""
        runs: list[Callable[[Tensor], Tensor]] = []
        shared = True
        for step in self._steps:
            if isinstance(step.layer, nn.Conv2d):
                runs.append(_convolution(step, step.layer, networks, shared))
                shared = False
            elif isinstance(step.layer, nn.MaxPool2d):
                runs.append(partial(_largest, step.layer))
            elif isinstance(step.layer, nn.BatchNorm2d):
                runs.append(_normalisation(step, step.layer, networks))
            else:
                runs.append(step.layer)
        return runs


def find_stack(net: nn.Module, weights: int, call: Callable[[nn.Module, Network, Inputs], Any]) -> Stack | None:
    """How to run several draws of this network (of so many weights) at once; None if that is not known to pay.

    The network must begin with a chain of known layers, a convolution first among those with weights, that ends by
    flattening its images. Layers with hooks or a ``forward`` of their own are not known.
    """
    most_draws = min(MOST_DRAWS, MOST_WEIGHTS // max(1, weights))
    chain = _chain(net, "")
    if most_draws == 0 or chain is None or _has_global_hooks():
        return None
    end = next((at for at, step in enumerate(chain) if type(step.layer) is nn.Flatten), None)
    if end is None or not _flattens_images(chain[end].layer) or not all(_is_known(step.layer) for step in chain[:end]):
        return None
    first = next((step.layer for step in chain[:end] if isinstance(step.layer, nn.Conv2d | nn.BatchNorm2d)), None)
    if not isinstance(first, nn.Conv2d) or first.groups != 1:
        return None
    rest = nn.Sequential(*(step.layer for step in chain[end + 1 :]))
    return Stack(net, _pooled_first(chain[:end]), rest, most_draws, call)


def _chain(net: nn.Module, prefix: str) -> list[_Step] | None:
    """The layers of a plain chain one after another; None if it is not one, or something listens to it."""
    if type(net) is not nn.Sequential or not _is_plain(net):
        return None
    steps = []
    # Not named_children, which leaves out a layer that comes again.
    for name, layer in net._modules.items():
        if layer is None:
            return None
        if type(layer) is not nn.Sequential:
            steps.append(_Step(f"{prefix}{name}.", layer))
            continue
        inner = _chain(layer, f"{prefix}{name}.")
        if inner is None:
            return None
        steps += inner
    return steps


def _flattens_images(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1) and _is_plain(layer)


def _is_known(layer: nn.Module) -> bool:
    if not _is_plain(layer):
        return False
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros"
    if type(layer) is nn.BatchNorm2d:
        return layer.running_mean is not None and not layer.training
    if type(layer) in (nn.MaxPool2d, nn.AdaptiveMaxPool2d):
        return not layer.return_indices
    if type(layer) in _UNUSED:
        return not layer.training
    return type(layer) in (*_BY_ELEMENT, *_BY_CHANNEL)


def _is_plain(layer: nn.Module) -> bool:
    """Whether calling the layer runs the code of its class and nothing else."""
    return not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))


def _has_global_hooks() -> bool:
    return bool(_module._global_forward_hooks or _module._global_forward_pre_hooks)


def _pooled_first(steps: Sequence[_Step]) -> list[_Step]:
    """Monotone functions after the pooling of maxima that follows them: the same numbers from a quarter of the work."""
    ordered = list(steps)
    for i in range(len(ordered) - 1):
        if type(ordered[i].layer) in _MONOTONE and type(ordered[i + 1].layer) is nn.MaxPool2d:
            ordered[i], ordered[i + 1] = ordered[i + 1], ordered[i]
    return ordered


def _convolution(
    step: _Step, layer: nn.Conv2d, networks: Sequence[Network], shared: bool
) -> Callable[[Tensor], Tensor]:
    weight, bias = step.joined(networks, "weight"), step.joined(networks, "bias")
    assert weight is not None
    weight = weight.contiguous(memory_format=torch.channels_last)
    groups = 1 if shared else layer.groups * len(networks)

    def run(images: Tensor) -> Tensor:
        innermost = images.contiguous(memory_format=torch.channels_last)
        return F.conv2d(innermost, weight, bias, layer.stride, layer.padding, layer.dilation, groups)

    return run


def _normalisation(step: _Step, layer: nn.BatchNorm2d, networks: Sequence[Network]) -> Callable[[Tensor], Tensor]:
    weight, bias = step.joined(networks, "weight"), step.joined(networks, "bias")
    mean, variance = step.joined(networks, "running_mean"), step.joined(networks, "running_var")
    return lambda images: F.batch_norm(images, mean, variance, weight, bias, False, 0.0, layer.eps)


def _largest(layer: nn.MaxPool2d, images: Tensor) -> Tensor:
    """Pooling of maxima, rows first. torch's own also notes where each maximum was, and takes several times as long."""
    plans = [_windows(layer, axis, images.shape[2 + axis]) for axis in (0, 1)]
    if None in plans:
        pooled: Tensor = layer(images)
        return pooled
    for axis, slices in enumerate(plans):
        first, *others = [images[(slice(None),) * (2 + axis) + (piece,)] for piece in slices or ()]
        images = reduce(torch.maximum, others, first)
    return images


def _windows(layer: nn.MaxPool2d, axis: int, size: int) -> list[slice] | None:
    """The places that come first, second, ... in their windows along an axis; None for padded, cut or large windows."""
    kernel, stride, padding, dilation = (
        value if isinstance(value, int) else value[axis]
        for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    left = size - kernel
    if padding != 0 or dilation != 1 or kernel > 3 or left < 0 or (layer.ceil_mode and left % stride):
        return None
    last = left - left % stride
    return [slice(place, place + last + 1, stride) for place in range(kernel)]


def _run(runs: Sequence[Callable[[Tensor], Tensor]], images: Tensor, networks: int) -> tuple[Tensor, int]:
    """(D, S, F) features, and the numbers of the widest layer for one example."""
    widest = 1
    for run in runs:
        images = run(images)
        widest = max(widest, images.numel() // len(images))
    return images.unflatten(1, (networks, -1)).movedim(1, 0).flatten(2), widest
