"""Activations, checks of settings, and blocks that several networks share."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar, Protocol

from torch import nn

from ...core.errors import check_choice, check_integer, check_number

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}
POOLINGS: dict[str, type[nn.MaxPool2d] | type[nn.AvgPool2d]] = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}
Shape = tuple[int, ...]


class ModelPart(Protocol):
    """Settings of a network; ``build`` makes it for the shape of one input and a number of outputs.

    ``vocabulary`` is the number of different tokens, None if inputs are numbers. A part with ``takes_tokens`` works on
    tokens, all others on numbers. ``least`` is the smallest side of an image, None for inputs of any shape.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module: ...


def named(**modules: nn.Module) -> nn.Sequential:
    """Return layers one after another, by name."""
    return nn.Sequential(OrderedDict(modules))


def check_settings(part: Any) -> None:
    """Refuse settings by their names: ``activation``, ``pooling``, ``dropout``, ``hidden``, and sizes."""
    for setting, value in vars(part).items():
        if setting == "activation":
            check_choice(part.name, setting, value, ACTIVATIONS)
        elif setting == "pooling":
            check_choice(part.name, setting, value, POOLINGS)
        elif setting == "dropout":
            check_number(part.name, setting, value, 0, 1)
        else:
            for size in value if setting == "hidden" else (value,):
                check_integer(part.name, setting, size)
