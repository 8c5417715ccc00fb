"""Networks of dense layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from .parts import ACTIVATIONS, Shape, check_settings, named


@dataclass(frozen=True)
class MLP:
    """Dense layers; inputs of any shape are flattened.

    Args:
        hidden: units of each hidden layer. The papers use (50,) on tables, (400, 400) and more on MNIST.
        activation: a name of ``ACTIVATIONS``.
    """

    hidden: tuple[int, ...] = (50,)
    activation: str = "relu"

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "dense layers"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        size = math.prod(input_shape)
        layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
        for index, units in enumerate(self.hidden, start=1):
            layers |= {f"dense{index}": nn.Linear(size, units), f"act{index}": ACTIVATIONS[self.activation]()}
            size = units
        return named(**layers, **{f"dense{len(self.hidden) + 1}": nn.Linear(size, outputs)})


@dataclass(frozen=True)
class Linear:
    """One dense layer: linear or logistic regression."""

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = "one dense layer: linear or logistic regression"

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        return MLP(hidden=()).build(input_shape, outputs)
