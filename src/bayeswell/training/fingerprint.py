"""The settings of a run as plain data, so that a resumed run can say what differs.

Covered: all settings, the weights of the network and the source of its class, every byte of data in memory, length,
sampler and some examples of loaders, and the source of functions with the plain values in their closures. Not covered,
and the user's care: what a data set reads from files, functions that are called by those functions, and globals.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = bool | int | float | str | None


def fingerprint(value: Any) -> Any:
    """Return settings as JSON-ready data; arrays, modules and code appear by their SHA-256."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, Tensor | np.ndarray):
        return _array_sha256(torch.as_tensor(value))
    if isinstance(value, Mapping):
        return {str(key): fingerprint(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [fingerprint(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, nn.Module):
        return _module_fingerprint(value)
    if isinstance(value, functools.partial):
        return {"function": fingerprint(value.func), "arguments": fingerprint([value.args, value.keywords])}
    if isinstance(value, FunctionType):
        closure = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
        return {"function": value.__qualname__, "code": _code(value), "values": [_shallow(part) for part in closure]}
    if dataclasses.is_dataclass(value):
        fields = {field.name: fingerprint(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"name": getattr(value, "name", type(value).__qualname__), **fields}
    attributes = {name: _shallow(part) for name, part in getattr(value, "__dict__", {}).items()}
    return {"class": type(value).__qualname__, "code": _code(type(value)), **attributes}


def _module_fingerprint(module: nn.Module) -> dict[str, Any]:
    # Structure, weights, and the code and plain attributes of modules that torch does not define.
    own = [(name, part) for name, part in module.named_modules() if not type(part).__module__.startswith("torch.")]
    code = {type(part).__qualname__: _code(type(part)) for _, part in own}
    attributes = {
        f"{name}.{key}".lstrip("."): value
        for name, part in own
        for key, value in vars(part).items()
        if isinstance(value, PLAIN) and not key.startswith("_") and key != "training"
    }
    weights = _sha256(f"{name}{_array_sha256(tensor)}" for name, tensor in module.state_dict().items())
    return {"structure": _sha256([repr(module)]), "weights": weights, "code": code, "attributes": attributes}


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Return each setting that differs, by name, with both values where they are readable."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))]
    if old == new:
        return []
    long = any(isinstance(value, list | Mapping) or str(value).startswith("sha256:") for value in (old, new))
    return [f"{name} differs" if long else f"{name} was {old!r}, is {new!r}"]


def _array_sha256(tensor: Tensor) -> str:
    tensor = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return f"sha256:{digest.hexdigest()}"


def _sha256(parts: Iterable[str]) -> str:
    return "sha256:" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _code(owner: Any) -> str:
    # The source of a function, or of the methods of a class and its bases outside torch.
    if isinstance(owner, FunctionType):
        return _sha256([_source(owner)])
    own = [base for base in inspect.getmro(owner) if not base.__module__.startswith(("torch.", "builtins"))]
    methods = [part for base in own for part in vars(base).values() if isinstance(part, FunctionType)]
    return _sha256(_source(method) for method in methods)


def _source(function: FunctionType) -> str:
    # Of the function and not of its class, which Python finds by name alone.
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return function.__code__.co_code.hex() + repr(function.__code__.co_names)


def _shallow(value: Any) -> Any:
    # Values inside objects: plain data and arrays; others by their type.
    return fingerprint(value) if isinstance(value, PLAIN | Tensor | np.ndarray | set) else type(value).__qualname__
