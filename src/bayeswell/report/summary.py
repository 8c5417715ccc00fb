"""Runs side by side: those that differ by their seed alone are one row, and rows on the same data are one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..metrics import estimate_over_seeds
from .numbers import HEADLINE, SCORES, Score, number, scores_of, seconds_of, shown
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
                }
                for key, cell in row.cells.items()
            }
            rows.append({"method": row.label, "scores": scores})
        return {"rows": rows}


def tables_of(runs: Sequence[RunRecord]) -> list[Table]:
    """The runs in order, put into rows and tables, with the best of each score marked."""
    grouped: dict[str, dict[str, MethodRow]] = {}
    for run in runs:
        key = json.dumps([run.label or run.method, _settings(run)], sort_keys=True, default=str)
        rows = grouped.setdefault(run.data, {})
        if key in rows and run.seed is not None and run.repeat in {other.repeat for other in rows[key].runs}:
            key = f"{key} {run.path}"  # the same run again says nothing of other seeds: a row of its own
        rows.setdefault(key, MethodRow(run.label or run.method, [])).runs.append(run)
    return [_table(data, list(rows.values())) for data, rows in grouped.items()]


def _settings(run: RunRecord) -> Any:
    """What makes runs the same but for their seed; a run without settings is like no other."""
    if not run.experiment:
        return str(run.path)
    return {name: value for name, value in run.experiment.items() if name not in ("seed", "fold")}


def _table(data: str, rows: list[MethodRow]) -> Table:
    labels = [row.label for row in rows]
    for row in rows:
        if labels.count(row.label) > 1:
            row.label = f"{row.label} ({row.first.name})"
        row.cells = _cells(row.runs)
    for score in SCORES:
        _mark(score, rows)
    return Table(data, rows, [score for score in SCORES if any(score.key in row.cells for row in rows)])


def _cells(runs: Sequence[RunRecord]) -> dict[str, Cell]:
    found = [scores_of(run) for run in runs]
    cells = {}
    for score in SCORES:
        values = [values[score.key] for values, _ in found if score.key in values]
        if not values:
            continue
        errors = [errors[score.key] for _, errors in found if score.key in errors]
        mean = estimate_over_seeds(
            by_fold(values, [run for run, (own, _) in zip(runs, found, strict=True) if score.key in own])
        )
        over_examples = sum(errors) / len(errors) if errors else None
        cells[score.key] = Cell(mean.value, mean.error, over_examples, repeats=repeats_of(runs))
    return cells


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


def _mark(score: Score, rows: Sequence[MethodRow]) -> None:
    having = [row for row in rows if score.key in row.cells]
    if not score.better or len(having) < 2:
        return
    choose = max if score.better == "high" else min
    best = choose(row.cells[score.key].mean for row in having)
    for row in having:
        cell = row.cells[score.key]
        if cell.mean == best:
            row.cells[score.key] = replace(cell, best=True)
