"""What SWA, SWAG and HWA add to a step: a snapshot at the end of an epoch, a look at the clock in every other step."""

from __future__ import annotations

import bayeswell as bw

from .nets import Net
from .ours import EPOCHS, PLAIN, assembled, plain_step_cases
from .timing import Case, Step

METHODS = ("swa", "swag", "hwa")
SNAPSHOT, OTHER = "{} snapshot", "{} other step"

_FULL_BANK = 25
"""Snapshots taken before any is timed: SWAG then holds all its columns."""
_LOOKS = 1000


def cases(net: Net) -> list[Case]:
    """The deterministic step, and for each method a snapshot and a step without one."""
    found = [case for case in plain_step_cases(net) if case.name == PLAIN]
    for name in METHODS:
        found.append(Case(SNAPSHOT.format(name), lambda name=name: _snapshot(name, net), calls=5))
        found.append(Case(OTHER.format(name), lambda name=name: _other(name, net), calls=_LOOKS))
    return found


def overhead(snapshot: list[float], other: list[float], batches: int) -> list[float]:
    """Round by round, what is added to a step: a snapshot each epoch, and the look in all others; all relative."""
    return [one / batches + (1 - 1 / batches) * rest for one, rest in zip(snapshot, other, strict=True)]


def _snapshot(name: str, net: Net) -> Step:
    parts, _ = assembled(name, net)
    collector, model = parts.collector, parts.model
    assert collector is not None
    last = bw.Progress(net.batches * EPOCHS - 1)
    for _ in range(_FULL_BANK):
        collector.observe(model, last)
    return lambda: collector.observe(model, last)


def _other(name: str, net: Net) -> Step:
    parts, _ = assembled(name, net)
    collector, model = parts.collector, parts.model
    assert collector is not None
    first = bw.Progress(0)
    return lambda: collector.observe(model, first)
