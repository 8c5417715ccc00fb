"""Values as plain data, which every file format can hold: mappings, lists, texts, numbers, True, False and None."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any


def plain(value: Any, other: Callable[[Any], Any] | None = None, *, finite: bool = False) -> Any:
    """The value as it would come back from a JSON file: tuples are lists, keys are texts, dataclasses their fields.

    An object with ``as_json`` speaks for itself. ``other`` says what becomes of objects that are no plain data,
    dataclasses among them; without it they are left as they are. With ``finite`` NaN and infinities become None.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return None if finite and not math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {str(key): plain(part, other, finite=finite) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, other, finite=finite) for part in value]
    if other is not None:
        return other(value)
    if callable(getattr(value, "as_json", None)):
        return value.as_json()
    return fields_of(value, finite=finite) if _is_record(value) else value


def fields_of(record: Any, other: Callable[[Any], Any] | None = None, *, finite: bool = False) -> dict[str, Any]:
    """The fields of a dataclass by name, as plain data."""
    names = (field.name for field in dataclasses.fields(record))
    return {name: plain(getattr(record, name), other, finite=finite) for name in names}


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
