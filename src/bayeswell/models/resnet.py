"""Residual networks, activation last in a block (He et al. 2016a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from .blocks import Residual, conv_norm, head, named, stages, stem
from .settings import ACTIVATIONS, ImageModel, Shape

_EXPANSION = 4


@dataclass(frozen=True)
class ResNet10(ImageModel):
    """Four stages of one residual block; ``width`` is the channels of the first stage.

    ``stem`` "small" is a 3x3 convolution for images like CIFAR's, "large" the 7x7 and pooling for ImageNet.
    """

    width: int = 64
    activation: str = "relu"
    stem: str = "small"

    name = "resnet10"
    paper = "He et al. 2016a; Nguyen et al. 2023"
    least = 8
    counts: ClassVar[tuple[int, ...]] = (1, 1, 1, 1)

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        widths = (self.width, 2 * self.width, 4 * self.width, 8 * self.width)
        body, last = stages(self._block, self.width, widths, self.counts)
        return named(stem=stem(self.stem, shape[0], self.width, self.activation), body=body, head=head(last, outputs))

    def _block(self, channels: int, width: int, stride: int) -> tuple[nn.Module, int]:
        act = ACTIVATIONS[self.activation]
        body = named(first=conv_norm(channels, width, 3, stride), act=act(), second=conv_norm(width, width, 3))
        return Residual(body, _shortcut(channels, width, stride), act()), width


@dataclass(frozen=True)
class ResNet18(ResNet10):
    """Four stages of two residual blocks; ``width=8`` trains on a laptop.

    ``stem`` as in ``resnet10``.
    """

    name = "resnet18"
    counts = (2, 2, 2, 2)


@dataclass(frozen=True)
class ResNet152(ResNet10):
    """Four stages of 3, 8, 36 and 3 bottleneck blocks, for images like ImageNet's."""

    stem: str = "large"

    name = "resnet152"
    counts = (3, 8, 36, 3)

    def _block(self, channels: int, width: int, stride: int) -> tuple[nn.Module, int]:
        act, out = ACTIVATIONS[self.activation], _EXPANSION * width
        body = named(
            first=conv_norm(channels, width, 1), act1=act(),
            second=conv_norm(width, width, 3, stride), act2=act(),
            third=conv_norm(width, out, 1),
        )  # fmt: skip
        return Residual(body, _shortcut(channels, out, stride), act()), out


def _shortcut(channels: int, out: int, stride: int) -> nn.Module:
    return nn.Identity() if channels == out and stride == 1 else conv_norm(channels, out, 1, stride)
