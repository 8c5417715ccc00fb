"""``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import BayeswellError, SettingError
from ..experiments.schema import HOW, RUN, WHAT
from .command import command, with_settings
from .options import Json, Quiet, Threads, experiment_from, use_threads
from .report import WriteReport, make_page
from .screen import SCORES, counted, new_table, one_line, plain, show, show_json

HELP = """Train several methods on one problem, each with several seeds, and show one table.

Every run has its folder OUT/METHOD-seedN: runs that are finished are not run again, those that were stopped go on. The
table, with both standard errors, is also in OUT/comparison.json, and all there is to see in OUT/report.html. With map
among the methods it ends by saying in words what the others gained over it, and at what price."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell compare --methods map,bbb,swag --data digits --ood noise --epochs 40 --seeds 3 --out runs/digits",
    "  bayeswell compare --methods bbb,sgld -d wine --set temperature=1 --set sgld:lr=0.05 --out runs/wine",
)
EXTRA = ("methods", "seeds")
"""What a settings file may say of a comparison, besides what is said of an experiment."""
_LEFT_OUT = frozenset({"entropy", "ood_entropy", "r2", "coverage_50", "coverage_95"})
SHOWN = [(name, heading) for name, heading in SCORES if name not in _LEFT_OUT]


@command("compare", HELP, EXAMPLES)
@with_settings(without=("method", "seed", "devices"))
def compare(
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", "-m", metavar="A,B,C", help="Which methods.", show_default=False, rich_help_panel=WHAT
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[METHOD:]KEY=VALUE",
            help="A setting of every method, or of one.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    given: Mapping[str, Any],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The folder of all runs.", show_default=False, rich_help_panel=RUN
        ),
    ],
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", "-k", min=1, help="How many seeds, from 0 on.", show_default="1", rich_help_panel=HOW),
    ] = None,
    threads: Threads = None,
    report: WriteReport = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train several methods on one problem and show one table."""
    from ..experiments import compare as compared

    _, others = experiment_from(given, EXTRA)
    names = _names(methods, others)
    count = _seeds(seeds, others)
    experiments = {
        name: experiment_from({**given, "method": name, "method_set": pairs}, EXTRA)[0]
        for name, pairs in _settings_of(names, settings or []).items()
    }
    use_threads(threads)
    record = compared(experiments, range(count), out, progress=False, told=None if quiet else _told)
    if json:
        show_json(record)
    else:
        _show(record, out)
    if report:
        _report(out, quiet, json)
    if any(row["failed"] for row in record["rows"]):
        for row in record["rows"]:
            for failure in row["failed"]:
                typer.echo(f"bayeswell: {failure['run']}: {failure['error']}", err=True)
        raise typer.Exit(1)


def _report(out: Path, quiet: bool, json: bool) -> None:
    """The page; the comparison is done and stays so whatever becomes of it."""
    try:
        page, _ = make_page([out], None, quiet=quiet, json=json)
    except BayeswellError as error:
        typer.echo(f"warning: no report: {one_line(str(error))}", err=True)
        return
    typer.echo(f"the page is {page}", err=json)


def _names(methods: str | None, others: Mapping[str, Any]) -> list[str]:
    from ..methods import find_method

    given = methods.split(",") if methods is not None else others.get("methods")
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise SettingError("which methods? --methods map,bbb,swag (`bayeswell methods` lists them)")
    names = [name.strip() for name in given if name.strip()]
    for name in names:
        find_method(name)
    if not names or len(set(names)) < len(names):
        raise SettingError(f"--methods {','.join(names)}: each method once, and at least one")
    return names


def _seeds(seeds: int | None, others: Mapping[str, Any]) -> int:
    count = seeds if seeds is not None else others.get("seeds", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(f"seeds = {count!r}; how many, a whole number of at least 1")
    return count


def _settings_of(names: Sequence[str], settings: Sequence[str]) -> dict[str, list[str]]:
    """``KEY=VALUE`` for each method: those given for all, then those for it alone (``METHOD:KEY=VALUE``)."""
    common = [pair for pair in settings if ":" not in pair.partition("=")[0]]
    found = {name: list(common) for name in names}
    for pair in settings:
        if pair not in common:
            label, own = pair.split(":", 1)
            if label not in found:
                raise SettingError(f"--set {pair}: '{label}' is not among the methods {', '.join(names)}")
            found[label].append(own)
    return found


def _told(name: str, state: str) -> None:
    typer.echo(f"{name}: {state}", err=True)


def _show(record: Mapping[str, Any], out: Path) -> None:
    rows = record["rows"]
    shown = [(name, heading) for name, heading in SHOWN if any(name in row["scores"] for row in rows)]
    experiment = next(iter(record["experiments"].values()))
    seeds = len(record["seeds"])
    parts = ((experiment["epochs"], "epoch"), (seeds, "seed"), (experiment["draws"], "draw"))
    title = ", ".join([experiment["data"]["name"], *(counted(*part) for part in parts)])
    show(_table(record, shown, full=True), title, narrow=lambda: _table(record, shown, full=False))
    typer.echo(_footnote(rows, experiment, seeds))
    typer.echo(f"in {out}")


def _table(record: Mapping[str, Any], shown: Sequence[tuple[str, str]], *, full: bool) -> Any:
    """All there is; or, for a narrow terminal, without errors and passes, which are in the file."""
    numbers = [heading for _, heading in shown] + ["std/prior", *(["passes/step", "passes"] if full else []), "seconds"]
    table = new_table("method", *numbers, right=numbers)
    for row in record["rows"]:
        ratio, cost = row["scores"].get("std_ratio"), row["cost"]
        passes = ["", ""] if cost is None else [f"{cost['per_step']:g}", f"{cost['total']:,.0f}"]
        seconds = record["time"][row["method"]]["train_seconds"]
        table.add_row(
            plain(row["method"]) + (" [red](failed)[/red]" if row["failed"] else ""),
            *(_score(row["scores"].get(name), len(record["seeds"]), full) for name, _ in shown),
            "" if ratio is None else f"{ratio['mean']:.3f}",
            *(passes if full else []),
            "" if seconds is None else f"{seconds['mean']:.1f}",
        )
    return table


def _score(score: Mapping[str, Any] | None, seeds: int, full: bool) -> str:
    if score is None:
        return ""
    error = score["standard_error_over_seeds"] if seeds > 1 else score["standard_error_over_examples"]
    return f"{score['mean']:.4f}" + ("" if error is None or not full else f" [dim]±{error:.4f}[/dim]")


def _footnote(rows: Sequence[Mapping[str, Any]], experiment: Mapping[str, Any], seeds: int) -> str:
    spread = "over seeds (over test examples: comparison.json)" if seeds > 1 else "over test examples"
    parts = [f"± standard error {spread}; NLL in nats"]
    if any("auroc" in row["scores"] for row in rows):
        parts.append(f"AUROC: {experiment['ood']['name']} told apart by entropy")
    parts.append("std/prior: mean posterior std over prior std, 0 without uncertainty")
    parts.append("passes: forward passes of a batch, a backward pass counts as two (ordinary training: 3 a step)")
    return "\n".join(parts)
