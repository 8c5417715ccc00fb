"""Networks by name, for the shape of a data set."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ...core.errors import NetworkError, SettingError
from ...core.random import derive_seed
from ...core.registry import Registry
from ..data import DataSet
from ..settings import Code, CodeRecord, call_with, run_code
from .dense import MLP, Linear
from .images import CNN, LeNet5, ResNet18
from .parts import ModelPart
from .text import LSTM, Embedding, Transformer

MODELS: Registry[ModelPart] = Registry(
    "model",
    *(Linear, MLP, CNN, LeNet5, ResNet18, Embedding, LSTM, Transformer),
    requires=("build",),
)
"""Networks by name."""
AUTO = "auto"
_LARGE = 28


def build_model(choice: Any, data: DataSet, *, likelihood: Any = None, seed: int = 0, **settings: Any) -> nn.Module:
    """Return a plain network for the inputs and targets of a data set.

    Args:
        choice: a name, ``{"name": ..., setting: value}``, a part, ``Code``, a network, or a function or class that
            returns one; "auto" or None: ``default_model(data)``. A function may take ``input_shape``, ``outputs``,
            ``vocabulary`` and settings by name.
        data: decides the shape of inputs and, with the likelihood, the number of outputs.
        likelihood: None: that of the data.
        seed: of the initial weights.
        settings: of the network, such as ``hidden=[100, 100]``.
    """
    named = _choice_with_settings(choice, data, settings)
    outputs = data.channels(likelihood)
    offered = {"input_shape": data.input_shape, "outputs": outputs, "vocabulary": data.vocabulary}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        found = run_code("model", named, offered)
        if inspect.isclass(found) or inspect.isroutine(found):
            found = call_with(f"model {found.__name__}", found, settings, offered)
        if isinstance(found, nn.Module):
            return found
        if not isinstance(found, str | Mapping) and not hasattr(found, "build"):
            raise NetworkError(f"model: {choice} gives a {type(found).__name__}; it must be a torch.nn.Module")
        part = MODELS.resolve(found)
        _check_inputs(part, data)
        return part.build(data.input_shape, outputs, data.vocabulary)


def default_model(data: DataSet) -> str:
    """Return the name of a small network that suits the inputs."""
    if data.vocabulary is not None:
        return LSTM.name
    shape = data.image_shape
    if shape is None or min(shape[1:]) < CNN.least:
        return MLP.name
    return LeNet5.name if min(shape[1:]) >= _LARGE else CNN.name


def _choice_with_settings(choice: Any, data: DataSet, settings: Mapping[str, Any]) -> Any:
    choice = AUTO if choice is None else choice
    if isinstance(choice, str | Code | CodeRecord):
        choice = {"name": choice, **settings}
    elif isinstance(choice, Mapping):
        choice = {**choice, **settings}
    if isinstance(choice, Mapping) and choice.get("name") == AUTO:
        return {**choice, "name": default_model(data)}
    return choice


def _check_inputs(part: ModelPart, data: DataSet) -> None:
    takes_tokens = getattr(part, "takes_tokens", False)
    if takes_tokens != (data.vocabulary is not None):
        kind = "numbers" if takes_tokens else "tokens"
        fits = [name for name in MODELS if getattr(MODELS[name], "takes_tokens", False) != takes_tokens]
        raise NetworkError(
            f"model '{part.name}': the inputs of '{data.name}' are {kind}; use {', '.join(repr(n) for n in fits)}"
        )
    least = getattr(part, "least", None)
    if least is not None and (data.image_shape is None or min(data.image_shape[1:]) < least):
        raise SettingError(
            f"model '{part.name}' needs images of {least}x{least} pixels or more, but the inputs of '{data.name}' have "
            f"shape {data.input_shape}; use 'mlp'"
        )
