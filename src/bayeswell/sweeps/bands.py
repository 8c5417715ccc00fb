"""The learning curves of all trials as one: at each epoch the median and the quartiles over trials.

A trial that failed counts as worse than any other from the epoch on that it did not reach: left out, the settings that
diverge would make the others look like all. Where a quartile lies among those it is beyond every number: None. A trial
that ended well after fewer epochs than others counts as long as it ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..training.run_folder import RunFolder
from .definition import TRIALS
from .results import COMPLETE, FAILED, SweepResult, TrialRecord

QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def bands_of(result: SweepResult, folder: Path, score: str) -> dict[str, Any] | None:
    """Median and quartiles of a score of each epoch (``validation.nll``) over the trials whose runs are in the folder.

    With several runs of a trial (seeds, members of an ensemble) its curve is their mean. ``trials`` is how many count
    at each epoch, ``failed`` how many of all did, ``elsewhere`` how many ended on other machines and are not in it.
    None if no epoch of any trial has the score.
    """
    ended = [trial for trial in result.trials if trial.state in (COMPLETE, FAILED)]
    here = [trial for trial in ended if _folder(folder, trial).is_dir()]
    curves = {trial.number: _curve(_folder(folder, trial), score) for trial in here}
    epochs = sorted({epoch for curve in curves.values() for epoch in curve})
    if not epochs:
        return None
    sign = 1.0 if result.direction == "minimize" else -1.0
    columns: dict[str, list[Any]] = {name: [] for name in (*QUARTILES, "trials")}
    for epoch in epochs:
        known = [curves[trial.number].get(epoch, math.inf if trial.state == FAILED else None) for trial in here]
        # What is worse is larger, so that failures lie at the far end.
        values = sorted(sign * one if math.isfinite(one) else math.inf for one in known if one is not None)
        for name, share in QUARTILES.items():
            found = quantile(values, share if sign > 0 else 1 - share)
            columns[name].append(sign * found if math.isfinite(found) else None)
        columns["trials"].append(len(values))
    failed = sum(trial.state == FAILED for trial in here)
    return {"score": score, "direction": result.direction, "epochs": epochs, **columns, "failed": failed,
            "elsewhere": len(ended) - len(here)}  # fmt: skip


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted numbers, straight between the two nearest (as numpy has it); infinite as soon as one of them is."""
    place = (len(values) - 1) * share
    low = math.floor(place)
    part = place - low
    if part == 0 or math.isinf(values[low]):
        return values[low]
    return values[low + 1] if math.isinf(values[low + 1]) else (1 - part) * values[low] + part * values[low + 1]


def _folder(folder: Path, trial: TrialRecord) -> Path:
    return folder / TRIALS / f"{trial.number:04d}"


def _curve(trial: Path, score: str) -> dict[int, float]:
    """A trial's score by epoch, of the epochs that all of its runs have; one that is no number is infinite."""
    runs = [place for place in sorted(trial.glob("seed*")) if place.is_dir()] or [trial]
    tables = [_epochs(run, score) for run in runs]
    shared = set.intersection(*(set(table) for table in tables))
    return {epoch: math.fsum(table[epoch] for table in tables) / len(tables) for epoch in sorted(shared)}


def _epochs(run: Path, score: str) -> dict[int, float]:
    """A run's score by epoch, the mean over its members."""
    try:
        rows = RunFolder(run).epochs()
    except FileError:  # it failed before it had any
        return {}
    found: dict[int, list[float]] = {}
    for row in rows:
        if score in row:
            found.setdefault(int(row["epoch"]), []).append(_number(row, score))
    return {epoch: math.fsum(values) / len(values) for epoch, values in found.items()}


def _number(row: Mapping[str, Any], score: str) -> float:
    value = row[score]
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.inf
