"""Who is best in a score, who cannot be told from it, and who is behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .differences import Difference, difference
from .numbers import Score
from .rows import MethodRow


@dataclass(frozen=True)
class Contest:
    """One score of all rows that have it.

    ``leader`` has the best mean, ``level`` are all that cannot be told from it (itself first), ``behind`` those that
    can, the nearest first, and ``unknown`` those whose difference has no error.

    The row that is truly best is among ``level`` in at least 95 of 100 tables: each of the others is left out if it is
    further from the leader than chance gives to one of 20 (rows - 1) pairs of equals (Bonferroni).
    """

    score: Score
    leader: MethodRow
    level: list[MethodRow]
    behind: list[tuple[MethodRow, Difference]]
    unknown: list[MethodRow]

    @property
    def decided(self) -> bool:
        """Whether the leader is ahead of every other by more than the error."""
        return len(self.level) == 1 and not self.unknown

    @property
    def open(self) -> bool:
        """Whether nobody can be told from the leader."""
        return not self.behind

    @property
    def rows(self) -> list[MethodRow]:
        """All of them."""
        return [*self.level, *(row for row, _ in self.behind), *self.unknown]


def contest_of(rows: Sequence[MethodRow], score: Score) -> Contest | None:
    """The contest of a score; None where neither way is better, or fewer than two rows have it."""
    having = [row for row in rows if score.key in row.cells]
    if not score.better or len(having) < 2:
        return None
    sign = 1 if score.better == "high" else -1
    leader = max(having, key=lambda row: sign * row.cells[score.key].mean)
    found = Contest(score, leader, [leader], [], [])
    for row in having:
        if row is leader:
            continue
        apart = difference(row, leader, score.key)
        if apart is not None and apart.error is not None:
            if sign * apart.value < 0 and apart.beyond(len(having) - 1):
                found.behind.append((row, apart))
            else:
                found.level.append(row)
        elif row.cells[score.key].mean == leader.cells[score.key].mean:
            found.level.append(row)
        else:
            found.unknown.append(row)
    found.behind.sort(key=lambda pair: abs(pair[1].value))
    return found
