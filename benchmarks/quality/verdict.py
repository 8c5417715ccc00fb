"""One thing that has to be shown, with the words and numbers it is told in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .differences import Mean

MET, NOISE, SHORT, UNKNOWN = "met", "met within noise", "short", "not measured"


@dataclass(frozen=True)
class Verdict:
    """A word, the numbers in a line, and lines about the single cases ("+": good, "-": not)."""

    title: str
    word: str
    numbers: str
    details: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        """Whether it counts as shown."""
        return self.word in {MET, NOISE}


def text(verdict: Verdict) -> str:
    """For a terminal: a line, and the single cases below it."""
    head = f"{verdict.word.upper():16} {verdict.title}: {verdict.numbers}"
    return "\n".join([head, *(f"    {line}" for line in verdict.details)])


def mark(good: bool) -> str:
    """Before the line of a single case."""
    return "+" if good else "-"


def signed(one: Mean) -> str:
    """A difference with its error."""
    return "failed" if not math.isfinite(one.mean) else f"{one.mean:+.3f} ± {one.error:.3f}"
