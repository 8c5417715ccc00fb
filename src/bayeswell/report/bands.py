"""The bands of several regressions along the same line, on one scale: side by side they can be compared by eye."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .numbers import number
from .reading import mapping
from .rows import MethodRow

_STDS = 2.0
_ROOM = 0.05


def bands_of(rows: Sequence[MethodRow]) -> dict[int, dict[str, Any]]:
    """The record of each row that has a band, by its place, with limits that hold them all among the training inputs.

    Beyond the training inputs bands may grow without bound, and are cut there.
    """
    records = {index: dict(mapping(row.first.plot_record("regression_band"))) for index, row in enumerate(rows)}
    known = {index: record for index, record in records.items() if record}
    ends = [end for record in known.values() for end in _ends(record)]
    if not ends:
        return known
    low, high = min(ends), max(ends)
    room = _ROOM * (high - low) or 1.0
    return {index: {**record, "y_limits": [low - room, high + room]} for index, record in known.items()}


def _ends(record: Mapping[str, Any]) -> list[float]:
    """Lower and upper ends of the wider band at places among the training inputs, and the training targets."""
    columns = [_column(record.get(name)) for name in ("x", "mean", "epistemic_std", "aleatoric_std")]
    places, targets = _column(record.get("train_x")), _column(record.get("train_y"))
    if not places:
        return []
    found = [end for end in targets if end is not None]
    known = [place for place in places if place is not None] or [math.inf]
    for x, mean, *stds in zip(*columns, strict=False):
        if x is not None and mean is not None and min(known) <= x <= max(known):
            away = _STDS * math.hypot(*(std or 0.0 for std in stds))
            found += [mean - away, mean + away]
    return found


def _column(values: Any) -> list[float | None]:
    return [number(value) for value in values] if isinstance(values, list) else []
