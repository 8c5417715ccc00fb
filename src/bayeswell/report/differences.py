"""How far two rows of a table are apart, in pairs: seed by seed, and test example by test example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

from ..metrics.fisher import fisher_quantile
from .numbers import number, scores_of
from .reading import RunRecord, mapping
from .rows import MethodRow, by_fold, repeats_of

CHANCE = 0.05
"""How many of equal pairs are called different."""
_MANY = 500.0


@dataclass(frozen=True)
class Difference:
    """A score of one row less that of another; ``over`` says what its standard error is over.

    ``freedom`` are the degrees of freedom of the error: few seeds tell little of it.
    """

    value: float
    error: float | None
    over: str
    freedom: float = math.inf

    @property
    def told(self) -> bool:
        """Whether it is more than chance gives to one of twenty equal pairs; without an error nobody can say."""
        return self.beyond()

    def beyond(self, looks: int = 1) -> bool:
        """The same among so many looks: one in twenty such sets at most finds what is not there (Bonferroni)."""
        return self.error is not None and abs(self.value) > self.limit(looks) * self.error

    def limit(self, looks: int = 1) -> float:
        """Standard errors that such a difference must exceed: 1.96 for many examples, 4.3 for three seeds."""
        return student_quantile(CHANCE / looks, self.freedom)


@cache
def student_quantile(tail: float, freedom: float) -> float:
    """x with P(|t| > x) = tail, t of Student's distribution: t^2 is Fisher's F of 1 and ``freedom`` degrees."""
    if freedom > _MANY:
        return NormalDist().inv_cdf(1 - tail / 2)
    return math.sqrt(fisher_quantile(tail, 1, freedom))


def difference(row: MethodRow, base: MethodRow, score: str) -> Difference | None:
    """The mean over the seeds that both have, of ``row`` less ``base``; None where either does not have the score.

    Standard errors: of one seed std(a - b) / sqrt(n), a and b what each of the n test examples adds to the scores;
    where that was not kept, sqrt(error_a^2 + error_b^2), as if the examples were not the same. Of several seeds
    std(d) / sqrt(seeds), d the differences at the same seed (split, start and order of the data), and, where all seeds
    have the same test examples, with that of the examples' mean differences over seeds: sqrt(e_seeds^2 +
    e_examples^2). What is of both a seed and an example then counts twice, so that the sum is a little too large.
    """
    pairs = [(one, other) for one, other in _pairs(row, base) if _has(one, score) and _has(other, score)]
    if not pairs:
        return None
    ours = [one for one, _ in pairs]
    values = by_fold([scores_of(one)[0][score] - scores_of(other)[0][score] for one, other in pairs], ours)
    mean = math.fsum(values) / len(values)
    examples = _over_examples(pairs, score)
    if len(values) > 1:
        seeds, repeats = _error(values), repeats_of(ours)
        assert seeds is not None
        if examples is None or repeats == "folds":
            return Difference(mean, seeds, f"{len(values)} {repeats}", len(values) - 1)
        parts = ((seeds, len(values) - 1.0), examples)
        over = f"the same test examples and {len(values)} {repeats}"
        return Difference(mean, math.hypot(seeds, examples[0]), over, _freedom(parts))
    if examples is not None:
        return Difference(mean, examples[0], "the same test examples", examples[1])
    errors = [scores_of(run)[1].get(score) for run in pairs[0]]
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


def _over_examples(pairs: Sequence[tuple[RunRecord, RunRecord]], score: str) -> tuple[float, float] | None:
    """The standard error over examples of their mean differences, and its degrees of freedom.

    A score of two sides (inside, outside) has one part from each. None where not all pairs have the same examples.
    """
    if len(pairs) > 1 and len({_data(one) for one, _ in pairs} - {None}) != 1:
        return None
    parts: list[tuple[float, float]] = []
    for side in (score, f"{score}.outside"):
        columns = [_numbers(mapping(run.inspection.get("by_example")).get(side)) for pair in pairs for run in pair]
        if parts and not any(columns):
            break
        known = [column for column in columns if column is not None]
        if len(known) < len(columns) or len({len(column) for column in known}) != 1:
            return None
        apart = [
            math.fsum(ours) - math.fsum(theirs)
            for ours, theirs in zip(zip(*known[::2], strict=True), zip(*known[1::2], strict=True), strict=True)
        ]
        error = _error([value / len(pairs) for value in apart])
        if error is None:
            return None
        parts.append((error, len(apart) - 1.0))
    return math.hypot(*(error for error, _ in parts)), _freedom(parts)


def _freedom(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of errors whose squares add up (Satterthwaite 1946): (sum e^2)^2 / sum (e^4 / freedom)."""
    below = math.fsum(error**4 / freedom for error, freedom in parts)
    return math.fsum(error**2 for error, _ in parts) ** 2 / below if below > 0 else min(part[1] for part in parts)


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
