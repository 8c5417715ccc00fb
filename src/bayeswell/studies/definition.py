"""What a study is, read from its file: a problem, cells, a grid, scales, a paper's numbers and its claims.

Everything is looked at before any run: a cell whose settings no run would take, a claim about a cell that there is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SettingError, nearest
from ..experiments import Experiment, merged, read_config
from ..experiments.config_parsing import nested
from ..experiments.network_code import is_code
from ..experiments.schema import SETTINGS
from .cells import Cell
from .claims import Claim, read_claims
from .measures import read_measures
from .points import grid_points, random_points

SCALES = ("smoke", "cpu", "paper")
"""The sizes that a study may be run at: to see that it runs, on a processor, as in the paper."""
_KEYS = ("title", "paper", "about", "summary", "seeds", "scores", "run", "cells", "grid", "points", "choose", "measure",
         "scales", "printed", "claims", "plots")  # fmt: skip
_SCALE_KEYS = ("about", "seeds", "run", "each", "grid", "cells", "measure", "points")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
_PATHS = ("path", "test_path")


@dataclass(frozen=True)
class Printed:
    """Numbers of the paper for one cell: ``values`` by score, and ``where`` they stand (table and page)."""

    where: str
    cell: str
    values: Mapping[str, float]
    at: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """One size of a study: its seeds, its cells, and in what it departs from the paper (``about``)."""

    name: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    about: str = ""

    @property
    def judges(self) -> bool:
        """Whether its numbers mean anything; the smoke scale shows only that everything runs."""
        return self.name != "smoke"


@dataclass(frozen=True)
class Study:
    """A study file, read. ``choose`` is the score on validation data by which a point of the grid is chosen;
    ``summary`` what its claims are worth, in a sentence or two, for the index of all papers."""

    path: Path
    title: str
    paper: str
    about: str
    scores: tuple[str, ...]
    scales: Mapping[str, Scale]
    printed: tuple[Printed, ...]
    claims: tuple[Claim, ...]
    plots: tuple[Mapping[str, Any], ...]
    choose: str | None = None
    summary: str = ""

    @property
    def name(self) -> str:
        """That of the file."""
        return self.path.stem

    @property
    def results(self) -> Path:
        """Where its results are kept, one JSON object a line."""
        return self.path.parent / "results" / f"{self.name}.jsonl"

    @property
    def runs_on_a_processor(self) -> bool:
        """Whether it has a scale for that: data or sizes may leave it the scale paper alone."""
        return "cpu" in self.scales

    def scale(self, name: str) -> Scale:
        """One of its sizes."""
        if name not in self.scales:
            raise SettingError(f"{self.path}: no scale '{name}'; {nearest(name, self.scales)}")
        return self.scales[name]

    def printed_of(self, cell: Cell, score: str) -> float | None:
        """What the paper prints for a cell, if anything."""
        for one in self.printed:
            if one.cell == cell.label and dict(one.at) == dict(cell.at) and score in one.values:
                return one.values[score]
        return None


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study in a TOML file; whatever is wrong with it is told in one line."""
    record = read_config(path, _KEYS)
    file = Path(path)
    for key in ("title", "paper", "cells", "scales", "scores"):
        if not record.get(key):
            raise SettingError(f"{file}: '{key}' is missing")
    for key in ("run", "cells", "grid", "measure", "scales", "choose"):
        if not isinstance(record.get(key, {}), Mapping):
            raise SettingError(f"{file}: {key} = {record[key]!r:.60}; it must be a table")
    for key in ("title", "paper", "about", "summary"):
        if not isinstance(record.get(key, ""), str):
            raise SettingError(f"{file}: {key} = {record[key]!r:.60}; it must be a text")
    for label in record["cells"]:
        if not _NAME.fullmatch(label):
            raise SettingError(f"{file}: cell {label!r:.60}: letters, digits and . _ - +, at most 60")
    scales = {}
    for name, table in record["scales"].items():
        if name not in SCALES:
            raise SettingError(f"{file}: no scale '{name}'; {nearest(name, SCALES)}")
        scales[name] = _scale(file, name, record, table)
    choose = record.get("choose", {}).get("by")
    if choose is not None and not str(choose).startswith("validation."):
        raise SettingError(f"{file}: choose.by = {choose!r}: settings are chosen by validation data: validation.nll")
    printed = tuple(_printed(file, one, record["cells"]) for one in record.get("printed", []))
    claims = read_claims(str(file), record.get("claims", []), record["cells"])
    return Study(
        file, record["title"], record["paper"], record.get("about", "").strip(), tuple(record["scores"]), scales,
        printed, claims, tuple(record.get("plots", [])), choose, record.get("summary", "").strip(),
    )  # fmt: skip


