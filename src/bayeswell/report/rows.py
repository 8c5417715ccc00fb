"""Rows of a table: one choice of settings with its runs, and what each score is over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .numbers import HEADLINE, Score, number, seconds_of, shown
from .reading import RunRecord, mapping


@dataclass(frozen=True)
class Cell:
    """A mean over seeds or folds (``repeats``), its standard error over them, and one run's over test examples."""

    mean: float
    over_seeds: float | None
    over_examples: float | None
    best: bool = False
    repeats: str = "seeds"

    @property
    def text(self) -> str:
        """As it is shown."""
        return shown(self.mean)

    @property
    def errors(self) -> list[tuple[str, str]]:
        """What each error is over, and the error."""
        found = ((self.repeats, self.over_seeds), ("examples", self.over_examples))
        return [(over, f"{error:.2g}") for over, error in found if error is not None]


@dataclass
class MethodRow:
    """One choice of settings with its runs."""

    label: str
    runs: list[RunRecord]
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def first(self) -> RunRecord:
        """The run that pictures of the row show: the first that was inspected, else the first."""
        return next((run for run in self.runs if run.inspection), self.runs[0])

    @property
    def cost(self) -> float | None:
        """Forward passes of a batch in all."""
        return number(mapping(self.first.result.get("cost")).get("total"))

    @property
    def kept(self) -> float | None:
        """Numbers that the posterior keeps: what it takes of memory, over four bytes."""
        return number(self.first.result.get("variational_parameters"))

    @property
    def is_bayesian(self) -> bool:
        """Whether it predicts by more than one network."""
        result = self.first.result
        return (number(result.get("draws")) or 0) > 1 or (number(result.get("std_ratio")) or 0) > 0

    @property
    def seconds(self) -> float | None:
        """Mean training time of the runs that were timed."""
        timed = [seconds for seconds in map(seconds_of, self.runs) if seconds is not None]
        return sum(timed) / len(timed) if timed else None


@dataclass
class Table:
    """All rows of one data set."""

    data: str
    rows: list[MethodRow]
    scores: list[Score] = field(default_factory=list)

    @property
    def headline(self) -> list[Score]:
        """The scores that a summary has room for."""
        return [score for score in self.scores if score.key in HEADLINE]

    @property
    def seeds(self) -> int:
        """The most runs that a row has."""
        return max(len(row.runs) for row in self.rows)

    @property
    def repeats(self) -> str:
        """What the rows are means over."""
        return repeats_of([run for row in self.rows for run in row.runs])

    @property
    def comparison(self) -> dict[str, Any]:
        """As ``comparison.json`` has it: what the plot of a comparison draws."""
        rows = []
        for row in self.rows:
            scores = {
                {"ood_auroc_entropy": "auroc"}.get(key, key): {
                    "mean": cell.mean,
                    "standard_error_over_seeds": cell.over_seeds,
                    "standard_error_over_examples": cell.over_examples,
                    **({"best": True} if cell.best else {}),
                }
                for key, cell in row.cells.items()
            }
            rows.append({"method": row.label, "scores": scores})
        return {"rows": rows}


def repeats_of(runs: Sequence[RunRecord]) -> str:
    """What the runs of a row repeat: "folds", or "seeds"."""
    return "folds" if any(run.repeat[1] for run in runs) else "seeds"


def by_fold(values: Sequence[float], runs: Sequence[RunRecord]) -> list[float]:
    """Of runs on folds the mean of each fold over its seeds: seeds of one fold say nothing of other examples."""
    folds = {run.repeat[1] for run in runs}
    if folds <= {""}:
        return list(values)
    groups = [
        [value for value, run in zip(values, runs, strict=True) if run.repeat[1] == fold] for fold in sorted(folds)
    ]
    return [sum(group) / len(group) for group in groups]
