"""Drawn networks of wide convolutions with the channels last in memory: predictions of many images in less time.

oneDNN's convolutions on the CPU are faster where the channels of a position lie together. An ordinary network would
have to be laid out anew by its owner; the weights of a drawn one are fresh in any case, so its kernels are drawn in
that order where the compiled formulas can, and else copied once a draw for all batches (the memory of one network
more). What comes out is the same to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..layers import WITH_AVX512, is_for_channels_last, wide_kernels
from ..types import Inputs

LEAST_EXAMPLES = 8
"""With fewer nothing is gained with ResNet-18 (32 x 32 pixels)."""
MOST_WEIGHTS = 2**20 if WITH_AVX512 else None
"""In a kernel that is laid out. oneDNN turns a kernel into an order of its own in each pass: of a large one, beside few
images, that takes longer from channels last, and with AVX-512, where torch's layout is nearly as fast, more than is
gained. ResNet-18 with 8, 32 and 128 images took there 1.03, 1.00 and 0.78 of an ordinary pass with all wide kernels
laid out, and 0.96, 0.99 and 0.78 with those up to here; with AVX2 alone 0.96, 0.83, 0.78 and 0.98, 0.89, 0.83
(`python -m benchmarks.layouts`).
"""


class Draw(Protocol):
    """``BayesianModule.channels_last_draws``."""

    def __call__(
        self, count: int, generator: torch.Generator | None, kernels: Collection[str]
    ) -> Iterator[Mapping[str, Tensor]]:
        """Networks, of which these kernels may lie with channels last already."""


class Kernels(NamedTuple):
    """The names of kernels that are to have channels last, and the layers of larger ones, which stay as they are."""

    laid_out: list[str]
    apart: list[nn.Module]


class ChannelsLast:
    """``networks`` are drawn ones with their kernels laid out; ``called`` gives them images that lie likewise."""

    def __init__(self, kernels: Kernels, draw: Draw) -> None:
        self._kernels, self._draw = kernels, draw

    def networks(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        """Each is drawn, or laid out, in the memory of earlier ones."""
        kept: dict[str, Tensor] = {}
        for tensors in self._draw(count, generator, self._kernels.laid_out):
            for name in self._kernels.laid_out:
                if name in kept:
                    kept[name].copy_(tensors[name])
                elif not tensors[name].is_contiguous(memory_format=torch.channels_last):
                    kept[name] = tensors[name].clone(memory_format=torch.channels_last)
            yield {**tensors, **kept}
            del tensors  # so that the next draw can have its memory

    def called(
        self, call: Callable[[Mapping[str, Tensor], Inputs], Any], weights: Mapping[str, Tensor], images: Inputs
    ) -> Any:
        """What the network gives for images with channels last; what is not like images stays as it is."""
        is_images = isinstance(images, Tensor) and images.dim() == 4
        # Where either lies with channels last, torch would lay the other out so.
        hooks = [layer.register_forward_pre_hook(_as_ever) for layer in self._kernels.apart]
        try:
            outputs = call(weights, images.contiguous(memory_format=torch.channels_last) if is_images else images)
        finally:
            for hook in hooks:
                hook.remove()
        return outputs.contiguous() if isinstance(outputs, Tensor) else outputs  # images may have kept the layout


def _as_ever(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.contiguous() if isinstance(one, Tensor) else one for one in inputs)


def channels_last_kernels(net: nn.Module, bayesian: set[str], inputs: Inputs, examples: int) -> Kernels | None:
    """What is to be laid out of drawn networks that run on so many images like these; None: nothing would be gained.

    All wide kernels must be drawn: those of the network itself would be laid out anew in every pass.
    """
    if examples < LEAST_EXAMPLES:
        return None
    wide = wide_kernels(net)
    if not wide or not bayesian.issuperset(wide) or not is_for_channels_last(net, inputs):
        return None
    layers: dict[str, Any] = {name: net.get_submodule(name.rpartition(".")[0]) for name in wide}
    large = {name: layer for name, layer in layers.items() if _is_large(layer)}
    return Kernels([name for name in wide if name not in large], [*large.values()]) if len(large) < len(wide) else None


def _is_large(layer: nn.Conv2d) -> bool:
    weights = layer.out_channels * layer.in_channels * math.prod(layer.kernel_size)
    return MOST_WEIGHTS is not None and weights > MOST_WEIGHTS
