"""Nested state as flat tensors and JSON-ready data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import FileError


def pack_state(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Return (tensors by path, JSON-ready rest) of nested dicts, lists and tuples; ``unpack_state`` inverts it exactly.

    Keys may be strings, numbers or None. Leaves are tensors, numpy arrays and numbers, strings, numbers and None.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _pack(tree, "", tensors)


def unpack_state(tensors: Mapping[str, Tensor], document: Any) -> Any:
    """Invert ``pack_state``; FileError if a tensor is missing."""
    if isinstance(document, list):
        return [unpack_state(tensors, item) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) != 1 or not next(iter(document)).startswith("$"):
        return {key: unpack_state(tensors, value) for key, value in document.items()}
    ((kind, value),) = document.items()
    if kind == "$tuple":
        return tuple(unpack_state(tensors, item) for item in value)
    if kind == "$items":
        return {key: unpack_state(tensors, item) for key, item in value}
    if kind not in ("$tensor", "$array") or value not in tensors:
        raise FileError(f"the saved state refers to the tensor {value!r}, which is missing")
    return tensors[value] if kind == "$tensor" else tensors[value].numpy()


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return _pack_tensor(value, path or "value", tensors)
    if isinstance(value, Mapping):
        packed = {key: _pack(item, f"{path}.{key}" if path else str(key), tensors) for key, item in value.items()}
        simple = all(isinstance(key, str) and not key.startswith("$") for key in packed)
        return packed if simple else {"$items": [[key, item] for key, item in packed.items()]}
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{path}.{index}", tensors) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise FileError(f"state '{path}' of type {type(value).__name__} cannot be saved; use tensors, numbers and strings")


def _pack_tensor(value: Tensor | np.ndarray[Any, Any], name: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    while name in tensors:
        name += "'"
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {"$tensor": name}
    tensors[name] = torch.from_numpy(np.ascontiguousarray(value))
    return {"$array": name}
