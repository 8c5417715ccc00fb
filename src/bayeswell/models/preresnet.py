"""Residual networks, normalisation and activation first in a block (He et al. 2016b)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .blocks import PreActivated, conv, head, named, norm_act, stages
from .settings import ImageModel, Shape, require_depth

_EXPANSION = 4


def _basic(
    channels: int, width: int, stride: int, activation: str, *, bias: bool = False, project: bool = False,
    dropout: float = 0.0,
) -> tuple[nn.Module, int]:  # fmt: skip
    """Two 3x3 convolutions; a projection where the shape changes, or always."""
    layers: dict[str, nn.Module] = {
        "first": conv(channels, width, 3, stride, bias=bias),
        "between": norm_act(width, activation),
        **({"dropout": nn.Dropout(dropout)} if dropout else {}),
        "second": conv(width, width, 3, bias=bias),
    }
    changes = project or channels != width or stride != 1
    projection = conv(channels, width, 1, stride, bias=bias) if changes else None
    return PreActivated(norm_act(channels, activation), named(**layers), projection), width


def _network(
    channels: int, start: int, body: nn.Module, last: int, outputs: int, activation: str, *, bias: bool = False
) -> nn.Module:
    first = conv(channels, start, 3, bias=bias)
    return named(stem=first, body=body, after=norm_act(last, activation), head=head(last, outputs))


def _four_stages(
    channels: int, w: int, outputs: int, activation: str, *, blocks: int, bias: bool = False, project: bool = False
) -> nn.Module:
    """So many basic blocks in each of four stages, whose channels double."""
    body, last = stages(
        lambda c, width, stride: _basic(c, width, stride, activation, bias=bias, project=project),
        w, (w, 2 * w, 4 * w, 8 * w), (blocks,) * 4,
    )  # fmt: skip
    return _network(channels, w, body, last, outputs, activation, bias=bias)


@dataclass(frozen=True)
class PreactResNet18(ImageModel):
    """Four stages of two pre-activation blocks, softplus, mean over the image at the end.

    ``width`` is the channels of the first stage.
    """

    width: int = 64
    activation: str = "softplus"

    name = "preact_resnet18"
    paper = "He et al. 2016b; Unlu & Aitchison 2021"
    least = 8

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        return _four_stages(shape[0], self.width, outputs, self.activation, blocks=2)


@dataclass(frozen=True)
class ResNetTFP(ImageModel):
    """TensorFlow Probability's residual network, the "ResNet-18" of the k-tied paper.

    Four pre-activation blocks in all, each with a projection; convolutions have biases. ``width`` is the channels of
    the first.
    """

    width: int = 64
    activation: str = "relu"

    name = "resnet_tfp"
    paper = "Swiatkowski et al. 2020"
    least = 8

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        return _four_stages(shape[0], self.width, outputs, self.activation, blocks=1, bias=True, project=True)


@dataclass(frozen=True)
class PreResNet164(ImageModel):
    """Three stages of 18 pre-activation bottleneck blocks.

    ``depth`` is 9 n + 2 for n blocks a stage; ``width`` the inner channels of the first stage.
    """

    width: int = 16
    activation: str = "relu"
    depth: int = 164

    name = "preresnet164"
    paper = "He et al. 2016b; Nguyen et al. 2023"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_depth(self, 3, 2)

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        w, count = self.width, require_depth(self, 3, 2)
        body, last = stages(self._block, w, (w, 2 * w, 4 * w), (count,) * 3)
        return _network(shape[0], w, body, last, outputs, self.activation)

    def _block(self, channels: int, width: int, stride: int) -> tuple[nn.Module, int]:
        out = _EXPANSION * width
        body = named(
            first=conv(channels, width, 1), act1=norm_act(width, self.activation),
            second=conv(width, width, 3, stride), act2=norm_act(width, self.activation),
            third=conv(width, out, 1),
        )  # fmt: skip
        changes = channels != out or stride != 1
        projection = conv(channels, out, 1, stride) if changes else None
        return PreActivated(norm_act(channels, self.activation), body, projection), out


@dataclass(frozen=True)
class WideResNet(ImageModel):
    """Three stages of four wide pre-activation blocks.

    ``width`` is the channels of the first stage: 160 is 10 times the usual 16. ``depth`` is 6 n + 4 for n blocks a
    stage; ``dropout`` stands between the two convolutions of a block.
    """

    width: int = 160
    activation: str = "relu"
    depth: int = 28
    dropout: float = 0.0

    name = "wide_resnet28_10"
    paper = "Zagoruyko & Komodakis 2016; Nguyen et al. 2023"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_depth(self, 2, 4)

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        w, count = self.width, require_depth(self, 2, 4)
        start = min(16, w)
        body, last = stages(
            lambda c, width, stride: _basic(c, width, stride, self.activation, dropout=self.dropout),
            start, (w, 2 * w, 4 * w), (count,) * 3,
        )  # fmt: skip
        return _network(shape[0], start, body, last, outputs, self.activation)
