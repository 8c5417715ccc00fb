"""Cases that take turns in one process, and medians of their ratios to a reference.

A round visits every case once, from another start each time, and times the reference again after every third case. A
case is divided by the mean of the reference just before and just after it, so that other work on the machine affects
both alike.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Step = Callable[[], object]

GAP = 3
RESAMPLES = 500
GOLDEN = 0.618034


@dataclass(frozen=True)
class Case:
    """A step to time.

    Args:
        build: makes the step ready.
        cycle: number of calls after which the work repeats; whole cycles are timed.
        calls: at least so many calls make one measurement.
        settle: calls before it that are not timed.
    """

    name: str
    build: Callable[[], Step]
    cycle: int = 1
    calls: int = 2
    settle: int = 1


@dataclass(frozen=True)
class Summary:
    """Median of the ratios and its bootstrap standard error."""

    median: float
    error: float


def summarize(values: Sequence[float]) -> Summary:
    source = random.Random(0)
    medians = [statistics.median(source.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return Summary(statistics.median(values), statistics.stdev(medians))


def seconds_of(step: Step, case: Case) -> float:
    """Return the seconds of one call."""
    for _ in range(case.settle):
        step()
    calls = -(-case.calls // case.cycle) * case.cycle
    begin = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - begin) / calls


def build_all(cases: Sequence[Case], warm_up: int) -> tuple[dict[str, Step], dict[str, str]]:
    """Return the steps that can be built, and the reasons of those that cannot."""
    ready: dict[str, Step] = {}
    failed: dict[str, str] = {}
    for case in cases:
        try:
            step = case.build()
            for _ in range(warm_up * case.cycle):
                step()
            ready[case.name] = step
        except Exception as error:
            failed[case.name] = f"{type(error).__name__}: {' '.join(str(error).split()):.120}"
    return ready, failed


def order_of(names: Sequence[str], reference: str, number: int) -> list[str]:
    """Return the order of one round: cases from a moving start, the reference around every few of them."""
    others = [name for name in names if name != reference]
    start = int(number * GOLDEN * len(others)) % len(others) if others else 0
    rotated = others[start:] + others[:start]
    order = [reference]
    for position in range(0, len(rotated), GAP):
        order += [*rotated[position : position + GAP], reference]
    return order


def measure(
    cases: Sequence[Case], reference: str, rounds: int, warm_up: int = 3
) -> tuple[dict[str, Summary], dict[str, str]]:
    """Return the ratios of all cases to the reference, and the cases that failed with their reasons."""
    ready, failed = build_all(cases, warm_up)
    by_name = {case.name: case for case in cases}
    ratios: dict[str, list[float]] = {name: [] for name in ready if name != reference}
    gc.collect()
    gc.freeze()
    for number in range(rounds):
        order = order_of(list(ready), reference, number)
        seconds = [seconds_of(ready[name], by_name[name]) for name in order]
        places = [position for position, name in enumerate(order) if name == reference]
        for position, name in enumerate(order):
            if name == reference:
                continue
            before = seconds[max(place for place in places if place < position)]
            after = seconds[min(place for place in places if place > position)]
            ratios[name].append(seconds[position] / ((before + after) / 2))
    gc.unfreeze()
    return {name: summarize(values) for name, values in ratios.items()}, failed
