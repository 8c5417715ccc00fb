"""The network of an estimator, from its ``network`` argument."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..core.errors import NetworkError, SettingError
from ..core.random import derive_seed

DEFAULT_HIDDEN = (50,)


def make_network(choice: Any, features: int, outputs: int, dtype: torch.dtype, seed: int) -> nn.Module:
    """Return a new network; torch's global generator does not change.

    ``choice`` is None or sizes of hidden layers, of this dtype; a module, which is copied; or a function of
    ``(features, outputs)`` that returns a module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        if isinstance(choice, nn.Module):
            return copy.deepcopy(choice)
        if callable(choice):
            made = choice(features, outputs)
            if not isinstance(made, nn.Module):
                raise NetworkError(f"`network`({features}, {outputs}) must return an nn.Module, got {made!r}")
            return made
        sizes = DEFAULT_HIDDEN if choice is None else choice
        if isinstance(sizes, list | tuple) and all(isinstance(size, int) and size > 0 for size in sizes):
            return _perceptron(sizes, features, outputs).to(dtype)
    raise SettingError(f"`network` must be hidden sizes such as (50, 50), an nn.Module or a function, got {choice!r}")


def _perceptron(hidden: Sequence[int], features: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(features, size), nn.ReLU()]
        features = size
    return nn.Sequential(*layers, nn.Linear(features, outputs))
