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

import numpy as np

from ..errors import SettingError
from ..random import derive_seed

_WAYS = ("near", "from", "to", "log", "below")
_DIGITS = 4


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
    below = spread.get("below", math.inf)
    least = min((value for value in spread.get("near") or [0] if _is_number(value)), default=0)
    if isinstance(below, bool) or not isinstance(below, int | float) or not below > least:
        raise SettingError(f"{where}: below = {below!r:.60}; a number above {least:g}")
    near = spread.get("near")
    if near is not None:
        positive = isinstance(near, list) and near and all(_is_number(value) and value >= 0 for value in near)
        if not positive or {"from", "to", "log"} & set(spread):
            raise SettingError(said)
        return
    low, high = (spread.get(end) for end in ("from", "to"))
    ends = [float(end) for end in (low, high) if _is_number(end) and end is not None]
    if len(ends) != 2 or ends[0] >= ends[1] or (spread.get("log") and ends[0] <= 0):
        raise SettingError(said)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _drawn(spread: Mapping[str, Any], seed: int) -> float:
    draw = np.random.Generator(np.random.PCG64(seed))
    if "near" not in spread:
        low, high = float(spread["from"]), float(spread["to"])
        if spread.get("log"):
            return _short(math.exp(draw.uniform(math.log(low), math.log(high))))
        return _short(draw.uniform(low, high))
    middle = float(spread["near"][draw.integers(len(spread["near"]))])
    if middle == 0:
        return 0.0
    while True:  # half the mean is two standard deviations from 0: few draws are lost
        value = draw.normal(middle, middle / 2)
        if 0 < value < spread.get("below", math.inf):
            return _short(value)


def _short(value: float) -> float:
    """Few digits, so that a setting can be read and typed."""
    return float(f"{value:.{_DIGITS}g}")
