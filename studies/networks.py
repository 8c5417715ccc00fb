"""Networks of the papers as functions of the shapes of inputs and outputs, and a small data set of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from bayeswell.lab.data import DataSet
from bayeswell.lab.models.images import conv_norm
from bayeswell.lab.models.parts import ACTIVATIONS, named
from bayeswell.lab.models.text import LastState
from bayeswell.tables import Preparation

Shape = tuple[int, ...]
Block = Callable[[int, int, int], tuple[nn.Module, int]]
"""(channels, width, stride) -> a block and its channels."""
EXPANSION = 4


def conv(channels: int, width: int, kernel: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=bias)


def norm_act(channels: int, activation: str) -> nn.Sequential:
    return named(norm=nn.BatchNorm2d(channels), act=ACTIVATIONS[activation]())


def head(channels: int, outputs: int) -> nn.Sequential:
    return named(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), dense=nn.Linear(channels, outputs))


class Residual(nn.Module):
    """x -> act(body(x) + shortcut(x)) (He et al. 2016a)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut, act

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.act(self.body(x) + self.shortcut(x))
        return result


class PreActivated(nn.Module):
    """x -> body(z) + shortcut with z = act(norm(x)); the shortcut is a projection of z, or x (He et al. 2016b)."""

    def __init__(self, before: nn.Module, body: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.before, self.body, self.projection = before, body, projection

    def forward(self, x: Tensor) -> Tensor:
        z = self.before(x)
        result: Tensor = self.body(z) + (x if self.projection is None else self.projection(z))
        return result


class Appended(nn.Module):
    """x -> x with body(x) as further channels (Huang et al. 2017)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], dim=1)


def stages(block: Block, channels: int, widths: Shape, counts: Shape) -> tuple[nn.Sequential, int]:
    """Return blocks in stages and their channels; each stage but the first begins by halving the image."""
    body = nn.Sequential()
    for stage, (width, count) in enumerate(zip(widths, counts, strict=True)):
        blocks = nn.Sequential()
        for place in range(count):
            made, channels = block(channels, width, 2 if stage > 0 and place == 0 else 1)
            blocks.append(made)
        body.append(blocks)
    return body, channels


def basic_block(channels: int, width: int, stride: int, *, activation: str) -> tuple[nn.Module, int]:
    act = ACTIVATIONS[activation]
    body = named(first=conv_norm(channels, width, 3, stride), act=act(), second=conv_norm(width, width, 3))
    shortcut = nn.Identity() if channels == width and stride == 1 else conv_norm(channels, width, 1, stride)
    return Residual(body, shortcut, act()), width


def bottleneck_block(channels: int, width: int, stride: int, *, activation: str) -> tuple[nn.Module, int]:
    act, out = ACTIVATIONS[activation], EXPANSION * width
    body = named(
        first=conv_norm(channels, width, 1),
        act1=act(),
        second=conv_norm(width, width, 3, stride),
        act2=act(),
        third=conv_norm(width, out, 1),
    )
    shortcut = nn.Identity() if channels == out and stride == 1 else conv_norm(channels, out, 1, stride)
    return Residual(body, shortcut, act()), out


def pre_block(channels: int, width: int, stride: int, *, activation: str, bias: bool = False, project: bool = False,
              dropout: float = 0.0) -> tuple[nn.Module, int]:  # fmt: skip
    """Return a pre-activation block of two 3x3 convolutions; ``project`` has a projection in every block."""
    layers: dict[str, nn.Module] = {
        "first": conv(channels, width, 3, stride, bias),
        "between": norm_act(width, activation),
        **({"dropout": nn.Dropout(dropout)} if dropout else {}),
        "second": conv(width, width, 3, bias=bias),
    }
    changes = project or channels != width or stride != 1
    projection = conv(channels, width, 1, stride, bias) if changes else None
    return PreActivated(norm_act(channels, activation), named(**layers), projection), width


def pre_bottleneck(channels: int, width: int, stride: int, *, activation: str) -> tuple[nn.Module, int]:
    out = EXPANSION * width
    body = named(
        first=conv(channels, width, 1),
        act1=norm_act(width, activation),
        second=conv(width, width, 3, stride),
        act2=norm_act(width, activation),
        third=conv(width, out, 1),
    )
    projection = conv(channels, out, 1, stride) if channels != out or stride != 1 else None
    return PreActivated(norm_act(channels, activation), body, projection), out


def resnet(input_shape: Shape, outputs: int, counts: Shape, width: int = 64, activation: str = "relu",
           block: Block | None = None, large: bool = False) -> nn.Module:  # fmt: skip
    """Return a residual network; ``large`` has the stem for images of ImageNet, which divides their size by 4."""
    block = block or partial(basic_block, activation=activation)
    body, last = stages(block, width, tuple(width * 2**i for i in range(len(counts))), counts)
    act = ACTIVATIONS[activation]()
    if large:
        stem = named(conv=conv_norm(input_shape[0], width, 7, 2), act=act, pool=nn.MaxPool2d(3, 2, 1))
    else:
        stem = named(conv=conv_norm(input_shape[0], width, 3), act=act)
    return named(stem=stem, body=body, head=head(last, outputs))


def pre_resnet(input_shape: Shape, outputs: int, block: Block, start: int, widths: Shape, counts: Shape, *,
               activation: str, bias: bool = False) -> nn.Module:  # fmt: skip
    body, last = stages(block, start, widths, counts)
    stem = conv(input_shape[0], start, 3, bias=bias)
    return named(stem=stem, body=body, after=norm_act(last, activation), head=head(last, outputs))


def resnet10(input_shape: Shape, outputs: int, width: int = 64, activation: str = "relu") -> nn.Module:
    """Return the ResNet-10 of Nguyen et al. 2023, Table 3: four stages of one block."""
    return resnet(input_shape, outputs, (1, 1, 1, 1), width, activation)


def resnet152(input_shape: Shape, outputs: int, width: int = 64, activation: str = "relu") -> nn.Module:
    """Return the ResNet-152 of Nguyen et al. 2023, Table 4."""
    block = partial(bottleneck_block, activation=activation)
    return resnet(input_shape, outputs, (3, 8, 36, 3), width, activation, block, large=True)


def preact_resnet18(input_shape: Shape, outputs: int, width: int = 64, activation: str = "softplus") -> nn.Module:
    """Return the network of Unlu & Aitchison 2021: four stages of two pre-activation blocks, softplus."""
    block = partial(pre_block, activation=activation)
    widths = (width, 2 * width, 4 * width, 8 * width)
    return pre_resnet(input_shape, outputs, block, width, widths, (2, 2, 2, 2), activation=activation)


def resnet_tfp(input_shape: Shape, outputs: int, width: int = 64, activation: str = "relu") -> nn.Module:
    """Return the "ResNet-18" of Swiatkowski et al. 2020, which is the example of TensorFlow Probability.

    Four pre-activation blocks in all, each with a projection; convolutions have biases.
    """
    block = partial(pre_block, activation=activation, bias=True, project=True)
    widths = (width, 2 * width, 4 * width, 8 * width)
    return pre_resnet(input_shape, outputs, block, width, widths, (1, 1, 1, 1), activation=activation, bias=True)


def preresnet164(input_shape: Shape, outputs: int, width: int = 16, activation: str = "relu",
                 blocks: int = 18) -> nn.Module:  # fmt: skip
    """Return the PreResNet-164 of Nguyen et al. 2023: three stages of 18 bottleneck blocks."""
    block = partial(pre_bottleneck, activation=activation)
    widths = (width, 2 * width, 4 * width)
    return pre_resnet(input_shape, outputs, block, width, widths, (blocks,) * 3, activation=activation)


def wide_resnet28_10(input_shape: Shape, outputs: int, width: int = 160, activation: str = "relu", blocks: int = 4,
                     dropout: float = 0.0) -> nn.Module:  # fmt: skip
    """Return the Wide ResNet 28-10 of Nguyen et al. 2023; dropout stands between the convolutions of a block."""
    block = partial(pre_block, activation=activation, dropout=dropout)
    widths = (width, 2 * width, 4 * width)
    return pre_resnet(input_shape, outputs, block, min(16, width), widths, (blocks,) * 3, activation=activation)


def densenet161(input_shape: Shape, outputs: int, width: int = 48, activation: str = "relu",
                counts: Shape = (6, 12, 36, 24)) -> nn.Module:  # fmt: skip
    """Return the DenseNet-161 of Nguyen et al. 2023, Table 4; each layer adds ``width`` channels."""
    channels = 2 * width
    stem = named(conv=conv_norm(input_shape[0], channels, 7, 2), act=ACTIVATIONS[activation](),
                 pool=nn.MaxPool2d(3, 2, 1))  # fmt: skip
    layers: dict[str, nn.Module] = {"stem": stem}
    for index, count in enumerate(counts):
        block = nn.Sequential()
        for _ in range(count):
            block.append(_dense_layer(channels, width, activation))
            channels += width
        layers[f"block{index + 1}"] = block
        if index + 1 < len(counts):
            layers[f"transition{index + 1}"] = named(
                before=norm_act(channels, activation), conv=conv(channels, channels // 2, 1), pool=nn.AvgPool2d(2)
            )
            channels //= 2
    return named(**layers, after=norm_act(channels, activation), head=head(channels, outputs))


def _dense_layer(channels: int, width: int, activation: str) -> nn.Module:
    inner = 4 * width
    body = named(
        before=norm_act(channels, activation),
        first=conv(channels, inner, 1),
        between=norm_act(inner, activation),
        second=conv(inner, width, 3),
    )
    return Appended(body)


def vgg(input_shape: Shape, outputs: int, width: int = 64, activation: str = "relu") -> nn.Module:
    """Return the VGG of HWA, as in TensorFlow Probability: five blocks of two convolutions, one dense layer."""
    channels, rows, columns = input_shape
    layers: dict[str, nn.Module] = {}
    for index, out in enumerate(width * times for times in (1, 2, 4, 8, 8)):
        block = nn.Sequential()
        for size in (channels, out):
            block.extend([conv(size, out, 3, bias=True), nn.BatchNorm2d(out), ACTIVATIONS[activation]()])
        layers[f"block{index + 1}"] = block.append(nn.MaxPool2d(2, ceil_mode=True))
        channels = out
    features = channels * -(-rows // 32) * -(-columns // 32)
    return named(**layers, flatten=nn.Flatten(), dense=nn.Linear(features, outputs))


def lenet_hwa(input_shape: Shape, outputs: int, width: int = 6, activation: str = "relu") -> nn.Module:
    """Return the "LeNet-5" of HWA: three 5x5 convolutions and two dense layers; pooling rounds up."""
    (channels, rows, columns), act = input_shape, ACTIVATIONS[activation]
    second = max(1, 16 * width // 6)
    return named(
        conv1=conv(channels, width, 5, bias=True),
        act1=act(),
        pool1=nn.MaxPool2d(2, ceil_mode=True),
        conv2=conv(width, second, 5, bias=True),
        act2=act(),
        pool2=nn.MaxPool2d(2, ceil_mode=True),
        conv3=conv(second, 20 * width, 5, bias=True),
        act3=act(),
        flatten=nn.Flatten(),
        dense1=nn.Linear(20 * width * -(-rows // 4) * -(-columns // 4), 14 * width),
        act4=act(),
        dense2=nn.Linear(14 * width, outputs),
    )


def lenet_wide(input_shape: Shape, outputs: int, width: int = 32, activation: str = "relu") -> nn.Module:
    """Return the "LeNet" of Swiatkowski et al. 2020: two wide 5x5 convolutions and two dense layers."""
    (channels, rows, columns), act = input_shape, ACTIVATIONS[activation]
    return named(
        conv1=conv(channels, width, 5, bias=True),
        act1=act(),
        pool1=nn.MaxPool2d(2),
        conv2=conv(width, 2 * width, 5, bias=True),
        act2=act(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        dense1=nn.Linear(2 * width * (rows // 4) * (columns // 4), 16 * width),
        act3=act(),
        dense2=nn.Linear(16 * width, outputs),
    )


class OneBias(LastState):
    """Embedding, LSTM and a dense layer; the second bias of torch's LSTM is fixed at 0."""

    def __init__(self, vocabulary: int, embedding: int, width: int, outputs: int) -> None:
        super().__init__(vocabulary, embedding, width, outputs)
        second = self.lstm.get_parameter("bias_hh_l0").requires_grad_(False)
        nn.init.zeros_(second)


def recurrent(input_shape: Shape, outputs: int, vocabulary: int, width: int = 128, embedding: int = 128) -> nn.Module:
    """Return the LSTM of Swiatkowski et al. 2020, the IMDB example of Keras; two classes have one logit there."""
    return OneBias(vocabulary, embedding, width, outputs)


def tokens() -> DataSet:
    """Return 200 random sequences whose class is their first token being even, for the scale "smoke"."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(1, 20, (200, 6), generator=generator)
    pair = (inputs, inputs[:, 0] % 2)
    preparation = Preparation.fit(inputs.float(), pair[1], standardize=False, kind="classes")
    preparation = dataclasses.replace(preparation, class_names=("even", "odd"))
    return DataSet("tokens", pair, pair, preparation, vocabulary=20)
