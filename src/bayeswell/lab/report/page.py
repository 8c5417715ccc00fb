"""The report page: one HTML file that needs no network and no scripts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import MissingExtra
from ...version import __version__
from ..comparison import Comparison
from ..files import write_whole
from ..plots import THEMES
from ..settings import RunSettings
from .figures import forest, sections_of
from .reading import read_comparison
from .summary import finished_runs, summarize, tables_of

TEMPLATES = Path(__file__).parent / "templates"
TABLES = {"settings": "", "model_settings": "model.", "data_settings": "data.", "augment": "augment."}
"""Settings that are tables, with the prefix of their entries on the command line."""


@dataclass(frozen=True)
class RunRow:
    """One run in the table of all runs."""

    problem: str
    method: str
    seed: str
    nll: str
    elbo: str
    cost: str
    seconds: str
    checks: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class Recipe:
    """The settings of a method on a problem, and the command of its first run."""

    title: str
    command: str
    settings: str
    seeds: str
    versions: str


def write_report(
    paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str], title: str | None = None
) -> Path:
    """Write a page about finished runs and comparisons; it reads their records and measures nothing.

    Args:
        paths: folders of runs, of comparisons, or folders that hold them.
        out: the HTML file.
        title: of the page; None: made from the methods and problems.
    """
    place = Path(out)
    comparison = read_comparison(paths)
    write_whole(place, render_report(comparison, title).encode("utf-8", "replace"))
    return place


def render_report(comparison: Comparison, title: str | None = None) -> str:
    """Return the page of a comparison as HTML."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtra('reports need jinja2; install it with: pip install "bayeswell[lab]"') from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    for name, theme in THEMES.items():
        style = style.replace(f"/* {name} */", theme.variables())
    summary = summarize(comparison)
    # The style sheet and the figures are the only texts that are not escaped.
    return environment.get_template("page.html").render(
        title=title or _title(comparison),
        version=__version__,
        style=Markup(style),
        svg=Markup,
        summary=summary,
        forest=None if summary.reference is None else forest(comparison),
        tables=tables_of(comparison),
        runs=_run_rows(comparison),
        sections=sections_of(comparison),
        recipes=_recipes(comparison),
    )


def _title(comparison: Comparison) -> str:
    methods, problems = comparison.methods, comparison.problems
    first = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    return f"{first} on {', '.join(problems[:3])}{' and others' if len(problems) > 3 else ''}"


def _run_rows(comparison: Comparison) -> list[RunRow]:
    rows = []
    for run in comparison.runs:
        record = run.record
        seed = str(run.seed) if run.fold is None else f"{run.seed}, fold {run.fold}"
        if record is None:
            rows.append(RunRow(run.problem, run.method, seed, "", "", "", "", (), run.error))
            continue
        elbo = record.elbo or {}
        cost, seconds = record.cost.get("relative"), record.cost.get("seconds")
        failed = tuple(str(check["message"]) for check in record.checks if check["ok"] is False)
        rows.append(
            RunRow(
                run.problem,
                run.method,
                seed,
                str(record.scores.get("nll", "")),
                f"{elbo['elbo']:,.0f}" if elbo.get("is_bound") and elbo.get("elbo") is not None else "",
                "" if cost is None else f"{cost:.2g}×",
                "" if seconds is None else f"{seconds:.3g}",
                failed,
                "",
            )
        )
    return rows


def _recipes(comparison: Comparison) -> list[Recipe]:
    recipes = []
    groups: dict[tuple[str, str], list[Any]] = {}
    for run, record in finished_runs(comparison):
        groups.setdefault((run.problem, run.method), []).append(record)
    for (problem, method), records in groups.items():
        first = records[0]
        settings = {key: value for key, value in first.settings.items() if key not in ("seed", "folder")}
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(record.seed for record in records))
        versions = ", ".join(f"{name} {value}" for name, value in first.versions.items())
        text = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
        recipes.append(Recipe(f"{method} on {problem}", train_command(first.settings), text, seeds, versions))
    return recipes


def train_command(settings: Mapping[str, Any]) -> str:
    """Return the command line that trains a run with these settings; "" if they name code or objects of a program."""
    words, assigned = ["bayeswell", "train"], []
    for name, value in settings.items():
        if name in TABLES:
            assigned += [f"{TABLES[name]}{key}={_command_text(own)}" for key, own in (value or {}).items()]
        elif name in RunSettings.names() and name != "folder" and value is not None:
            values = value if isinstance(value, list) else [value]
            if any(isinstance(own, Mapping) for own in values):
                return ""
            words += [f"--{name.replace('_', '-')}", *map(str, values)] if values else []
    return shlex.join([*words, "--set", *assigned] if assigned else words)


def _command_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
