"""VGG as TensorFlow Probability's example has it, which the HWA paper used."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .blocks import conv_norm, named
from .settings import ACTIVATIONS, POOLINGS, ImageModel, Shape


@dataclass(frozen=True)
class VGG(ImageModel):
    """Five blocks of two 3x3 convolutions with batch normalisation, and one dense layer.

    11 layers with weights. Pooling rounds up, so that images may be smaller than 32x32. ``width`` is the channels
    of the first block; the others have 2, 4, 8 and 8 times as many. ``pooling`` is "max" or "average".
    """

    width: int = 64
    activation: str = "relu"
    pooling: str = "max"

    name = "vgg"
    paper = "Simonyan & Zisserman 2015; Hyperparameters Weight Averaging (HWA)"

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        channels, height, width = shape
        layers: dict[str, nn.Module] = {}
        for index, out in enumerate(self.width * times for times in (1, 2, 4, 8, 8)):
            block = nn.Sequential()
            for size in (channels, out):
                block.extend([conv_norm(size, out, 3, bias=True), ACTIVATIONS[self.activation]()])
            layers[f"block{index + 1}"] = block.append(POOLINGS[self.pooling](2, ceil_mode=True))
            channels = out
        features = channels * -(-height // 32) * -(-width // 32)
        return named(**layers, flatten=nn.Flatten(), dense=nn.Linear(features, outputs))
