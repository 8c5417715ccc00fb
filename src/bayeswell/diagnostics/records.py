"""What every diagnostic leaves behind: a plain record that goes into a file as it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """Numbers, texts, lists of them and further records; ``as_json`` is what is written and what is drawn."""

    def as_json(self) -> dict[str, Any]:
        """The fields as plain data; a number that is not finite becomes None, which JSON can say."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def plain(value: Any) -> Any:
    """Numbers, texts, lists and mappings all the way down."""
    if isinstance(value, Record):
        return value.as_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
