"""Convolutional networks for images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from .parts import ACTIVATIONS, POOLINGS, Shape, check_settings, named

_FULL = 32


@dataclass(frozen=True)
class CNN:
    """Two 3x3 convolutions and two dense layers, for images of 4x4 pixels and more.

    Args:
        width: channels of the first convolution.
        activation: "softplus" with average pooling makes a network that is smooth in its weights.
        pooling: "max" or "average".
    """

    width: int = 16
    activation: str = "relu"
    pooling: str = "max"

    name: ClassVar[str] = "cnn"
    summary: ClassVar[str] = "two convolutions and two dense layers, for small images"
    least: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        channels, height, width = input_shape
        w, act, pool = self.width, ACTIVATIONS[self.activation], POOLINGS[self.pooling]
        return named(
            conv1=nn.Conv2d(channels, w, 3, padding=1),
            act1=act(),
            pool1=pool(2),
            conv2=nn.Conv2d(w, 2 * w, 3, padding=1),
            act2=act(),
            pool2=pool(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(2 * w * (height // 4) * (width // 4), 4 * w),
            act3=act(),
            dense2=nn.Linear(4 * w, outputs),
        )


@dataclass(frozen=True)
class LeNet5:
    """Two 5x5 convolutions without padding and three dense layers (LeCun et al. 1998, in its present form).

    Smaller images are padded with zeros to 32x32, so that 400 features are left.

    Args:
        width: channels of the first convolution; the others keep their proportions (6, 16, 120, 84).
        activation: as in ``CNN``.
        pooling: "max" or "average".
    """

    width: int = 6
    activation: str = "relu"
    pooling: str = "max"

    name: ClassVar[str] = "lenet5"
    summary: ClassVar[str] = "LeNet-5, for images of 16x16 pixels and more"
    least: ClassVar[int] = 16

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        channels, height, width = input_shape
        rows, columns = max(0, _FULL - height), max(0, _FULL - width)
        padding = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        features = [((side - 4) // 2 - 4) // 2 for side in (height + rows, width + columns)]
        w, act, pool = self.width, ACTIVATIONS[self.activation], POOLINGS[self.pooling]
        second = max(1, 16 * w // 6)
        return named(
            pad=nn.ZeroPad2d(padding) if rows or columns else nn.Identity(),
            conv1=nn.Conv2d(channels, w, 5),
            act1=act(),
            pool1=pool(2),
            conv2=nn.Conv2d(w, second, 5),
            act2=act(),
            pool2=pool(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(second * features[0] * features[1], 20 * w),
            act3=act(),
            dense2=nn.Linear(20 * w, 14 * w),
            act4=act(),
            dense3=nn.Linear(14 * w, outputs),
        )


class Residual(nn.Module):
    """x -> act(body(x) + shortcut(x))."""

    def __init__(self, channels: int, width: int, stride: int, activation: str) -> None:
        super().__init__()
        act = ACTIVATIONS[activation]
        first = conv_norm(channels, width, 3, stride)
        self.body = named(first=first, act=act(), second=conv_norm(width, width, 3))
        same = channels == width and stride == 1
        self.shortcut = nn.Identity() if same else conv_norm(channels, width, 1, stride)
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.act(self.body(x) + self.shortcut(x))
        return result


@dataclass(frozen=True)
class ResNet18:
    """Four stages of two residual blocks with a 3x3 stem, for images like those of CIFAR (He et al. 2016).

    Args:
        width: channels of the first stage; 8 trains on a laptop.
        activation: a name of ``ACTIVATIONS``.
    """

    width: int = 64
    activation: str = "relu"

    name: ClassVar[str] = "resnet18"
    summary: ClassVar[str] = "residual network for images like those of CIFAR"
    least: ClassVar[int] = 8

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        w, channels = self.width, self.width
        body = nn.Sequential()
        for stage, width in enumerate((w, 2 * w, 4 * w, 8 * w)):
            strides = (1 if stage == 0 else 2, 1)
            body.append(
                nn.Sequential(
                    Residual(channels, width, strides[0], self.activation),
                    Residual(width, width, strides[1], self.activation),
                )
            )
            channels = width
        return named(
            stem=conv_norm(input_shape[0], w, 3),
            act=ACTIVATIONS[self.activation](),
            body=body,
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            dense=nn.Linear(channels, outputs),
        )


def conv_norm(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution that keeps the size of an image but for its stride, and batch normalization."""
    conv = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    return named(conv=conv, norm=nn.BatchNorm2d(width))
