"""Networks by name, for the shape of a data set."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...core.random import derive_seed
from ...core.registry import Registry
from ..data import DataSet
from .dense import MLP, Linear
from .parts import ModelPart

MODELS: Registry[ModelPart] = Registry("model", Linear, MLP, requires=("build",))
"""Networks by name."""


def build_model(choice: Any, data: DataSet, *, likelihood: Any = None, seed: int = 0, **settings: Any) -> nn.Module:
    """Return a plain network for the inputs and targets of a data set.

    Args:
        choice: a name, ``{"name": ..., setting: value}`` or a part; None: ``default_model(data)``.
        data: decides the shape of inputs and, with the likelihood, the number of outputs.
        likelihood: None: that of the data.
        seed: of the initial weights.
        settings: of the network, such as ``hidden=[100, 100]``.
    """
    choice = default_model(data) if choice is None else choice
    part = MODELS.resolve({"name": choice, **settings} if isinstance(choice, str) else choice)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        return part.build(data.input_shape, data.channels(likelihood), data.vocabulary)


def default_model(data: DataSet) -> str:
    """Return the name of a small network that suits the inputs."""
    return "mlp"
