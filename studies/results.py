"""Results of a study: one JSON object for each run, a line each; lines are only added."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bayeswell
from bayeswell.core.errors import FileError
from bayeswell.lab.measure import RunRecord

from .definition import Cell, Point

UNTRAINED = "untrained"
"""Scale of the lines of what needs no training: counts of parameters and times of steps."""
MOST_POINTS = 60
PARTS = ("first", "half", "last")
STEPS = {"snr": "snr.step", "snr_median": "snr.step", "average": "average.epoch"}
"""Curves that are not taken at the end of each epoch, by the first word of their name."""


@dataclass(frozen=True)
class Line:
    """One run: its scores, and curves along training; ``error`` if it failed."""

    scale: str
    cell: str
    at: Mapping[str, Any]
    seed: int
    scores: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        return tuple((path, tuple(v) if isinstance(v, list) else v) for path, v in sorted(self.at.items()))


def read_lines(path: Path) -> list[Line]:
    """Return the runs of a file; of the same run the last one that did not fail."""
    if not path.exists():
        return []
    kept: dict[Any, Line] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = Line(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise FileError(f"{path}, line {number}, is no result of a study: {error}") from error
        key = (line.scale, line.cell, line.point, line.seed)
        if key not in kept or not line.error or kept[key].error:
            kept[key] = line
    return list(kept.values())


def append_lines(path: Path, lines: Sequence[Line]) -> None:
    """Add runs at the end of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(asdict(line), sort_keys=True) + "\n")


def line_of(scale: str, cell: Cell, seed: int, record: RunRecord | None, error: str = "",
            extra: Mapping[str, float] | None = None,
            curves: Mapping[str, Sequence[float]] | None = None) -> Line:  # fmt: skip
    """Return the line of a finished run.

    Args:
        scale: of the study.
        cell: that was trained.
        seed: of the run.
        record: None if it failed, and ``error`` says why.
        error: in one line.
        extra: scores that the study measured itself.
        curves: of callbacks.
    """
    scores, found, seconds = dict(extra or {}), dict(curves or {}), 0.0
    if record is not None:
        scores |= scores_of(record)
        found |= curves_of(record)
        seconds = record.cost["seconds"]
    for name, values in found.items():
        ends = (values[0], values[(len(values) - 1) // 2], values[-1])
        scores |= {f"{name}.{part}": value for part, value in zip(PARTS, ends, strict=True)}
    versions = {"bayeswell": bayeswell.__version__}
    return Line(scale, cell.label, dict(cell.at), seed, scores, {k: _thinned(v) for k, v in found.items()}, error,
                round(seconds, 3), versions=versions)  # fmt: skip


def scores_of(record: RunRecord) -> dict[str, float]:
    """Return all numbers of a run that a claim may name."""
    found = {key: one.value for key, one in record.all_scores().items()}
    found |= {f"validation.{key}": one.value for key, one in record.validation.items()}
    posterior = record.posterior
    found |= {key: posterior[key] for key in ("std_ratio", "temperature", "num_variational_params")}
    found |= {"passes": record.cost["passes"]}
    if record.elbo is not None and "expected_nll" in found:
        kl = record.elbo["kl"] / record.elbo["dataset_size"]
        found |= {"kl_per_example": kl, "negative_elbo": found["expected_nll"] + kl}
    return {key: float(value) for key, value in found.items() if isinstance(value, int | float)}


def curves_of(record: RunRecord) -> dict[str, list[float]]:
    """Return what changed over the epochs of the first member."""
    epochs = [one for one in record.history if one["member"] == 0]
    names = [name for name in (epochs[0] if epochs else {}) if name in ("total", "nll", "kl", "std_ratio")]
    found = {f"train.{name}": [float(one[name]) for one in epochs] for name in names}
    held = [name for name in (epochs[0] if epochs else {}) if name.startswith("validation.")]
    found |= {name: [float(one[name]) for one in epochs] for name in held}
    return {"epoch": [one["epoch"] + 1.0 for one in epochs], **found} if epochs else {}


def steps_of(curve: str) -> str:
    """Return the name of the curve that holds the places of another one along training."""
    return STEPS.get(curve.partition(".")[0], "epoch")


def _thinned(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values[:: -(-len(values) // MOST_POINTS)]]
