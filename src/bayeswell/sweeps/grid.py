"""Every combination of a few values of each setting, once: which one a trial has follows from its number alone.

The numbers of trials have no gaps and none is given twice, whoever is killed (``ledger``): neither have the points of
the grid. (Optuna's own grid sampler draws among the points that no trial has yet, and may draw one twice when several
workers ask at a time.)
"""

from __future__ import annotations

import math

from ..errors import SettingError
from .space import Choices, Near, Range, Space, Spread, Value

GRID = "grid"
USUAL_TRIALS = 20
"""How many trials a sweep has that is no grid, if nobody says."""


def grid_values(name: str, spread: Spread) -> tuple[Value, ...]:
    """The values that a setting has on the grid; a range of numbers without steps has none."""
    if isinstance(spread, Choices):
        return spread.values
    if isinstance(spread, Range) and spread.whole and not spread.log:
        return tuple(range(int(spread.low), int(spread.high) + 1))
    few = spread.values if isinstance(spread, Near) else _few(spread)
    written = ",".join(map(str, few)) if len(few) > 1 else f"{few[0]},..."
    raise SettingError(
        f"space: {name} = {spread.text!r}: a grid needs values to visit; write them, {name}={written}, or take "
        "--sampler random"
    )


def grid_size(space: Space) -> int:
    """How many points there are."""
    return math.prod(len(grid_values(name, spread)) for name, spread in space.items())


def grid_point(space: Space, number: int) -> dict[str, Value]:
    """Point ``number`` from 0 on, the last setting changing fastest, as the digits of a number do."""
    point: dict[str, Value] = {}
    for name, spread in reversed(list(space.items())):
        values = grid_values(name, spread)
        number, place = divmod(number, len(values))
        point[name] = values[place]
    return {name: point[name] for name in space}


def trials_of(sampler: str, space: Space, trials: int | None) -> int:
    """How many trials: those asked for; of a grid its size, and no other number."""
    if sampler != GRID:
        return USUAL_TRIALS if trials is None else trials
    size = grid_size(space)
    if trials not in (None, size):
        raise SettingError(
            f"sweep: trials = {trials!r}: the grid has {size} points, each visited once; leave trials out, or take "
            "--sampler random"
        )
    return size


def _few(spread: Range) -> tuple[Value, ...]:
    """Three values of a range, as an example of a list: its ends and the middle."""
    middle = math.sqrt(spread.low * spread.high) if spread.log else (spread.low + spread.high) / 2
    return (spread.low, round(middle) if spread.whole else float(f"{middle:.2g}"), spread.high)
