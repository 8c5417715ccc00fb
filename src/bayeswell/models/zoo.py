"""The models by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..registry import Registry, settings_of
from .dense import MLP, SmallMLP
from .densenet import DenseNet161
from .lenet import CNN, LeNet5, LeNetHWA, LeNetWide
from .preresnet import PreactResNet18, PreResNet164, ResNetTFP, WideResNet
from .recurrent import LSTM
from .resnet import ResNet10, ResNet18, ResNet152
from .settings import ModelPart
from .vgg import VGG

MODELS: Registry[ModelPart] = Registry(
    "model", MLP, SmallMLP, CNN, LeNet5, LeNetWide, LeNetHWA, VGG, ResNet10, ResNet18, ResNetTFP, PreactResNet18,
    PreResNet164, WideResNet, DenseNet161, ResNet152, LSTM,
)  # fmt: skip
"""Networks by name, with the sizes of the papers."""

BUILT_FROM = "built_from"
"""The attribute of a network that says how to build it again."""

_SMALL_IMAGE = 4
_LARGER_IMAGE = 28


def build_model(
    choice: str | Mapping[str, Any] | ModelPart,
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    vocabulary: int | None = None,
) -> nn.Module:
    """A plain network for inputs of ``input_shape`` (of one example, without the batch).

    ``choice`` is a name, ``{"name": ..., setting: value}`` or a part; ``outputs`` the number of classes, or of real
    numbers; ``vocabulary`` how many tokens there are, where inputs are tokens. Weights start as torch's layers do.
    """
    part = MODELS.resolve(choice)
    net = part.build(input_shape, outputs, vocabulary=vocabulary)
    record = {
        "model": settings_of(part),
        "input_shape": list(input_shape),
        "outputs": outputs,
        "vocabulary": vocabulary,
    }
    setattr(net, BUILT_FROM, record)
    return net


def default_model(input_shape: tuple[int, ...], vocabulary: int | None = None) -> str:
    """A model that suits inputs of this shape: small, and right for the kind of data."""
    if vocabulary is not None:
        return "lstm"
    if len(input_shape) == 3 and min(input_shape[1:]) >= _SMALL_IMAGE:
        return "lenet5" if min(input_shape[1:]) >= _LARGER_IMAGE else "cnn"
    return "small_mlp"
