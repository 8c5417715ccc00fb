"""Nested states (of optimizers, averages, generators) as tensors and JSON, and back to exactly what they were.

JSON knows neither tensors nor tuples, whole numbers as keys, NaN or infinity; each of these is written as a mapping
of one reserved key. What comes back is equal in value and type, so that a run can go on bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..errors import FileError, SettingError
from .contents import JSON

_TENSOR, _TUPLE, _PAIRS, _FLOAT = "~tensor", "~tuple", "~pairs", "~float"
_RESERVED = (_TENSOR, _TUPLE, _PAIRS, _FLOAT)


def pack_state(state: Any) -> tuple[dict[str, Tensor], JSON]:
    """The tensors of a nested state by number and path, and everything else as JSON that points to them."""
    tensors: dict[str, Tensor] = {}
    return tensors, _pack(state, "state", tensors)


def unpack_state(tensors: Mapping[str, Tensor], packed: JSON) -> Any:
    """The inverse of ``pack_state``."""
    if isinstance(packed, list | tuple):
        return [unpack_state(tensors, part) for part in packed]
    if not isinstance(packed, Mapping):
        return packed
    key = next(iter(packed)) if len(packed) == 1 else ""
    if key not in _RESERVED:
        return {name: unpack_state(tensors, part) for name, part in packed.items()}
    try:
        return _SPECIAL[key](tensors, packed[key])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"the saved state is not one of bayeswell ({error!r}); it cannot be used") from error


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> JSON:
    if isinstance(value, Tensor):
        name = f"{len(tensors)}:{path}"  # numbered: two paths may read alike
        tensors[name] = value.detach()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        plain = all(isinstance(key, str) for key in value) and not any(key in _RESERVED for key in value)
        parts = {key: _pack(part, f"{path}/{key}", tensors) for key, part in value.items()}
        return parts if plain else {_PAIRS: [[key, part] for key, part in parts.items()]}
    if isinstance(value, tuple | list):
        listed = [_pack(part, f"{path}/{index}", tensors) for index, part in enumerate(value)]
        return {_TUPLE: listed} if isinstance(value, tuple) else listed
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SettingError(f"{path} is of type {type(value).__name__}, which cannot be saved; use tensors and plain data")


_SPECIAL: dict[str, Callable[[Mapping[str, Tensor], Any], Any]] = {
    _TENSOR: lambda tensors, path: tensors[path],
    _TUPLE: lambda tensors, parts: tuple(unpack_state(tensors, part) for part in parts),
    _PAIRS: lambda tensors, pairs: {key: unpack_state(tensors, part) for key, part in pairs},
    _FLOAT: lambda tensors, text: float(text),
}
