"""Networks of torch.nn layers as JSON-ready data, read from their attributes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import FileError

_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
_SPECIAL: dict[type, tuple[str, ...]] = {
    nn.RNN: (*_RECURRENT, "nonlinearity"),
    nn.GRU: _RECURRENT,
    nn.LSTM: (*_RECURRENT, "proj_size"),
}
"""Classes whose constructor takes ``*args``."""
_SKIPPED = ("self", "device", "dtype", "inplace", "_weight", "_freeze")


def describe_network(net: nn.Module) -> dict[str, Any] | None:
    """Return how to build a network of torch.nn layers and ``Sequential`` again; None for any other network.

    Weights are not part of it. Hooks and parametrizations cannot be described.
    """
    described = _describe(net)
    if described is None:
        return None
    try:
        rebuilt = build_network(described, device="meta")
    except FileError:
        return None
    return described if repr(rebuilt) == repr(net) else None


def build_network(described: Mapping[str, Any], device: str = "cpu") -> nn.Module:
    """Return the network of ``describe_network`` with new weights; FileError if that is impossible."""
    try:
        with torch.device(device):
            return _build(described)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise FileError(f"the saved description of the network is not valid: {error}") from error


def _describe(module: nn.Module) -> dict[str, Any] | None:
    kind = type(module)
    hooks = module._forward_hooks or module._forward_pre_hooks
    if hooks or getattr(nn, kind.__name__, None) is not kind:
        return None
    if kind is nn.Sequential:
        children = {name: _describe(child) for name, child in module.named_children()}
        return None if None in children.values() else {"layer": "Sequential", "children": children}
    settings = {}
    for name in _SPECIAL.get(kind) or _arguments(module):
        if not hasattr(module, name):
            return None
        value = getattr(module, name)
        if name == "bias" and (value is None or isinstance(value, Tensor)):
            value = value is not None
        if not _is_plain(value):
            return None
        settings[name] = value
    if getattr(module, "inplace", False):
        settings["inplace"] = True
    return None if list(module.children()) else {"layer": kind.__name__, "settings": settings}


def _arguments(module: nn.Module) -> list[str]:
    """Return the constructor's arguments; optional ones that left no attribute were not used."""
    parameters = inspect.signature(type(module)).parameters.values()
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return [
        one.name for one in named if one.name not in _SKIPPED and (one.default is not None or hasattr(module, one.name))
    ]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | bool | int | float)


def _build(described: Mapping[str, Any]) -> nn.Module:
    kind = getattr(nn, str(described["layer"]))
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"torch.nn has no layer {described['layer']!r}")
    if kind is not nn.Sequential:
        settings = described["settings"]
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()})
    net = nn.Sequential()
    for name, child in described["children"].items():
        net.add_module(name, _build(child))
    return net
