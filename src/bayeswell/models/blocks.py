"""The pieces that convolutional networks are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from .settings import ACTIVATIONS

Block = Callable[[int, int, int], "tuple[nn.Module, int]"]
"""(channels in, width, stride) -> the block and its channels out."""


def named(**modules: nn.Module) -> nn.Sequential:
    """Layers one after another, by name."""
    return nn.Sequential(OrderedDict(modules))


def conv(channels: int, out: int, kernel: int, stride: int = 1, *, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the size of an image, but for its stride."""
    return nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=bias)


def conv_norm(channels: int, out: int, kernel: int, stride: int = 1, *, bias: bool = False) -> nn.Sequential:
    """Convolution and batch normalisation."""
    return named(conv=conv(channels, out, kernel, stride, bias=bias), norm=nn.BatchNorm2d(out))


def norm_act(channels: int, activation: str) -> nn.Sequential:
    """Batch normalisation and activation."""
    return named(norm=nn.BatchNorm2d(channels), act=ACTIVATIONS[activation]())


def stem(kind: str, channels: int, out: int, activation: str) -> nn.Sequential:
    """The first layers; a large stem divides the size of an image by 4."""
    if kind == "small":
        return named(first=conv_norm(channels, out, 3), act=ACTIVATIONS[activation]())
    first = conv_norm(channels, out, 7, stride=2)
    return named(first=first, act=ACTIVATIONS[activation](), pool=nn.MaxPool2d(3, stride=2, padding=1))


def stages(block: Block, channels: int, widths: tuple[int, ...], counts: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    """Blocks in stages; every stage but the first begins by halving the image. Also the channels at the end."""
    made = nn.Sequential()
    for index, (width, count) in enumerate(zip(widths, counts, strict=True)):
        stage = nn.Sequential()
        for position in range(count):
            stride = 2 if index > 0 and position == 0 else 1
            one, channels = block(channels, width, stride)
            stage.append(one)
        made.append(stage)
    return made, channels


def head(channels: int, outputs: int) -> nn.Sequential:
    """The mean over the image, and a dense layer."""
    return named(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), dense=nn.Linear(channels, outputs))


class Residual(nn.Module):
    """x -> act(body(x) + shortcut(x))."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut, act

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        result: Tensor = self.act(self.body(x) + self.shortcut(x))
        return result


class PreActivated(nn.Module):
    """x -> body(z) + shortcut, with z = act(norm(x)); the shortcut is a projection of z, or x itself if None."""

    def __init__(self, before: nn.Module, body: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.before, self.body, self.projection = before, body, projection

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        z = self.before(x)
        result: Tensor = self.body(z) + (x if self.projection is None else self.projection(z))
        return result
