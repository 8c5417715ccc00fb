"""What is in the folders of runs and comparisons, as far as it can be read; what cannot is said, not raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..experiments.comparing import COMPARISON
from ..experiments.inspection import INSPECTION, inspection_of
from ..experiments.paths import path_of
from ..experiments.run_records import RECORDS
from ..persistence import read_document
from ..training.run_folder import CONFIG, METRICS, RESULT, RunFolder

SWEEP, TRIALS = "sweep.json", "trials"
"""What makes a folder that of a sweep, and where it keeps its runs."""


@dataclass
class RunRecord:
    """One run as its folder tells it. ``missing`` has a line for each thing that is not there or cannot be read."""

    path: Path
    label: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    result: Mapping[str, Any] = field(default_factory=dict)
    inspection: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.name or str(self.path)

    @property
    def experiment(self) -> Mapping[str, Any]:
        """What the run was asked to do; empty for a run of a program of its own."""
        return mapping(mapping(self.config.get("problem")).get("experiment"))

    @property
    def seed(self) -> int | None:
        """The seed it was begun with."""
        found = self.config.get("seed", self.result.get("seed"))
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def repeat(self) -> tuple[int | None, str]:
        """Its seed, and the part of the data that it was tested on ("2/5"; empty for the test set)."""
        return self.seed, str(self.experiment.get("fold") or "")

    @property
    def method(self) -> str:
        """The method's name."""
        asked = mapping(self.experiment.get("method")).get("name")
        named = mapping(self.config.get("method")).get("name") or self.result.get("method") or asked
        return str(named) if named else self.label or self.name

    @property
    def data(self) -> str:
        """The data's name."""
        chosen = mapping(self.experiment.get("data"))
        if str(chosen.get("name", "")).startswith(":"):
            return str(chosen["name"]).removeprefix(":")
        if chosen.get("path"):
            return os.path.basename(str(chosen["path"])) or str(chosen["path"])
        found = chosen.get("set") or self.result.get("data") or chosen.get("name")
        return str(found) if found else "unknown data"

    @property
    def model(self) -> str:
        """The network's name."""
        found = self.result.get("model") or mapping(self.experiment.get("model")).get("name")
        return str(found) if found else ""

    @property
    def class_names(self) -> list[str]:
        """The classes, if there are any."""
        names = self.inspection.get("class_names")
        return [str(name) for name in names] if isinstance(names, list) else []

    def plot_record(self, name: str) -> Any:
        """What a plot of this name draws of this run; None if there is nothing."""
        own = self.records.get(name)
        return own if own is not None else mapping(self.inspection.get("records")).get(name)


