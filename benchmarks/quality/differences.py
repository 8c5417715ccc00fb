"""Means over seeds, and differences to the control at the same seeds, with their standard errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .lengths import FACTORS, longer, parted
from .plan import CONTROL

Line = Mapping[str, Any]
_SPARE = 1.1
"""A method may cost so much more than the control that it is compared with at equal cost."""


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error over seeds; the error of a single number is not known (NaN)."""

    mean: float
    error: float
    count: int

    @property
    def within_noise(self) -> bool:
        """Whether it is at most zero within two standard errors."""
        return self.mean <= (2 * self.error if math.isfinite(self.error) else 0.0)

    def above(self, limit: float) -> bool:
        """Whether it is above the limit by more than two standard errors."""
        return self.mean - (2 * self.error if math.isfinite(self.error) else 0.0) > limit


def mean_of(values: Sequence[float]) -> Mean:
    """Infinite if any of them is not a number: a run that diverged is not averaged away."""
    if any(not math.isfinite(value) for value in values):
        return Mean(math.inf, 0.0, len(values))
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Mean(statistics.fmean(values), error, len(values))


@dataclass(frozen=True)
class Results:
    """The measured lines by problem, method and seed."""

    lines: Mapping[tuple[str, str], Mapping[int, Line]]

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Results:
        found: dict[tuple[str, str], dict[int, Line]] = {}
        for line in lines:
            found.setdefault((line["problem"], line["method"]), {})[line["seed"]] = line
        return cls(found)

    def at(self, problem: str, method: str) -> Mapping[int, Line]:
        """By seed; empty if nothing was measured."""
        return self.lines.get((problem, method), {})

    def score(self, problem: str, method: str, metric: str) -> Mean | None:
        """Over all seeds; infinite where a run failed."""
        lines = self.at(problem, method).values()
        values = [_value(line, metric) for line in lines if "error" in line or metric in line]
        return mean_of(values) if values else None

    def difference(self, problem: str, method: str, metric: str = "nll") -> Mean | None:
        """To the control at the same seeds: the mean of the paired differences, and its standard error."""
        pairs = self.pairs(problem, method, metric)
        return mean_of(list(pairs.values())) if pairs else None

    def pairs(self, problem: str, method: str, metric: str = "nll") -> dict[int, float]:
        """The difference at each seed that both were measured at."""
        own, control = self.at(problem, method), self.at(problem, CONTROL)
        return {
            seed: _value(own[seed], metric) - _value(control[seed], metric)
            for seed in sorted(own)
            if seed in control and metric in control[seed] and (metric in own[seed] or "error" in own[seed])
        }

    def methods(self, problems: Sequence[str], peers: bool = False) -> list[str]:
        """Every method that was measured on one of these problems at its epochs, the control first."""
        found = dict.fromkeys(method for (problem, method) in self.lines if problem in problems)
        kept = [one for one in found if one.startswith("peer: ") == peers and parted(one).ordinary]
        return sorted(kept, key=lambda name: name != CONTROL)

    def shortened(self, problems: Sequence[str]) -> list[str]:
        """Every method that was measured on one of these problems at the cost of one ordinary training."""
        found = dict.fromkeys(method for (problem, method) in self.lines if problem in problems)
        return [one for one in found if parted(one).shortened]

    def problems(self, among: Sequence[str]) -> list[str]:
        """Those of some problems that anything was measured on."""
        return [name for name in among if any(problem == name for (problem, _) in self.lines)]


def _value(line: Line, metric: str) -> float:
    return math.inf if "error" in line else float(line[metric])


def at_equal_cost(found: Results, problem: str, method: str) -> tuple[Mean, int] | None:
    """NLL above that of the control trained for as many passes, in pairs over seeds, and the factor of its epochs."""
    own = found.at(problem, method)
    passes = [line["passes"] for line in own.values() if "passes" in line]
    if not passes:
        return None
    for factor in (1, *FACTORS):
        if max(passes) <= factor * _SPARE:
            other = found.at(problem, CONTROL if factor == 1 else longer(CONTROL, factor))
            pairs = [
                own[seed]["nll"] - other[seed]["nll"]
                for seed in own if seed in other and "nll" in own[seed] and "nll" in other[seed]
            ]  # fmt: skip
            return (mean_of(pairs), factor) if pairs else None
    return None
