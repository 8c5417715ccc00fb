"""Where the tries are made, and the undisturbed runs that they are compared with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Fault
from .table import Clock, Verdict
from .trial import Whole, cleared, judged, start, whole_run

METHOD = "bbb"
Break = Callable[[random.Random, Path, Whole], tuple[str, Fault]]
"""What is broken in the run of this folder, in words, and how."""


@dataclass
class Bench:
    """Where runs are made, and the undisturbed ones they are compared with."""

    scratch: Path
    seed: int
    whole: dict[tuple[str, ...], Whole] = field(default_factory=dict)

    def rng(self, kind: str, number: int) -> random.Random:
        """Each try draws from a stream of its own."""
        return random.Random(f"{self.seed} {kind} {number}")

    def undisturbed(self, method: str = METHOD, more: tuple[str, ...] = ()) -> Whole:
        key = (method, *more)
        if key not in self.whole:
            self.whole[key] = whole_run(self.scratch / f"whole-{len(self.whole)}", method, more)
        return self.whole[key]

    def with_fault(self, kind: str, clock: Clock, fault: Break) -> Iterator[Verdict]:
        """Runs in whose process something is broken from the beginning."""
        for number in clock.tries():
            whole, folder = self.undisturbed(), self.scratch / f"{kind}-{number}"
            what, broken = fault(self.rng(kind, number), folder, whole)
            ended = start(folder, METHOD, broken).finish()
            yield judged(folder, METHOD, ended, whole.outcome, f"try {number}, {what}")
            cleared(folder)
