"""``report``: one page of what runs and comparisons learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError
from ..experiments.schema import MEASURE
from .command import command
from .options import Json, OwnCode, Quiet, Threads, own_code_only, use_threads
from .screen import one_line, show_json, show_verdict

if TYPE_CHECKING:
    from ..experiments.given import Given

HELP = """Make one HTML page of runs and comparisons: tables, methods, figures, examples, how to make it all again.

The page is a single file that needs no network. What it shows of a model is measured once (a few seconds for a small
network) and kept in RUN/inspection.json. Runs that are broken or not finished are shown as far as they go."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell report runs/compared --open",
    "  bayeswell report runs/digits-bbb-seed0 runs/digits-swag-seed0 --out digits.html",
    "  bayeswell report runs/mnist --full",
    "  bayeswell report runs/mnist --bins 20 --ranks 1,2,4 --layers 'fc*' --draws 500",
    "  bayeswell report runs/own --model net.py:Net",
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
            metavar="RUN_OR_COMPARISON...",
            help="Folders of runs, of comparisons, of sweeps, or full of runs.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.html", help="The page.", show_default="report.html in the first"),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Its title.", show_default="what the runs are")] = "",
    bins: Annotated[
        int | None, typer.Option("--bins", help="Bins of the calibration curves.", show_default="15")
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", metavar="1,2,...", help="Also cut the stds off at these ranks.", show_default="no"),
    ] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="The radius of sharpness.", show_default="0.05")] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", help="Networks drawn for predictions.", show_default="the run's own")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="'fc*,head'",
            help="Whose stds are shown.",
            show_default="spectra of all, the largest as a map",
        ),
    ] = None,
    model: OwnCode = None,
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
    given = {"bins": bins, "ranks": _numbers(ranks), "rho": rho, "draws": draws, "layers": _words(layers)}
    knobs = {name: value for name, value in given.items() if value is not None}
    page, missing = make_page(
        runs, out, title=title, full=full, again=again, quiet=quiet, json=json, own=own_code_only(model), knobs=knobs
    )
    if json:
        show_json({"report": str(page), "bytes": page.stat().st_size, "missing": missing})
    else:
        typer.echo(f"the page is {page}")
    if open_it:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            typer.echo(f"bayeswell: there is no browser to open {page} with", err=True)


def _words(given: str | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(word.strip() for word in given.split(",") if word.strip())


def _numbers(given: str | None) -> tuple[int, ...] | None:
    words = _words(given)
    if words is not None and not all(word.isdigit() for word in words):
        raise SettingError(f"--ranks {given}; whole numbers with commas between them: 1,2,3")
    return None if words is None else tuple(map(int, words))


def make_page(
    runs: Sequence[Path], out: Path | None, *, title: str = "", full: bool = False, again: bool = False,
    quiet: bool = False, json: bool = False, own: Given | None = None, knobs: Mapping[str, Any] | None = None,
) -> tuple[Path, list[str]]:  # fmt: skip
    """Measure what has not been, write the page, say what was gained; where it is, and what is missing, by line."""
    from ..experiments import inspect_run, inspection_of
    from ..experiments.given import NOTHING
    from ..experiments.inspection import Knobs
    from ..report import Verdict, write_report

    chosen = Knobs(**(knobs or {}))

    def inspect(path: Path) -> Mapping[str, Any]:
        if not quiet and (again or inspection_of(path, full=full, knobs=chosen) is None):
            typer.echo(f"{path.name}: measuring", err=True)
        return inspect_run(path, full=full, again=again, knobs=chosen, given=own or NOTHING)

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
