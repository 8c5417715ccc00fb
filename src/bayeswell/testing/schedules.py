"""Checks of learning rates and KL weights: functions of progress."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from ..types import Progress
from .report import Suite, require

_STEPS, _BATCHES = 40, 8


class RateCase:
    """A rate over a run of 40 steps."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def value(self, at: Progress) -> Any:
        """What the part says of this step."""
        return self.part.factor(at)

    @property
    def run(self) -> list[Progress]:
        """Every step of a run."""
        return [Progress(step, _STEPS, step % _BATCHES, _BATCHES) for step in range(_STEPS)]


class KLWeightCase(RateCase):
    """A KL weight over the same run."""

    def value(self, at: Progress) -> Any:
        """What the part says of this step."""
        return self.part(at)


def finite_and_not_negative(case: RateCase) -> None:
    """Every step of a run gives a finite number of at least 0, and not always 0."""
    values = []
    for at in case.run:
        value = case.value(at)
        require(
            isinstance(value, int | float) and not isinstance(value, bool),
            f"step {at.step} gives a {type(value).__name__}, expected a number",
        )
        require(math.isfinite(value) and value >= 0, f"step {at.step} gives {value!r}, expected a finite number >= 0")
        values.append(value)
    require(any(values), f"all {_STEPS} steps of a run give 0")


def depends_on_progress_alone(case: RateCase) -> None:
    """The same in any order, again, and of a copy: a run that was cut off goes on with the right number."""
    first = [case.value(at) for at in case.run]
    copied = copy.copy(case)
    copied.part = copy.deepcopy(case.part)
    orders: list[tuple[str, Callable[[], list[Any]]]] = [
        ("asked again", lambda: [case.value(at) for at in case.run]),
        ("asked backwards", lambda: [case.value(at) for at in reversed(case.run)][::-1]),
        ("asked of a copy", lambda: [copied.value(at) for at in case.run]),
    ]
    for how, ask in orders:
        for step, (value, expected) in enumerate(zip(ask(), first, strict=True)):
            require(value == expected, f"step {step} {how} gives {value:g}, before it gave {expected:g}")


_CHECKS = (finite_and_not_negative, depends_on_progress_alone)
RATE = Suite(RateCase, _CHECKS)
KL_WEIGHT = Suite(KLWeightCase, _CHECKS)
