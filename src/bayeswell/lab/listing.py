"""Tables of methods, data, models, scores and parts, and of the runs in a folder."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import FileError, SettingError, nearest
from ..core.registry import REGISTRIES
from ..methods import METHODS
from ..metrics import SCORES
from .data import DATASETS
from .files import read_json
from .measure import RESULT, SETTINGS, RunRecord
from .models import MODELS
from .terminal import table_text

Rows = list[dict[str, str]]
_PLURALS = {"data": "data set", "models": "model"}


def kinds() -> list[str]:
    """Return everything that ``rows_of`` lists."""
    parts = [kind for kind in REGISTRIES if kind not in _PLURALS.values()]
    return ["methods", "data", "models", "scores", *parts]


def rows_of(kind: str) -> Rows:
    """Return the entries of a kind, the runs below a folder, or all kinds for ""."""
    if not kind:
        return [{"kind": one, "names": ", ".join(_names(one))} for one in kinds()]
    if kind == "methods":
        return [{"name": name, "summary": one.summary, "paper": one.paper} for name, one in METHODS.items()]
    if kind == "scores":
        return [{"name": s.key, "heading": s.heading, "better": s.direction, "unit": s.unit} for s in SCORES.values()]
    if kind in _PLURALS or kind in REGISTRIES:
        registry = REGISTRIES[_PLURALS.get(kind, kind)]
        parts = [registry[name] for name in registry]
        return [{"name": part.name, "settings": _settings(part), "summary": _summary(part)} for part in parts]
    if Path(kind).is_dir():
        return _runs(Path(kind))
    raise SettingError(f"list: {kind!r} is neither a folder nor a kind; {nearest(kind, kinds())}")


def text_of(kind: str, rows: Sequence[Mapping[str, str]], width: int) -> str:
    """Return the rows as a table."""
    if not rows:
        return f"no runs in {kind}"
    names = list(rows[0])
    limit = max(20, width - sum(max(len(row[name]) for row in rows) + 2 for name in names[:-1]))
    cells = [[row[name] for name in names[:-1]] + [_shortened(row[names[-1]], limit)] for row in rows]
    if kind in _PLURALS or kind in REGISTRIES:
        return "\n".join(_entry(row, width) for row in rows)
    return table_text(names, cells, width, left=len(names))


def _entry(row: Mapping[str, str], width: int) -> str:
    line = f"{row['name']}: {row['summary']}" if row["summary"] else row["name"]
    return _shortened(line, width) + (f"\n    {_shortened(row['settings'], width - 4)}" if row["settings"] else "")


def _names(kind: str) -> list[str]:
    known: dict[str, Any] = {"methods": METHODS, "scores": SCORES, "data": DATASETS, "models": MODELS}
    names = known.get(kind, REGISTRIES.get(kind, ()))
    return [getattr(names[name], "name", name) for name in names]


def _settings(part: Any) -> str:
    if not dataclasses.is_dataclass(part):
        return ""
    return ", ".join(
        field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default}"
        for field in dataclasses.fields(part)
        if field.init
    )


def _summary(part: Any) -> str:
    return getattr(part, "summary", "") or (inspect.getdoc(part) or "").split("\n\n")[0].replace("\n", " ")


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _runs(folder: Path) -> Rows:
    places = [path.parent for path in sorted(folder.rglob(SETTINGS))]
    return [_run(place, folder) for place in places if "checkpoints" not in place.relative_to(folder).parts]


def _run(place: Path, folder: Path) -> dict[str, str]:
    row = {"run": str(place.relative_to(folder)), "NLL": "", "cost": "", "state": "", "method": "", "problem": ""}
    try:
        settings = read_json(place / SETTINGS)["settings"]
        row |= {"problem": str(settings.get("data", "digits")), "method": str(settings.get("method", "auto"))}
        if not (place / RESULT).exists():
            return {**row, "state": "not finished"}
        record = RunRecord.load(place)
    except (FileError, KeyError, TypeError):
        return {**row, "state": "damaged"}
    row |= {"problem": record.problem, "method": record.label, "NLL": str(record.scores["nll"])}
    return {**row, "cost": f"{record.cost['relative']:.3g}x", "state": "ok" if record.ok else "check failed"}
