"""Densely connected networks: each layer sees the outputs of all before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .blocks import conv, head, named, norm_act, stem
from .settings import ImageModel, Shape

_COUNTS = (6, 12, 36, 24)
_BOTTLENECK = 4


class Appended(nn.Module):
    """x -> x with body(x) as further channels."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """One layer."""
        return torch.cat([x, self.body(x)], dim=1)


@dataclass(frozen=True)
class DenseNet161(ImageModel):
    """Four dense blocks of 6, 12, 36 and 24 layers, for images like ImageNet's.

    ``width`` is the growth rate: the channels that each layer adds. ``stem`` as in ``resnet10``.
    """

    width: int = 48
    activation: str = "relu"
    stem: str = "large"

    name = "densenet161"
    paper = "Huang et al. 2017; Nguyen et al. 2023"
    least = 8

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        width = 2 * self.width
        layers: dict[str, nn.Module] = {"stem": stem(self.stem, shape[0], width, self.activation)}
        for index, count in enumerate(_COUNTS):
            block = nn.Sequential()
            for _ in range(count):
                block.append(self._layer(width))
                width += self.width
            layers[f"block{index + 1}"] = block
            if index + 1 < len(_COUNTS):
                layers[f"transition{index + 1}"] = named(
                    before=norm_act(width, self.activation), conv=conv(width, width // 2, 1), pool=nn.AvgPool2d(2)
                )
                width //= 2
        return named(**layers, after=norm_act(width, self.activation), head=head(width, outputs))

    def _layer(self, channels: int) -> nn.Module:
        inner = _BOTTLENECK * self.width
        return Appended(
            named(
                before=norm_act(channels, self.activation), first=conv(channels, inner, 1),
                between=norm_act(inner, self.activation), second=conv(inner, self.width, 3),
            )
        )  # fmt: skip