@dataclass
class Reading:
    """All that was found, and a line for each place in which nothing was."""

    runs: list[RunRecord] = field(default_factory=list)
    comparisons: list[Mapping[str, Any]] = field(default_factory=list)
    trial_bands: dict[Path, Any] = field(default_factory=dict)
    """Of the sweeps among the folders: the learning curves of their trials as one."""
    missing: list[str] = field(default_factory=list)


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, or an empty one in the place of anything else that a file may hold."""
    return value if isinstance(value, Mapping) else {}


def read_runs(
    paths: Iterable[str | os.PathLike[str]], inspect: Callable[[Path], Mapping[str, Any]] | None = None
) -> Reading:
    """Runs and comparisons in these folders, or in the folders in them.

    ``inspect`` measures a run that has no inspection yet; without it such a run is shown by its result alone. A folder
    that does not exist is refused; whatever else is wrong is noted.
    """
    reading = Reading()
    taken: set[str] = set()
    for path in paths:
        folder = path_of(path)
        if not folder.is_dir():
            raise FileError(f"{str(folder)!r}: there is no such folder")
        found = list(_runs_in(folder, reading))
        if not found:
            reading.missing.append(f"{folder}: holds neither a run ({CONFIG}) nor a comparison ({COMPARISON})")
        for place, label in found:
            real = os.path.realpath(place)
            if real not in taken:
                taken.add(real)
                reading.runs.append(_read_run(place, label, inspect))
    return reading


def _runs_in(folder: Path, reading: Reading) -> Iterable[tuple[Path, str]]:
    """The folders of runs, each with the label that a comparison gave it."""
    if (folder / COMPARISON).exists():
        try:
            yield from _compared(folder, reading)
            return
        except FileError as error:
            reading.missing.append(str(error))
    sweep = (folder / SWEEP).is_file()
    if _holds_a_run(folder) and not sweep:  # a sweep has a result of its own
        yield folder, ""
        return
    yield from ((place, "") for place in sorted(folder.iterdir()) if _holds_a_run(place))
    if sweep and (folder / RESULT).is_file():
        try:
            if bands := read_document(folder / RESULT).get("bands"):
                reading.trial_bands[folder] = bands
        except FileError as error:
            reading.missing.append(str(error))
    if sweep and (folder / TRIALS).is_dir():
        for trial in sorted((folder / TRIALS).iterdir()):
            # The run of a trial is in its folder, those of several seeds are in folders within.
            places = [trial] if _holds_a_run(trial) else sorted(trial.glob("seed*"))
            yield from ((place, f"trial {trial.name}") for place in places if _holds_a_run(place))


def _holds_a_run(place: Path) -> bool:
    """Whether anything of a run is there; what else should be is said to be missing."""
    return any((place / name).is_file() for name in (CONFIG, RESULT, METRICS, INSPECTION))


def _compared(folder: Path, reading: Reading) -> list[tuple[Path, str]]:
    record = read_document(folder / COMPARISON)
    rows = record.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise FileError(f"{str(folder / COMPARISON)!r} has no rows")
    reading.comparisons.append(record)
    found = []
    for row in rows:
        label = str(row.get("method", ""))
        for failure in row.get("failed") or []:
            reading.missing.append(f"{folder / _plain_name(mapping(failure).get('run'))}: the run failed: "
                                   f"{mapping(failure).get('error')}")  # fmt: skip
        for name in row.get("runs") or []:
            place = folder / _plain_name(name)
            if place.is_dir():
                found.append((place, label))
            else:
                reading.missing.append(f"{place}: the run that {COMPARISON} names is not there")
    return found


def _plain_name(name: Any) -> str:
    """A name in a file leads nowhere else."""
    return os.path.basename(str(name)) or "unnamed"


def _read_run(place: Path, label: str, inspect: Callable[[Path], Mapping[str, Any]] | None) -> RunRecord:
    run = RunRecord(place, label)
    run.config = _document(run, CONFIG)
    run.result = _document(run, RESULT, "the run is not finished")
    run.records = _document(run, RECORDS) if (place / RECORDS).exists() else {}
    try:
        run.epochs = RunFolder(place).epochs()
    except FileError as error:
        run.missing.append(_there(place / METRICS, error))
    if run.config and not run.experiment:
        run.missing.append(
            "begun by `fit` in a program: its data are not in the folder, so nothing is measured on them"
        )
    if run.config and run.result:
        _inspected(run, inspect)
    return run


def _inspected(run: RunRecord, inspect: Callable[[Path], Mapping[str, Any]] | None) -> None:
    try:
        found = inspect(run.path) if inspect is not None else inspection_of(run.path)
    except Exception as error:  # whatever is wrong with one model, the page shows the others
        run.missing.append(f"its model could not be measured: {error}")
        return
    if found is None:
        run.missing.append("its model has not been measured")
        return
    run.inspection = found


def _document(run: RunRecord, name: str, absent: str = "") -> Mapping[str, Any]:
    path = run.path / name
    try:
        if name == RESULT and path.exists():
            return RunFolder(run.path).result() or {}
        return read_document(path, users=name == RECORDS)  # a program may have written them
    except FileError as error:
        run.missing.append(_there(path, error) + (f" ({absent})" if absent and not path.exists() else ""))
        return {}


def _there(path: Path, error: FileError) -> str:
    return str(error) if path.exists() else f"{path.name} is not there"
