"""When a sampler that fits itself to the problem descends, looks around and draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SettingError, require_count

DESCEND, LOOK, DRAW = "descend", "look", "draw"

_LEAST_DESCENT, _MOST_DESCENT, _BURN_IN = 0.4, 0.75, 0.1
LONG_ENOUGH = 1500
"""Steps in which a descent can be expected to end near an optimum."""
_SHARE_OF_LOOKS, _LEAST_LOOKS, _MOST_LOOKS = 0.025, 4, 40
_TINY, _HARDLY_A_RUN = 20, 60


def descent_rate(steps: int) -> float:
    """Of Adam in so many steps: 0.4 / sqrt(steps), at most 0.01."""
    return min(1e-2, 0.4 / math.sqrt(max(1, steps)))


def one_chain(owner: str, total_steps: int | None) -> Plan:
    """Most of a short run is descent: a chain around an unfinished one is worth little.

    It takes 75 percent of up to 1500 steps and 40 percent of 5300 or more; 10 percent more are burn-in.
    """
    steps = planned(owner, total_steps)
    if steps < _HARDLY_A_RUN:  # draws from the second half, whatever they are worth: collectors count on some
        return Plan(steps, 1, 0.25, 0.5)
    descent = max(_LEAST_DESCENT, min(_MOST_DESCENT, _MOST_DESCENT * math.sqrt(LONG_ENOUGH / steps)))
    return Plan(steps, 1, descent, descent + _BURN_IN)


def planned(owner: str, total_steps: int | None) -> int:
    """How many steps there will be, which a rate that fits itself has to know."""
    if total_steps is None:
        raise SettingError(
            f"{owner}: lr = None needs the planned number of steps: total_steps=..., or give lr a number"
        )
    require_count(owner, "total_steps", total_steps)
    return total_steps


@dataclass(frozen=True)
class Plan:
    """A descent without noise, a look around at one place, then a chain; in each of ``cycles`` cycles of equal length.

    ``descent`` is the share of a cycle before the look, ``collection`` the place in it from which on draws may be kept;
    between the two the chain burns in and its rate is fitted. With several cycles the rate falls like a cosine along
    each of them (``rates.CosineCycles``). A run longer than ``length`` goes on drawing, or with further cycles. It is a
    ``StepRate`` for the weights; ``factor_without_noise`` is that of parameters which descend all the time.
    """

    length: int
    cycles: int
    descent: float
    collection: float

    @property
    def looks(self) -> int:
        """How many batches are looked at before the chain moves; none in a run of a handful of steps."""
        steps = self.length / self.cycles
        if steps < _TINY:
            return 0
        return max(_LEAST_LOOKS, min(_MOST_LOOKS, round(_SHARE_OF_LOOKS * steps)))

    def stage(self, step: int) -> str:
        """What a step is for."""
        start = self.first_look(step)
        if step < start:
            return DESCEND
        return LOOK if step < start + self.looks else DRAW

    def first_look(self, step: int) -> int:
        """The first step after the descent of this step's cycle."""
        return self._step_at(step, self.descent)

    def first_draw(self, step: int) -> int:
        """The first step of the chain of this step's cycle."""
        return self.first_look(step) + self.looks

    def first_kept(self, step: int) -> int:
        """From where on draws of this step's cycle may be kept."""
        return max(self._step_at(step, self.collection), self.first_draw(step))

    def collects(self, step: int) -> bool:
        """Whether the weights after this step may be kept."""
        return self.stage(step) == DRAW and step >= self.first_kept(step)

    def measures(self, step: int) -> bool:
        """Whether curvature is measured before this step: as the chain begins and, if it is long, thrice in burn-in."""
        start, end = self.first_draw(step), self.first_kept(step)
        if self.cycles > 1:
            return step == start
        return step in {start, start + (end - start) // 8, start + (end - start) // 2, max(start, end - 1)}

    def factor(self, step: int) -> float:
        """On the rate of the weights."""
        if self.cycles > 1:
            return 0.5 * (math.cos(math.pi * self._place(step)) + 1.0)
        if self.stage(step) != DESCEND:
            return 1.0
        done = step / self.first_look(step)
        return min(1.0, 0.1 + 10 * done) * (0.55 + 0.45 * math.cos(math.pi * done))

    def factor_without_noise(self, step: int) -> float:
        """From 1 to 0.1 along the plan."""
        return 0.55 + 0.45 * math.cos(math.pi * min(1.0, step / self.length))

    def noisy(self, step: int) -> bool:
        """In the chain."""
        return self.stage(step) == DRAW

    def _cycle(self, step: int) -> int:
        return 0 if self.cycles == 1 else step * self.cycles // self.length

    def _place(self, step: int) -> float:
        return (step * self.cycles % self.length) / self.length

    def _step_at(self, step: int, place: float) -> int:
        if self.cycles == 1:
            return math.floor(place * self.length)
        return math.ceil((self._cycle(step) + place) * self.length / self.cycles)
