"""``fidelity``: how near predicted probabilities are to those of a reference posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import command
from .options import Json
from .screen import counted, new_table, show, show_json

HELP = """Compare predicted class probabilities with those of a reference, such as a long HMC run.

Agreement is the share of examples with the same most probable class, total variation the mean of half the sum of
absolute differences: 0 is the same distribution, 1 the farthest. Both files are .csv (as `bayeswell predict` writes
them; columns are matched by class name) or .npz (an array of examples by classes)."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell predict runs/digits --input test.npz --out predictions.csv",
    "  bayeswell fidelity predictions.csv hmc.csv",
)


@command("fidelity", HELP, EXAMPLES)
def fidelity(
    predictions: Annotated[Path, typer.Argument(metavar="PREDICTIONS", show_default=False, help="Of the model.")],
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", show_default=False, help="To compare it with.")],
    json: Json = False,
) -> None:
    """Compare predicted class probabilities with those of a reference."""
    from ..diagnostics import fidelity_to_file

    record = fidelity_to_file(predictions, reference).as_json()
    if json:
        show_json(record)
        return
    table = new_table("score", "value", "± over examples", right=("value", "± over examples"))
    for name in ("agreement", "total_variation"):
        error = record[f"{name}_error"]
        table.add_row(name.replace("_", " "), f"{record[name]:.4f}", "" if error is None else f"{error:.4f}")
    show(table, f"{counted(record['examples'], 'example')}, {record['classes']} classes")
