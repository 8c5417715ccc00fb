"""Runs side by side: those that differ by their seed alone are one row, and rows on the same data are one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..metrics import estimate_over_seeds
from .numbers import SCORES, Score, scores_of
from .ranking import contest_of
from .reading import RunRecord
from .rows import Cell, MethodRow, Table, by_fold, repeats_of

__all__ = ["Cell", "MethodRow", "Table", "tables_of"]


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


def _mark(score: Score, rows: Sequence[MethodRow]) -> None:
    """Mark the best, and all that cannot be told from it."""
    contest = contest_of(rows, score)
    for row in contest.level if contest is not None else ():
        row.cells[score.key] = replace(row.cells[score.key], best=True)
