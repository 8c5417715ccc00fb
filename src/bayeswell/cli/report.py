"""``report``: one page of what runs and comparisons learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..experiments.schema import MEASURE
from .command import command
from .options import Json, Quiet, Threads, use_threads
from .screen import one_line, show_json, show_verdict

HELP = """Make one HTML page of runs and comparisons: tables, methods, figures, examples, how to make it all again.

The page is a single file that needs no network. What it shows of a model is measured once (a few seconds for a small
network) and kept in RUN/inspection.json. Runs that are broken or not finished are shown as far as they go."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell report runs/compared --open",
    "  bayeswell report runs/digits-bbb-seed0 runs/digits-swag-seed0 --out digits.html",
    "  bayeswell report runs/mnist --full",
)
WriteReport = Annotated[
    bool,
    typer.Option(
        "--report/--no-report", help="Write OUT/report.html, a page of the comparison.", rich_help_panel=MEASURE
    ),
]


@command("report", HELP, EXAMPLES)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_COMPARISON...", help="Folders of runs, of comparisons, or full of runs.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.html", help="The page.", show_default="report.html in the first"),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Its title.", show_default="what the runs are")] = "",
    full: Annotated[
        bool, typer.Option("--full", help="Also what takes long: k-hat, sharpness of large networks, all pictures.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure again what has been measured.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make one HTML page of runs and comparisons."""
    use_threads(threads)
    page, missing = make_page(runs, out, title=title, full=full, again=again, quiet=quiet, json=json)
    if json:
        show_json({"report": str(page), "bytes": page.stat().st_size, "missing": missing})
    else:
        typer.echo(f"the page is {page}")
    if open_it:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo(f"bayeswell: there is no browser to open {page} with", err=True)


def make_page(
    runs: Sequence[Path], out: Path | None, *, title: str = "", full: bool = False, again: bool = False,
    quiet: bool = False, json: bool = False,
) -> tuple[Path, list[str]]:  # fmt: skip
    """Measure what has not been, write the page, say what was gained; where it is, and what is missing, by line."""
    from ..experiments import inspect_run, inspection_of
    from ..report import Verdict, write_report

    def inspect(path: Path) -> Mapping[str, Any]:
        if not quiet and (again or inspection_of(path, full=full) is None):
            typer.echo(f"{path.name}: measuring", err=True)
        return inspect_run(path, full=full, again=again)

    missing: list[str] = []
    verdicts: list[Verdict] = []
    page = write_report(
        runs, out, title=title, every_picture=full, inspect=inspect, told=missing.append, judged=verdicts.append
    )
    if not quiet and not json:
        for verdict in verdicts:
            show_verdict(verdict)
    for line in missing:
        typer.echo(f"warning: {one_line(line)}", err=True)
    return page, missing
