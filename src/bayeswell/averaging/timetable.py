"""When snapshots are taken: known in full before training starts."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SettingError, require_count
from ..types import Progress

REMEDY = "train longer, start earlier or shorten the cycle"


@dataclass(frozen=True)
class Timetable:
    """A snapshot after every ``cycle``-th step, counted from the start of training, once ``burn_in`` are past.

    So a cycle of one epoch looks at the end of epochs, and a cyclic learning rate with the same cycle is seen at
    its lowest (Izmailov et al. 2018, algorithm 1; HWA, algorithm 1 looks one step after that).
    """

    burn_in: int
    cycle: int
    total_steps: int

    def due(self, at: Progress) -> bool:
        """Whether to take a snapshot after step ``at.step`` (the first is 0)."""
        done = at.step + 1
        return done > self.burn_in and done % self.cycle == 0

    def steps(self) -> range:
        """The steps after which a snapshot is due."""
        first = (self.burn_in // self.cycle + 1) * self.cycle - 1
        return range(first, self.total_steps, self.cycle)

    @property
    def planned(self) -> int:
        """How many snapshots all steps together give."""
        return self.total_steps // self.cycle - self.burn_in // self.cycle

    def __str__(self) -> str:
        return f"{self.total_steps} steps, {self.burn_in} of them burn-in, with a snapshot every {self.cycle}"


def check_timing(owner: str, start: float, cycle: int | None) -> None:
    """Refuse a start outside of training and a cycle that is not a number of steps."""
    if isinstance(start, bool) or not isinstance(start, int | float) or not 0 <= start < 1:
        raise SettingError(
            f"{owner}: start = {start!r}; it is the fraction of the planned steps after which snapshots begin, "
            "from 0 to below 1"
        )
    if cycle is not None:
        require_count(owner, "cycle", cycle)


def plan(
    owner: str, start: float, cycle: int | None, total_steps: int, batches: int, least: int = 1
) -> Timetable:  # fmt: skip
    """The timetable of one run; one that gives fewer than ``least`` snapshots is refused."""
    require_count(owner, "total_steps", total_steps)
    require_count(owner, "batches", batches)
    timetable = Timetable(round(start * total_steps), batches if cycle is None else cycle, total_steps)
    if timetable.planned < least:
        raise SettingError(
            f"{owner}: start = {start:g} and cycle = {timetable.cycle} steps give {timetable.planned} snapshots in "
            f"{total_steps} steps, and at least {least} are needed; {REMEDY}"
        )
    return timetable
