"""At which settings a cell is trained: every combination of a grid, or settings drawn at random.

    grid = {"method.stepper.lr" = [0.001, 0.01], "method.temperature" = [0.1, 1]}

    [cells.sgd.random]                             # as many as the scale says: points = 20
    "method.stepper.lr" = {near = [0.001, 0.01]}   # one of these values v, then N(v, v/2), drawn again until above 0
    "method.stepper.momentum" = {from = 0, to = 0.99}              # uniform; log = true: uniform in the logarithm

``below = 1`` also draws again what is not below it. Random points depend on the label of the cell, the setting and the
number of the point alone: more points leave those there are as they are. (Book's thesis draws N(v, v/2) around the
values of its table 5.2, of which some are negative.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ..errors import SettingError
from ..random import derive_seed
from ..random_settings import drawn_between, drawn_near, is_number, near_fault

_WAYS = ("near", "from", "to", "log", "below")


def grid_points(file: str, grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every point of a grid; one point without settings if there is no grid."""
    for path, values in grid.items():
        if not isinstance(values, list) or not values:
            raise SettingError(f"{file}: grid: {path} = {values!r:.60}; it must be a list of values")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def random_points(file: str, label: str, spreads: Mapping[str, Any], count: Any) -> list[dict[str, Any]]:
    """So many points drawn for a cell, the same whenever they are drawn."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(f"{file}: cell '{label}': points = {count!r}; how many, a whole number of at least 1")
    if not isinstance(spreads, Mapping):
        raise SettingError(f"{file}: cell '{label}': random = {spreads!r:.60}; a table of settings by their paths")
    for path, spread in spreads.items():
        _check(f"{file}: cell '{label}': random: {path}", spread)
    return [
        {path: _drawn(spread, derive_seed(0, "study", label, path, number)) for path, spread in spreads.items()}
        for number in range(count)
    ]


def _check(where: str, spread: Any) -> None:
    said = f"{where} = {spread!r:.60}; {{near = [values]}} or {{from = low, to = high, log = true}}"
    if not isinstance(spread, Mapping) or set(spread) - set(_WAYS):
        raise SettingError(said)
    if "near" in spread:
        if {"from", "to", "log"} & set(spread):
            raise SettingError(said)
        fault = near_fault(spread["near"], spread.get("below", math.inf))
        if fault is not None:
            raise SettingError(f"{where}: {fault}" if "below" in fault else said)
        return
    low, high = (spread.get(end) for end in ("from", "to"))
    ends = [float(end) for end in (low, high) if is_number(end) and end is not None]
    if len(ends) != 2 or ends[0] >= ends[1] or (spread.get("log") and ends[0] <= 0) or "below" in spread:
        raise SettingError(said)


def _drawn(spread: Mapping[str, Any], seed: int) -> float:
    if "near" in spread:
        return drawn_near(spread["near"], seed, spread.get("below", math.inf))
    return drawn_between(float(spread["from"]), float(spread["to"]), seed, log=bool(spread.get("log")))
