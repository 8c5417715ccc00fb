"""The page itself: one file with everything in it, which shows what files say and runs none of it.

Every text goes through the escapes of the template, or into a block of JSON in which no character can end the block.
The page's own script is named by its hash in the content policy: no other script runs, whatever a file holds.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..experiments.paths import path_of
from ..extras import needs_extra
from ..persistence import write_whole
from ..plots import style_variables
from ..version import __version__
from .alarms import notes_of
from .cards import card_of, text_of
from .commands import report_command, train_command
from .figures import MOST, order_of, pictures_of
from .numbers import scores_of, seconds_of, shown
from .reading import Reading, RunRecord, mapping, read_runs
from .summary import Table, tables_of
from .verdict import Verdict, verdict_of

_TEMPLATES = Path(__file__).parent / "templates"
NAME = "report.html"


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    every_picture: bool = False,
    inspect: Callable[[Path], Mapping[str, Any]] | None = None,
    told: Callable[[str], None] | None = None,
    judged: Callable[[Verdict], None] | None = None,
) -> Path:
    """Write the page of these runs and comparisons; where it is.

    Without ``out`` it is ``report.html`` in the first folder. ``inspect`` as in ``read_runs``. ``every_picture`` also
    draws those of single rows that a page of many leaves out. ``told`` hears of each thing that is missing, which the
    page says too, and ``judged`` of what was gained over ordinary training, if that is among the methods. The same
    folders give the same bytes.
    """
    reading = read_runs(paths, inspect)
    if not reading.runs:
        raise FileError("; ".join(reading.missing) or "no runs to report on")
    for line in [*reading.missing, *(f"{run.path}: {line}" for run in reading.runs for line in run.missing)]:
        if told is not None:
            told(line)
    place = path_of(out) if out is not None else path_of(paths[0]) / NAME
    page = render_page(reading, [os.fspath(path) for path in paths], title=title, every_picture=every_picture)
    with contextlib.suppress(OSError):  # what is wrong with the folder is said when the page is written
        place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, page.encode("utf-8", "replace"))  # a path may hold bytes that are no text
    if judged is not None:
        for table in tables_of(reading.runs):
            if (verdict := verdict_of(table)) is not None and verdict.control:
                judged(verdict)
    return place


def render_page(reading: Reading, paths: Sequence[str] = (), *, title: str = "", every_picture: bool = False) -> str:
    """The page as a text."""
    with needs_extra("lab", "a report"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup

    tables = tables_of(reading.runs)
    most = None if every_picture else max(1, MOST // max(1, len(tables)))
    pictures = [pictures_of(table, f"t{index}", most, reading.trial_bands) for index, table in enumerate(tables)]
    script, style = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html").render(
        title=title or _title(tables),
        version=__version__,
        # The page's own script and style, and the drawings of the plots room, are the only texts that are not escaped.
        script=Markup(script),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        style=Markup(
            style.replace("/* light */", style_variables("light")).replace("/* dark */", style_variables("dark"))
        ),
        tables=[
            {
                "table": table,
                "pictures": drawn,
                "cards": [card_of(row, verdict.worse.get(row.label, "") if verdict else "") for row in table.rows],
                "verdict": verdict,
            }
            for table, drawn in zip(tables, pictures, strict=True)
            for verdict in (verdict_of(table),)
        ],
        svg=Markup,
        runs=[_run_row(run) for run in reading.runs],
        run_scores=list({score.key: score for table in tables for score in table.scores}.values()),
        shown=shown,
        examples=_examples(tables),
        environments=_environments(reading.runs),
        commands=[(run.name, command) for run in reading.runs if (command := train_command(run))],
        report_command=report_command(list(paths)) if paths else "",
        missing=_missing(reading),
        notes=[note for drawn in pictures for note in drawn.notes],
        explains_k_hat=any(notes_of(row.first) for table in tables for row in table.rows),
    )


def _title(tables: Sequence[Table]) -> str:
    data = ", ".join(dict.fromkeys(table.data for table in tables))
    labels = list(dict.fromkeys(row.label for table in tables for row in table.rows))
    return f"{labels[0] if len(labels) == 1 else f'{len(labels)} methods'} on {data}"


def _run_row(run: RunRecord) -> dict[str, Any]:
    values, errors = scores_of(run)
    return {
        "name": run.name, "path": str(run.path), "method": run.label or run.method, "data": run.data,
        "model": run.model, "seed": run.seed, "values": values, "errors": errors, "seconds": seconds_of(run),
        "finished": bool(run.result),
    }  # fmt: skip


def _environments(runs: Iterable[RunRecord]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings of the surroundings, with the runs that share them."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in runs:
        versions = [(str(name), text_of(value)) for name, value in mapping(run.config.get("versions")).items()]
        others = [("precision", run.config.get("precision")), ("processes", run.config.get("ranks")),
                  ("network, sha256", run.config.get("network")),
                  ("data, sha256", mapping(run.config.get("problem")).get("data_sha256"))]  # fmt: skip
        key = (*versions, *((name, text_of(value)) for name, value in others if value is not None))
        found.setdefault(key, []).append(run.name)
    return [(", ".join(names), list(key)) for key, names in found.items() if key]


def _missing(reading: Reading) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = [("", reading.missing)] if reading.missing else []
    for run in reading.runs:
        left = mapping(run.inspection.get("left_out"))
        lines = [*run.missing, *(f"{name}: {why}" for name, why in left.items())]
        if lines:
            found.append((str(run.path), lines))
    return found


def _examples(tables: Sequence[Table]) -> dict[str, Any]:
    """What the browser of examples reads: images are kept once, whichever runs show them."""
    images: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    first = 0
    for table in tables:
        best = table.rows[order_of(table)[0]]
        for row in table.rows:
            run = row.first
            record = mapping(run.plot_record("examples"))
            rows = [example for example in record.get("examples") or [] if isinstance(example, Mapping)]
            if record.get("kind") not in ("classes", "real") or not rows:
                continue
            columns = run.inspection.get("columns")
            first = len(runs) if row is best and table is tables[0] else first
            runs.append(
                {
                    "label": row.label,
                    "data": table.data,
                    "kind": record["kind"],
                    "classes": run.class_names,
                    "columns": columns if isinstance(columns, list) else [],
                    "examples": [_example(example, images) for example in rows],
                }
            )
    return {"runs": runs, "images": images, "first": first}


def _example(example: Mapping[str, Any], images: dict[str, Any]) -> dict[str, Any]:
    image = mapping(example.get("image"))
    if not image:
        return dict(example)
    key = hashlib.sha256(f"{image.get('shape')} {image.get('pixels')}".encode()).hexdigest()[:16]
    images[key] = {"shape": image.get("shape"), "pixels": image.get("pixels")}
    return {**example, "image": key}
