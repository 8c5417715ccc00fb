"""How far two rows of a table are apart, in pairs: seed by seed, or one seed's test examples one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .numbers import number, scores_of
from .reading import RunRecord, mapping
from .summary import MethodRow, by_fold, repeats_of

SIGNIFICANT = 2.0
"""Standard errors beyond which a difference is called one."""


@dataclass(frozen=True)
class Difference:
    """A score of one row less that of another; ``over`` says what its standard error is over."""

    value: float
    error: float | None
    over: str

    @property
    def told(self) -> bool:
        """Whether it is more than chance would often give; without a standard error nobody can say."""
        return self.error is not None and abs(self.value) > SIGNIFICANT * self.error


def difference(row: MethodRow, base: MethodRow, score: str) -> Difference | None:
    """The mean over the seeds that both have, of ``row`` less ``base``; None where either does not have the score.

    Standard errors: of several seeds std(d) / sqrt(seeds), d the differences at the same seed (split, start and order
    of the data). Of one seed std(a - b) / sqrt(n), a and b what each of the n test examples adds to the scores; where
    that was not kept, sqrt(error_a^2 + error_b^2), as if the examples were not the same.
    """
    pairs = [(one, other) for one, other in _pairs(row, base) if _has(one, score) and _has(other, score)]
    if not pairs:
        return None
    ours = [one for one, _ in pairs]
    values = by_fold([scores_of(one)[0][score] - scores_of(other)[0][score] for one, other in pairs], ours)
    mean = math.fsum(values) / len(values)
    if len(values) > 1:
        return Difference(mean, _error(values), f"{len(values)} {repeats_of(ours)}")
    one, other = pairs[0]
    paired = _paired_error(one, other, score)
    if paired is not None:
        return Difference(mean, paired, "the same test examples")
    errors = [scores_of(run)[1].get(score) for run in (one, other)]
    known = [error for error in errors if error is not None]
    return Difference(mean, math.hypot(*known) if len(known) == 2 else None, "test examples, not in pairs")


def _pairs(row: MethodRow, base: MethodRow) -> list[tuple[RunRecord, RunRecord]]:
    """Runs of the same seed on the same data (and the same fold)."""
    others = {run.repeat: run for run in reversed(base.runs)}
    found = [(run, others[run.repeat]) for run in row.runs if run.repeat in others]
    return [pair for pair in found if _data(pair[0]) == _data(pair[1])]


def _data(run: RunRecord) -> Any:
    return mapping(run.config.get("problem")).get("data_sha256")


def _has(run: RunRecord, score: str) -> bool:
    return score in scores_of(run)[0]


def _paired_error(one: RunRecord, other: RunRecord, score: str) -> float | None:
    """The standard error over examples; a score of two sides (inside, outside) has one part from each."""
    squares: list[float] = []
    for side in (score, f"{score}.outside"):
        first, second = (_numbers(mapping(run.inspection.get("by_example")).get(side)) for run in (one, other))
        if first is None and second is None and squares:
            break
        if first is None or second is None or len(first) != len(second):
            return None
        error = _error([a - b for a, b in zip(first, second, strict=True)])
        if error is None:
            return None
        squares.append(error**2)
    return math.sqrt(math.fsum(squares))


def _numbers(values: Any) -> list[float] | None:
    found = [number(value) for value in values] if isinstance(values, list) else []
    known = [value for value in found if value is not None]
    return known if known and len(known) == len(found) else None


def _error(values: Sequence[float]) -> float | None:
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
