"""Checks of learning-rate schedules and KL weights: functions of progress alone."""

from __future__ import annotations

import copy
import math
from typing import Any

from ..core.protocols import Progress
from .report import require

STEPS, BATCHES = 40, 8
RUN = [Progress(step, STEPS, step % BATCHES, BATCHES) for step in range(STEPS)]


class ScheduleChecks:
    """A schedule over a run of 40 steps."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def _value(self, part: Any, progress: Progress) -> Any:
        return part.factor(progress)

    def check_finite_and_not_negative(self) -> None:
        values = [self._value(self.part, progress) for progress in RUN]
        for step, value in enumerate(values):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            require(number, f"step {step} gives a {type(value).__name__}, expected a number")
            require(math.isfinite(value) and value >= 0, f"step {step} gives {value!r}, expected a finite number >= 0")
        require(any(values), f"all {STEPS} steps of a run give 0")

    def check_depends_on_progress_alone(self) -> None:
        """Equal values in any order and from a copy: a resumed run gets the right number."""
        copied, first = copy.deepcopy(self.part), [self._value(self.part, progress) for progress in RUN]
        orders = {
            "asked again": [self._value(self.part, progress) for progress in RUN],
            "asked backwards": [self._value(self.part, progress) for progress in reversed(RUN)][::-1],
            "asked of a copy": [self._value(copied, progress) for progress in RUN],
        }
        for how, values in orders.items():
            for step, (found, expected) in enumerate(zip(values, first, strict=True)):
                require(found == expected, f"step {step} {how} gives {found:g}, before it gave {expected:g}")


class KLWeightChecks(ScheduleChecks):
    """A KL weight over the same run."""

    def _value(self, part: Any, progress: Progress) -> Any:
        return part(progress)
