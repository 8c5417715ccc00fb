"""``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import command
from .options import Json
from .screen import counted, one_line, show_json

VERIFY_HELP = """See whether every file of a run, a comparison or a saved model is as it was written.

Each file that was altered is named, and the exit code is 1. With [bold]BAYESWELL_KEY[/bold] set, what is not signed
with that key is named too."""
VERIFY_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell verify runs/mnist",
    "  BAYESWELL_KEY=... bayeswell verify model",
)


@command("verify", VERIFY_HELP, VERIFY_EXAMPLES)
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run, a comparison or a model.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """See whether every file is as it was written."""
    from ..experiments import verify as verdicts_of

    found = verdicts_of(folder)
    faults = [verdict for verdict in found if verdict.fault]
    if json:
        listed = [{"path": str(verdict.path), "fault": verdict.fault or None} for verdict in found]
        show_json({"folder": str(folder), "files": listed, "altered": len(faults)})
    else:
        for verdict in faults:
            typer.echo(one_line(verdict.fault))
        good = len(found) - len(faults)
        typer.echo(f"{counted(good, 'file')} as written, {len(faults)} not")
    if faults:
        raise typer.Exit(1)
