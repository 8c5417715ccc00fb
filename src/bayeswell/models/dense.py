"""Networks of dense layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from .blocks import named
from .settings import ACTIVATIONS, check_settings, numbers


@dataclass(frozen=True)
class MLP:
    """Dense layers; 784-400-400-10 as it stands on MNIST.

    Inputs of any shape are flattened. ``hidden`` may be empty: a linear model.
    """

    hidden: tuple[int, ...] = (400, 400)
    activation: str = "relu"

    name: ClassVar[str] = "mlp"
    paper: ClassVar[str] = "Blundell et al. 2015; Swiatkowski et al. 2020"

    def __post_init__(self) -> None:
        if isinstance(self.hidden, list):  # from JSON, TOML or a command line
            object.__setattr__(self, "hidden", tuple(self.hidden))
        check_settings(self)

    def build(self, input_shape: tuple[int, ...], outputs: int, *, vocabulary: int | None = None) -> nn.Module:
        """The network."""
        size = math.prod(numbers(self, input_shape, outputs, vocabulary))
        layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
        for index, units in enumerate(self.hidden, start=1):
            layers |= {f"dense{index}": nn.Linear(size, units), f"act{index}": ACTIVATIONS[self.activation]()}
            size = units
        return named(**layers, **{f"dense{len(self.hidden) + 1}": nn.Linear(size, outputs)})


@dataclass(frozen=True)
class SmallMLP(MLP):
    """One hidden layer of 50 units: for tables of up to some thousand rows."""

    hidden: tuple[int, ...] = (50,)

    name: ClassVar[str] = "small_mlp"
    paper: ClassVar[str] = "Hernandez-Lobato & Adams 2015"
