"""Was training long enough? A run that was still improving at its end says so, with numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_EPOCHS = 8
"""Of fewer nothing can be told."""
GAIN = 0.1
"""What twice the epochs must be expected to gain, in nats per datum, for it to be worth a word. The estimate is good to
a factor of three: measured, 0.08 for 0.02, 0.15 for 0.08, 0.5 for 1.1."""
_STANDARD_ERRORS = 4.0
_MOST = 8
_LEAST_CYCLES = 3


@dataclass(frozen=True)
class Length:
    """How the objective (nats per datum) fell towards the end.

    ``last_third`` is its fall over the last third of the epochs, ``noise`` the standard error of that number, ``gain``
    what twice the epochs are expected to gain, ``factor`` how many times the epochs are needed until another doubling
    gains less than 0.1 (a power of two, 8 if not less); 1 if the run was long enough. Of a run in cycles ``ends`` are
    the objectives at their ends, ``last_third`` is the fall over the last cycle.
    """

    epochs: int
    last_third: float
    noise: float
    gain: float
    factor: int
    ends: tuple[float, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether there is nothing to say."""
        return self.factor == 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line if the run was too short."""
        if self.enough:
            return ()
        times = f"{'more than ' if self.factor == _MOST else 'about '}{self.factor}x"
        if self.ends:
            levels = ", ".join(f"{end:.2f}" for end in self.ends)
            note = f"training was still improving: at the ends of its cycles the objective was {levels} nats per datum"
            return (
                f"{note}, so each cycle is too short for an optimum; {times} the epochs are needed, or fewer cycles",
            )
        note = f"training was still improving: the objective fell by {self.last_third:.2g} nats per datum in the last"
        # No number of epochs: members within a budget have fewer than were asked for, and these are what to multiply.
        return (f"{note} third of {self.epochs} epochs; {times} the epochs are needed",)


def judge_length(objective: Sequence[float], rates: Sequence[float] | None = None) -> Length | None:
    """From the objective of each epoch and its learning rate; None of fewer than eight, and where one is not finite.

    The clock is the sum of the rates (a rate that falls to zero makes the last epochs flat, whatever is left to learn).
    Learning curves fall like powers of that time, if they still fall: with D0 the fall between a quarter and half of it
    and D1 the fall over its second half, twice the time gains about D1^2 / D0. A falling rate also lowers the
    objective by the noise that it takes away, which is no reason to train longer. So the gain is at most D0, which that
    hardly touches, and at most what the slope of the last third makes of it, ln 2 times the whole time. Values are
    means over a tenth of the epochs; their noise is that of second differences, which a smooth curve hardly has. The
    falls must be four standard errors.

    A rate that restarts makes a saw of the curve, whose teeth are no noise: the ends of cycles are looked at instead
    (of three and more), each with the same share of the clock; every cycle must end lower than the one before it.
    """
    epochs = len(objective)
    if epochs < LEAST_EPOCHS or not all(map(math.isfinite, objective)):
        return None
    if rates is not None and len(rates) == epochs:
        ends = tuple(objective[last] for last in _cycle_ends(rates))
        if len(ends) >= _LEAST_CYCLES:
            return _judge_cycles(epochs, ends)
    clock = _clock(epochs, rates)
    width = max(1, round(epochs / 10))

    def level(stop: int) -> float:
        stop = max(width, stop)
        return sum(objective[stop - width : stop]) / width

    def reached(share: float) -> int:
        return next(index for index, time in enumerate(clock, 1) if time >= share * clock[-1] * (1 - 1e-9))

    third = round(2 * epochs / 3)
    quarter, half, two_thirds, end = (level(stop) for stop in (reached(0.25), reached(0.5), third, epochs))
    early, late = _spread(objective[reached(0.25) - 1 : third]), _spread(objective[epochs // 2 :])
    noise, error = late * math.sqrt(2 / width), max(early, late) * math.sqrt(2 / width)
    first, second, last_third = quarter - half, half - end, two_thirds - end
    certain = last_third > _STANDARD_ERRORS * noise and min(first, second) > _STANDARD_ERRORS * error
    slope = last_third / max(1e-9, 1 - clock[third - 1] / clock[-1])
    share = min(1.0, second / first) if certain else 0.0
    gain = min(second * share, first, math.log(2) * slope) if certain else 0.0
    return Length(epochs, last_third, noise, gain, _times(gain, share))


def _times(gain: float, share: float) -> int:
    """How many times the epochs, if the next doubling gains so much and each further one that share of the last."""
    factor = 1
    while gain > GAIN and factor < _MOST:
        factor, gain = 2 * factor, gain * min(share, 0.9)
    return factor


def _cycle_ends(rates: Sequence[float]) -> list[int]:
    """The epochs after which the rate starts anew, and the last one; a warm-up has not fallen before it climbs."""
    restarts = [
        epoch
        for epoch, (now, then) in enumerate(itertools.pairwise(rates))
        if then > 2 * now and now < 0.5 * max(rates[: epoch + 1])
    ]
    return [*restarts, len(rates) - 1]


def _judge_cycles(epochs: int, ends: tuple[float, ...]) -> Length:
    """By the same rule, the ends joined by straight lines in the logarithm of time (1 at the end of the first)."""
    falls = [before - after for before, after in itertools.pairwise(ends)]

    def level(time: float) -> float:
        before = min(int(time), len(ends) - 1)
        along = math.log(time / before) / math.log((before + 1) / before)
        return ends[before - 1] - along * falls[before - 1]

    half = level(len(ends) / 2)
    first, second = level(max(1.0, len(ends) / 4)) - half, half - ends[-1]
    share = min(1.0, second / first) if min(falls) > 0 else 0.0
    gain = max(0.0, min(second * share, math.log(2) * falls[-1] * len(ends)))
    return Length(epochs, falls[-1], 0.0, gain, _times(gain, share), ends)


def _clock(epochs: int, rates: Sequence[float] | None) -> list[float]:
    """The sum of the rates up to each epoch; the number of epochs where there are none."""
    usable = rates is not None and len(rates) == epochs and all(rate >= 0 for rate in rates) and sum(rates) > 0
    found, total = [], 0.0
    for rate in rates if usable and rates is not None else [1.0] * epochs:
        total += rate
        found.append(total)
    return found


def _spread(values: Sequence[float]) -> float:
    """The std of the noise on a smooth curve: second differences have six times its variance."""
    bends = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return math.sqrt(sum(bend**2 for bend in bends) / (6 * len(bends))) if bends else 0.0
