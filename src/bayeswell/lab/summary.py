"""Texts of the commands about one run: its summary, its scores and its predictions."""

from __future__ import annotations

import os
from typing import Any

import pandas

from ..metrics import SCORES
from ..metrics.scores import find_score
from ..prediction import ClassPrediction, Evaluation, RealPrediction
from .measure import RunRecord
from .terminal import WIDTH, printable, table_text

MOST_ROWS = 20
"""Predictions shown on a terminal."""


def run_summary(record: RunRecord, folder: str | os.PathLike[str]) -> str:
    """Return three lines: the gain over a constant prediction, the cost, and the folder."""
    second = "accuracy" if "accuracy" in record.scores else "rmse"
    keys = [key for key in ("nll", second) if key in record.scores]
    gains = ", ".join(f"{SCORES[key].heading} {record.scores[key]}" for key in keys)
    constant = ", ".join(f"{record.baseline[key]:.3g}" for key in keys if key in record.baseline)
    cost, threads = record.cost, record.cost["threads"]
    checks = "passed" if record.ok else f"{sum(check['ok'] is False for check in record.checks)} failed"
    return "\n".join(
        [
            f"test    {gains}" + (f" (constant: {constant})" if constant else ""),
            f"cost    {cost['relative']:.3g}x ordinary training, {cost['seconds']:.1f} s on {threads} "
            f"thread{'' if threads == 1 else 's'}; checks: {checks}",
            f"folder  {folder}",
        ]
    )


def evaluation_text(found: Evaluation, title: str) -> str:
    """Return a table of scores with their standard errors."""
    rows = []
    for key, value in found.scores.items():
        score = find_score(key.partition(".")[0])
        better = {"lower": "lower is better", "higher": "higher is better"}.get(score.direction, "")
        rows.append([" ".join([score.heading, *key.split(".")[1:]]), str(value), score.unit, better])
    counts = f"{found.examples:,} examples, {found.draws} draws, prediction {found.prediction}"
    return table_text(["score", "value", "unit", ""], rows, WIDTH, title=f"{title}: {counts}")


def printable_frame(found: ClassPrediction | RealPrediction, interval: float) -> pandas.DataFrame:
    """Return predictions as a DataFrame; names of classes are free of control characters."""
    frame = found.frame(interval or None) if isinstance(found, RealPrediction) else found.frame()
    frame.columns = [printable(str(name)) for name in frame.columns]
    for name in frame.columns:
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].map(lambda cell: printable(str(cell)))
    return frame


def prediction_text(frame: pandas.DataFrame, width: int = WIDTH) -> str:
    """Return the first predictions as a table for a terminal."""
    shown = frame.head(MOST_ROWS)
    names = sorted(frame.columns, key=lambda name: str(name).startswith("p_"))  # Probabilities come last.
    rows = [[str(place), *(_cell(row[name]) for name in names)] for place, (_, row) in enumerate(shown.iterrows())]
    text = table_text(["row", *map(str, names)], rows, width)
    left = len(frame) - len(shown)
    return text if left <= 0 else f"{text}\n{left:,} more rows; --out FILE.csv writes all"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
