"""From what a user calls a network to a network for these numbers of features and outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..errors import NetworkError, SettingError
from ..models import build_model, default_model
from ..random import seed_global_generator


def network_for(given: Any, features: int, outputs: int, dtype: torch.dtype, seed: int) -> nn.Module:
    """The network that ``network=`` stands for; torch's global generator is left as it was found.

    None is one hidden layer of 50, ``(50, 50)`` are the sizes of hidden layers, a name or mapping is a model of
    ``build_model``: these compute in ``dtype``. A module is copied and keeps its own dtype and weights; a function gets
    ``(n_features, n_outputs)`` and returns a module.
    """
    with torch.random.fork_rng():
        seed_global_generator(seed)
        if isinstance(given, nn.Module):
            return copy.deepcopy(given)
        if callable(given):
            made = given(features, outputs)
            if not isinstance(made, nn.Module):
                raise NetworkError(
                    f"network({features}, {outputs}) returned a {type(made).__name__}; it must return an nn.Module"
                )
            return made
        return build_model(_choice(given, features), (features,), outputs).to(dtype)


def _choice(given: Any, features: int) -> Any:
    if given is None:
        return default_model((features,))
    if isinstance(given, str | Mapping):
        return given
    if isinstance(given, list | tuple) and all(isinstance(size, int) and size > 0 for size in given):
        return {"name": "mlp", "hidden": tuple(given)}
    raise SettingError(
        f"network = {given!r}; give hidden sizes such as (50, 50), the name of a model, an nn.Module, or a function of "
        "(n_features, n_outputs)"
    )
