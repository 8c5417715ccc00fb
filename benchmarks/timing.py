"""Cases that take turns in one process, so that what the machine does besides meets all of them alike.

A round visits every case once. Rounds start at different cases, and the reference is timed again after every few of
them: a case is compared with the mean of the reference just before and just after it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Step = Callable[[], object]

_GAP = 3
"""Cases between two visits to the reference."""
_GOLDEN = 0.618034


@dataclass(frozen=True)
class Case:
    """Something to time: ``build`` makes it ready, and what it returns is called again and again.

    ``cycle`` is the number of calls after which the work repeats (a penalty in each fourth step): whole cycles are
    timed. ``calls`` is how many calls make one measurement at least, for work too short for the clock; ``settle`` how
    many come before it untimed, to bring its data back into the caches.
    """

    name: str
    build: Callable[[], Step]
    cycle: int = 1
    calls: int = 2
    settle: int = 1

    @property
    def timed(self) -> int:
        """Calls of one measurement: whole cycles."""
        return -(-self.calls // self.cycle) * self.cycle


@dataclass(frozen=True)
class Times:
    """Seconds a call, round by round, of every case and of the reference around it; and the cases that failed."""

    seconds: dict[str, list[float]]
    reference: dict[str, list[float]]
    failed: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """For the record, to a tenth of a microsecond or four digits."""
        return {
            "seconds": {name: [_short(value) for value in values] for name, values in self.seconds.items()},
            "around": {name: [_short(value) for value in values] for name, values in self.reference.items()},
            "failed": self.failed,
        }


def turns(names: Sequence[str], reference: str, number: int, gap: int = _GAP) -> list[str]:
    """The order of one round: the cases from another start each time, the reference around every few of them.

    The start moves by the golden section of the list, so that a few rounds already spread over all of it.
    """
    others = [name for name in names if name != reference]
    start = int(number * _GOLDEN * len(others)) % len(others) if others else 0
    rotated = others[start:] + others[:start]
    order = [reference]
    for position in range(0, len(rotated), gap):
        order += [*rotated[position : position + gap], reference]
    return order


def bracket(order: Sequence[str], seconds: Sequence[float], reference: str) -> dict[str, tuple[float, float]]:
    """Of one round in this order: each case's seconds, and the mean of the nearest references before and after."""
    places = [position for position, name in enumerate(order) if name == reference]
    found = {}
    for position, name in enumerate(order):
        if name == reference:
            continue
        before = seconds[max(place for place in places if place < position)]
        after = seconds[min(place for place in places if place > position)]
        found[name] = (seconds[position], (before + after) / 2)
    return found


def run(
    cases: Sequence[Case],
    reference: str,
    rounds: int,
    warm_up: int = 3,
    say: Callable[[str], None] | None = None,
) -> Times:
    """Build all cases, let them warm up, and time them in turns; one that fails is left out, with the reason."""
    say = say or _say
    ready, failed = build(cases, warm_up)
    for name, reason in failed.items():
        say(f"  {name}: {reason}")
    if reference not in ready:
        raise RuntimeError(f"the reference '{reference}' failed: {failed[reference]}")
    by_name = {case.name: case for case in cases}
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    around: dict[str, list[float]] = {name: [] for name in ready if name != reference}
    gc.collect()
    gc.freeze()  # what was built is not looked through again in the middle of a measurement
    for number in range(rounds):
        order = turns(list(ready), reference, number)
        measured: list[float] = []
        kept: list[str] = []
        for name in order:
            try:
                measured.append(measure(ready[name], by_name[name]))
                kept.append(name)
            except Exception as error:
                failed[name] = one_line(error)
                say(f"  {name}: {failed[name]}")
                del ready[name]
        for name, (own, near) in bracket(kept, measured, reference).items():
            seconds[name].append(own)
            around[name].append(near)
        seconds[reference].append(
            sum(s for n, s in zip(kept, measured, strict=True) if n == reference) / kept.count(reference)
        )
    gc.unfreeze()
    return Times(
        {name: values for name, values in seconds.items() if name not in failed},
        {name: values for name, values in around.items() if name not in failed},
        failed,
    )


def build(cases: Sequence[Case], warm_up: int) -> tuple[dict[str, Step], dict[str, str]]:
    """What can be timed, and what cannot with the reason."""
    ready: dict[str, Step] = {}
    failed: dict[str, str] = {}
    for case in cases:
        try:
            step = case.build()
            for _ in range(warm_up * case.cycle):
                step()
            ready[case.name] = step
        except Exception as error:
            failed[case.name] = one_line(error)
    return ready, failed


def measure(step: Step, case: Case) -> float:
    """Seconds a call."""
    for _ in range(case.settle):
        step()
    began = time.perf_counter()
    for _ in range(case.timed):
        step()
    return (time.perf_counter() - began) / case.timed


def one_line(error: BaseException, length: int = 160) -> str:
    """An error as one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:length]


def from_json(found: Mapping[str, Any]) -> Times:
    """The inverse of ``as_json``."""
    return Times(dict(found["seconds"]), dict(found["around"]), dict(found["failed"]))


def _say(text: str) -> None:
    print(text, flush=True)


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")
