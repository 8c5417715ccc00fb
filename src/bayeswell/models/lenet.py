"""Small convolutional networks: the LeNets of three papers, and one for images as small as 8x8.

``pooling`` is "max" or "average"; LeCun et al. 1998 averaged, present-day LeNets take the largest. With
``pooling="average"`` and ``activation="softplus"`` a network is smooth in its weights (variational Laplace).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .blocks import conv, named
from .settings import ACTIVATIONS, POOLINGS, ImageModel, Shape

_FULL = 32


def _two_and_two(part: CNN | LeNetWide, shape: Shape, outputs: int, *, kernel: int, dense: int) -> nn.Module:
    """Two convolutions of w and 2 w channels that keep the size, each with pooling; two dense layers."""
    (channels, height, width), w = shape, part.width
    act, pool = ACTIVATIONS[part.activation], POOLINGS[part.pooling]
    return named(
        conv1=conv(channels, w, kernel, bias=True), act1=act(), pool1=pool(2),
        conv2=conv(w, 2 * w, kernel, bias=True), act2=act(), pool2=pool(2), flatten=nn.Flatten(),
        dense1=nn.Linear(2 * w * (height // 4) * (width // 4), dense), act3=act(),
        dense2=nn.Linear(dense, outputs),
    )  # fmt: skip


@dataclass(frozen=True)
class CNN(ImageModel):
    """Two 3x3 convolutions and two dense layers: for small images, 8x8 digits and upward."""

    width: int = 16
    activation: str = "relu"
    pooling: str = "max"

    name = "cnn"
    paper = "LeCun et al. 1998"

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        return _two_and_two(self, shape, outputs, kernel=3, dense=4 * self.width)


@dataclass(frozen=True)
class LeNet5(ImageModel):
    """Two 5x5 convolutions without padding and three dense layers, in their present-day form.

    Smaller images are padded with zeros to 32x32 (28x28 by 2 on each side), so that 400 features are left as in
    LeNet-5. ``width`` is the channels of the first layer; the others keep their proportions (6, 16, 120, 84).
    """

    width: int = 6
    activation: str = "relu"
    pooling: str = "max"

    name = "lenet5"
    paper = "LeCun et al. 1998; Book 2020"
    least = 16

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        channels, height, width = shape
        rows, columns = max(0, _FULL - height), max(0, _FULL - width)
        pad = nn.ZeroPad2d((columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        left = [((side - 4) // 2 - 4) // 2 for side in (height + rows, width + columns)]
        w, act, pool = self.width, ACTIVATIONS[self.activation], POOLINGS[self.pooling]
        second = max(1, 16 * w // 6)
        return named(
            pad=pad if rows or columns else nn.Identity(),
            conv1=nn.Conv2d(channels, w, 5), act1=act(), pool1=pool(2),
            conv2=nn.Conv2d(w, second, 5), act2=act(), pool2=pool(2), flatten=nn.Flatten(),
            dense1=nn.Linear(second * left[0] * left[1], 20 * w), act3=act(),
            dense2=nn.Linear(20 * w, 14 * w), act4=act(),
            dense3=nn.Linear(14 * w, outputs),
        )  # fmt: skip


@dataclass(frozen=True)
class LeNetWide(ImageModel):
    """Two wide 5x5 convolutions and two dense layers, the "LeNet" of the k-tied paper.

    ``width`` is the channels of the first layer; the others are 2 and 16 times as wide.
    """

    width: int = 32
    activation: str = "relu"
    pooling: str = "max"

    name = "lenet_wide"
    paper = "Swiatkowski et al. 2020"

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        return _two_and_two(self, shape, outputs, kernel=5, dense=16 * self.width)


@dataclass(frozen=True)
class LeNetHWA(ImageModel):
    """Three 5x5 convolutions and two dense layers, the "LeNet-5" of the HWA paper.

    Pooling rounds up, as in the TensorFlow code that the paper follows. ``width`` as in ``lenet5``.
    """

    width: int = 6
    activation: str = "relu"
    pooling: str = "max"

    name = "lenet_hwa"
    paper = "Hyperparameters Weight Averaging (HWA)"

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        channels, height, width = shape
        w, act, pool = self.width, ACTIVATIONS[self.activation], POOLINGS[self.pooling]
        second = max(1, 16 * w // 6)
        return named(
            conv1=conv(channels, w, 5, bias=True), act1=act(), pool1=pool(2, ceil_mode=True),
            conv2=conv(w, second, 5, bias=True), act2=act(), pool2=pool(2, ceil_mode=True),
            conv3=conv(second, 20 * w, 5, bias=True), act3=act(), flatten=nn.Flatten(),
            dense1=nn.Linear(20 * w * -(-height // 4) * -(-width // 4), 14 * w), act4=act(),
            dense2=nn.Linear(14 * w, outputs),
        )  # fmt: skip