def _printed(file: Path, one: Mapping[str, Any], cells: Mapping[str, Any]) -> Printed:
    for key in ("where", "cell", "values"):
        if key not in one:
            raise SettingError(f"{file}: [[printed]] without '{key}': {dict(one)!r:.80}")
    if one["cell"] not in cells:
        raise SettingError(
            f"{file}: [[printed]] of {one['where']}: no cell '{one['cell']}'; {nearest(one['cell'], cells)}"
        )
    return Printed(one["where"], one["cell"], dict(one["values"]), dict(one.get("at", {})))


def _scale(file: Path, name: str, record: Mapping[str, Any], table: Mapping[str, Any]) -> Scale:
    for key in table:
        if key not in _SCALE_KEYS:
            raise SettingError(f"{file}: scales.{name}: unknown key '{key}'; {nearest(key, _SCALE_KEYS)}")
    labels = table.get("cells", list(record["cells"]))
    for label in [*labels, *table.get("each", {})]:
        if label not in record["cells"]:
            raise SettingError(f"{file}: scales.{name}: no cell '{label}'; {nearest(label, record['cells'])}")
    seeds = table.get("seeds", record.get("seeds", 1))
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise SettingError(f"{file}: scales.{name}: seeds = {seeds!r}; how many, a whole number of at least 1")
    cells = [cell for label in labels for cell in _cells(file, label, record, table)]
    return Scale(name, tuple(range(seeds)), tuple(cells), table.get("about", "").strip())


def _cells(file: Path, label: str, record: Mapping[str, Any], table: Mapping[str, Any]) -> list[Cell]:
    """One way to train, at every point of its grid and of what is drawn at random."""
    own = dict(record["cells"][label])
    about, grid, spreads = own.pop("about", ""), own.pop("grid", record.get("grid", {})), own.pop("random", {})
    measures: dict[str, Any] = {}
    for wanted in (record.get("measure", {}), table.get("measure", {}), own.pop("measure", {})):
        measures |= read_measures(str(file), wanted)
    points = grid_points(str(file), table.get("grid", {}) if grid and "grid" in table else grid)
    if spreads:
        drawn = random_points(str(file), label, spreads, table.get("points", record.get("points", 1)))
        points = [{**point, **more} for point in points for more in drawn]
    settings = merged(record.get("run", {}), own)
    for more in (table.get("run", {}), table.get("each", {}).get(label, {})):
        settings = merged(settings, more)
    return [_cell(file, label, at, settings, about, measures) for at in points]


def _cell(
    file: Path, label: str, at: Mapping[str, Any], settings: Mapping[str, Any], about: str, measures: Mapping[str, Any]
) -> Cell:
    record = dict(settings)
    for path, value in at.items():
        record = merged(record, nested(path, value))
    for key in record:
        if key not in SETTINGS:
            raise SettingError(f"{file}: cell '{label}': a run has no setting '{key}'; {nearest(key, SETTINGS)}")
    model = record.get("model")
    if is_code(model.get("name") if isinstance(model, Mapping) else model):
        raise SettingError(f"{file}: cell '{label}': the model is code, which no study file runs")
    data = record.get("data")
    if isinstance(data, Mapping):  # a table of the study's own lies beside its file
        own = {key: str((file.parent / data[key]).resolve()) for key in _PATHS if data.get(key)}
        record["data"] = {**data, **own}
    init = record.get("init")
    if isinstance(init, str) and init.strip():  # a run too
        record["init"] = str((file.parent / os.path.expanduser(init)).resolve())
    try:
        experiment = Experiment.from_json(record)
    except SettingError as error:
        raise SettingError(f"{file}: cell '{label}': {error}") from error
    return Cell(label, dict(at), experiment, file.parent.resolve(), about, measures)
