"""Drawn networks of wide convolutions with the channels last in memory: predictions of many images in less time.

oneDNN's convolutions on the CPU are faster where the channels of a position lie together. An ordinary network would
have to be laid out anew by its owner; the weights of a drawn one are fresh in any case, so its kernels are drawn in
that order where the compiled formulas can, and else copied once a draw for all batches (the memory of one network
more). What comes out is the same to rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from ..layers import is_for_channels_last, wide_kernels
from ..types import Inputs

LEAST_EXAMPLES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
"""With fewer nothing is gained with ResNet-18 (32 x 32 pixels): a copy of its kernels takes as long, and with AVX-512,
where torch's own layout is nearly as fast, kernels that are large beside few images are slower so.
"""


class Draw(Protocol):
    """``BayesianModule.channels_last_draws``."""

    def __call__(
        self, count: int, generator: torch.Generator | None, kernels: Collection[str]
    ) -> Iterator[Mapping[str, Tensor]]:
        """Networks, of which these kernels may lie with channels last already."""


class ChannelsLast:
    """``networks`` are drawn ones with their kernels laid out; ``inputs`` gives them images that lie likewise."""

    def __init__(self, kernels: list[str], draw: Draw) -> None:
        self._kernels, self._draw = kernels, draw

    def networks(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        """Each is drawn, or laid out, in the memory of earlier ones."""
        kept: dict[str, Tensor] = {}
        for tensors in self._draw(count, generator, self._kernels):
            for name in self._kernels:
                if name in kept:
                    kept[name].copy_(tensors[name])
                elif not tensors[name].is_contiguous(memory_format=torch.channels_last):
                    kept[name] = tensors[name].clone(memory_format=torch.channels_last)
            yield {**tensors, **kept}
            del tensors  # so that the next draw can have its memory

    def inputs(self, images: Inputs) -> Inputs:
        """The images with channels last; what is not like them stays as it is."""
        is_images = isinstance(images, Tensor) and images.dim() == 4
        return images.contiguous(memory_format=torch.channels_last) if is_images else images


def channels_last_kernels(net: nn.Module, bayesian: set[str], inputs: Inputs, examples: int) -> list[str]:
    """What is to be laid out of drawn networks that run on so many images like these; empty: nothing would be gained.

    All wide kernels must be drawn: those of the network itself would be laid out anew in every pass.
    """
    if examples < LEAST_EXAMPLES:
        return []
    kernels = wide_kernels(net)
    if not kernels or not bayesian.issuperset(kernels) or not is_for_channels_last(net, inputs):
        return []
    return kernels
