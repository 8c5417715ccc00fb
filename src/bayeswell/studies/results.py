"""Results of a study: one JSON object a line and a run, only ever added to, for people and programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch

from ..errors import FileError
from ..experiments.paths import epochs_of
from ..experiments.run_records import averages_of, steps_of
from ..version import __version__
from .cells import Cell
from .measures import measured

_FORMAT = 1
_POINTS = 60
"""Of a longer curve so many points are kept."""
EPOCH = "epoch"
"""The curve of the numbers of the epochs that were kept."""
STEPS = {"snr": "snr.step", "snr_median": "snr.step", "steps": "steps.step"}
"""Curves by the first part of their names, and the curve of the steps at which they were taken."""
_AVERAGES = {"average.": "average.epoch", "test.average.": "test.average.epoch"}
"""Curves of averaged models, from their first snapshot on, and the curve of their epochs."""
_PLACES = (EPOCH, *STEPS.values(), *_AVERAGES.values())
_CURVES = ("nll", "kl", "total", "accuracy", "rmse", "std_ratio")


TIMES = ("milliseconds_per_step",)
"""Scores that differ from run to run of the same settings."""


@dataclass(frozen=True)
class Line:
    """What one run gave: ``scores`` by name, ``curves`` along training; ``error`` if it failed."""

    scale: str
    cell: str
    at: Mapping[str, Any]
    seed: int
    settings_hash: str
    parts_hash: str
    scores: Mapping[str, float]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"format": _FORMAT, **{name: getattr(self, name) for name in self.__dataclass_fields__}}


def line_of(scale: str, cell: Cell, seed: int, place: Path, result: Mapping[str, Any] | None, error: str = "") -> Line:
    """The line of a run that ended, with what the study measures of it."""
    scores = {} if result is None else scores_of_result(result)
    curves = {} if result is None else _curves(place)
    averages = [] if result is None else averages_of(place)
    if averages:  # of the averaged model, from its first snapshot on; with `diagnose`
        names = [name for name in averages[0] if name not in ("epoch", "step")]
        curves |= {f"average.{name}": [one[name] for one in averages] for name in names}
        curves[_AVERAGES["average."]] = [one["epoch"] + 1 for one in averages]
    if result is not None:
        more, more_curves = measured(cell.measures, cell.experiment.changed({"seed": seed}), place)
        scores |= more
        curves |= more_curves
    for name, values in curves.items():
        if values and name not in _PLACES:
            ends = {"first": values[0], "half": values[(len(values) - 1) // 2], "last": values[-1]}
            scores |= {f"{name}.{end}": value for end, value in ends.items()}
    seconds = 0.0 if result is None else result["time"]["train_seconds"] + result["time"]["evaluate_seconds"]
    return Line(
        scale, cell.label, dict(cell.at), seed, cell.settings_hash, cell.parts_hash, scores,
        {name: _thinned(values) for name, values in curves.items()}, error, round(seconds, 3), _commit(cell.home),
        _versions(), cell.settings,
    )  # fmt: skip


def places_of(curve: str) -> str:
    """The curve that says where along training the points of another one lie."""
    by_step = STEPS.get(curve.split(".")[0])
    return by_step or next((own for start, own in _AVERAGES.items() if curve.startswith(start)), EPOCH)


def scores_of_result(result: Mapping[str, Any]) -> dict[str, float]:
    """Every number of ``result.json`` that a table or a claim may ask for, by one name."""
    scores: dict[str, Any] = {}
    for part, before in (("test", ""), ("ood", "ood."), ("validation", "validation.")):
        found = result.get(part)
        values = found.get("values", found) if isinstance(found, Mapping) else {}
        scores |= {f"{before}{name}": value for name, value in values.items()}
    scores |= dict(result.get("bound") or {})
    timed = result["time"]["timed_steps"]
    scores |= {
        "std_ratio": result["std_ratio"], "temperature": result["temperature"],
        "variational_parameters": result["variational_parameters"], "parameters": result["parameters"],
        "draws": result["draws"], "passes": result["cost"]["total"], "steps": result["cost"]["steps"],
        "milliseconds_per_step": 1000 * result["time"]["train_seconds"] / timed if timed else None,
    }  # fmt: skip
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}


def append_line(path: Path, line: Line) -> None:
    """Add a line, forced to disk; what a kill left of an earlier one is ended first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            if file.tell() and _last_byte(path) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(line.as_json(), sort_keys=True).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def read_results(path: Path) -> list[Line]:
    """The lines of a file, of several for the same run the last; a line that was cut off by a kill is left out."""
    if not path.exists():
        return []
    kept: dict[tuple[str, str, str, int], Line] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if not isinstance(record, Mapping) or record.get("format") != _FORMAT:
            raise FileError(f"{path}: line {number} is not a result of a study")
        line = Line(**{name: record[name] for name in Line.__dataclass_fields__ if name in record})
        key = (line.scale, line.settings_hash, line.cell, line.seed)
        if key in kept and not kept[key].error and line.error:
            continue  # a run that once ended well is not undone by a later failure
        kept.pop(key, None)
        kept[key] = line
    return list(kept.values())


def lines_of(lines: Iterable[Line], scale: str, cell: Cell) -> dict[int, Line]:
    """The runs of a cell that ended well, by seed: those with its settings as they are now."""
    wanted = cell.settings_hash
    found = [line for line in lines if line.scale == scale and line.settings_hash == wanted and not line.error]
    return {line.seed: line for line in found if line.cell == cell.label}


def _last_byte(path: Path) -> bytes:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _curves(place: Path) -> dict[str, list[float]]:
    """The first member's epochs."""
    epochs = [record for record in epochs_of(place) if record.get("member", 0) == 0]
    known = dict.fromkeys(name for record in epochs for name in record)
    names = [name for name in known if name in _CURVES or name.startswith(("validation.", "test."))]
    curves = {EPOCH: [record["epoch"] + 1.0 for record in epochs]} | {
        name if "." in name else f"train.{name}": [float(record[name]) for record in epochs if name in record]
        for name in names
    }
    start, place_of_average = list(_AVERAGES.items())[-1]
    averaged = [record["epoch"] + 1.0 for record in epochs if any(name.startswith(start) for name in record)]
    return curves | ({place_of_average: averaged} if averaged else {}) | _steps(place)


def _steps(place: Path) -> dict[str, list[float]]:
    """With ``trace_steps``: ``steps.minus_elbo``, ``steps.validation.nll``, ... at the steps ``steps.step``."""
    rows = steps_of(place)
    return {
        f"steps.{name}": [float(row[name]) for row in rows] for name in (rows[0] if rows else {}) if name != "steps"
    }


def _thinned(values: Sequence[float]) -> list[float]:
    step = -(-len(values) // _POINTS)
    return [float(f"{value:.6g}") for value in values[:: max(1, step)]]


def _versions() -> dict[str, str]:
    return {"bayeswell": __version__, "python": platform.python_version(), "torch": torch.__version__,
            "numpy": numpy.__version__}  # fmt: skip


def _commit(home: Path) -> str:
    """Of the repository that the study lies in; empty where there is none."""
    try:
        found = subprocess.run(
            ["git", "-C", str(home), "rev-parse", "--short=12", "HEAD"],
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
