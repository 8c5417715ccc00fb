"""What became of the tries: one row for each kind of fault, and how long each kind may take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

ALIKE, REFUSED, LOST = "alike", "refused", "lost"


@dataclass(frozen=True)
class Verdict:
    """What became of one try, or of ``tries`` of the same kind; ``why`` says what was lost."""

    kind: str
    why: str = ""
    tries: int = 1


@dataclass
class Row:
    """The tries of one kind: went on and ended alike, refused by one clear line and alike after it, or lost."""

    tries: int = 0
    alike: int = 0
    refused: int = 0
    lost: int = 0

    def add(self, verdict: Verdict) -> None:
        self.tries += verdict.tries
        setattr(self, verdict.kind, getattr(self, verdict.kind) + verdict.tries)


@dataclass(frozen=True)
class Clock:
    """The time that a kind has; one try is made in any case, unless none is wanted."""

    until: float
    count: int

    def tries(self) -> Iterator[int]:
        """The numbers of the tries that there is time for."""
        for number in range(self.count):
            if number and time.monotonic() > self.until:
                return
            yield number

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its tries, its share of the time, and how many tries are wanted at the most."""

    tries: Callable[[Clock], Iterable[Verdict]]
    share: float
    count: int


def run_kinds(kinds: Mapping[str, Kind], seconds: float) -> dict[str, Row]:
    """Try every kind within its share of what time is left, telling of each loss as it comes."""
    end = time.monotonic() + seconds
    table: dict[str, Row] = {}
    waiting = dict(kinds)
    for name, kind in kinds.items():
        share = kind.share / sum(other.share for other in waiting.values())
        del waiting[name]
        left = max(0.0, end - time.monotonic())
        row = table[name] = Row()
        began = time.monotonic()
        for verdict in kind.tries(Clock(began + share * left, kind.count)):
            row.add(verdict)
            if verdict.kind == LOST:
                print(f"lost, {name}: {verdict.why}", flush=True)
        print(f"{line(name, row)}   {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return table


def line(name: str, row: Row) -> str:
    """One row of the table."""
    return f"{name:<16}| {row.tries:>7} | {row.alike:>7} | {row.refused:>15} | {row.lost:>6}"


def shown(table: Mapping[str, Row]) -> str:
    """The table, and what all tries come to."""
    head = f"{'kind':<16}| {'tries':>7} | {'alike':>7} | {'refused clearly':>15} | {'lost':>6}"
    names = ("tries", "alike", "refused", "lost")
    total = Row(*(sum(getattr(row, name) for row in table.values()) for name in names))
    rows = [line(name, row) for name, row in [*table.items(), ("all", total)]]
    return "\n".join([head, "-" * len(head), *rows])


def lost(table: Mapping[str, Row]) -> int:
    """How many tries were lost; a kind that was never tried is lost too."""
    return sum(row.lost for row in table.values()) + sum(row.tries == 0 for row in table.values())
