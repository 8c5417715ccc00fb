"""``evaluate`` and ``predict``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..experiments.schema import SETTINGS
from .command import command, with_settings
from .options import Json, with_choice
from .screen import counted, one_line, show_json, show_scores

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="The folder of a finished run, or of a saved model.", show_default=False
    ),
]  # fmt: skip
EVALUATE_HELP = """Measure a finished run on test data: its own, other data of the same kind, or its own corrupted.

Accuracy, NLL, ECE and Brier score, or RMSE and NLL in the units of the targets; each with its standard error over the
test examples. With --ood also how well the entropy tells inputs from outside. Columns and classes of other files are
matched by name; --data-set test_share=1 measures on every row of a file."""
EVALUATE_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell evaluate runs/digits --draws 500",
    "  bayeswell evaluate runs/digits --data corrupted --data-set corruption=gaussian_blur --data-set severity=5",
    "  bayeswell evaluate runs/price --data held_out.csv --data-set test_share=1",
    "  bayeswell evaluate runs/mnist --ood notmnist --json",
)
PREDICT_HELP = """Predict for new inputs, with the uncertainty of each prediction.

Inputs are a .csv file (an example a row; columns by name if the run was trained on a csv file), a .npz file (array x),
a picture or a folder of pictures. Numbers are in the units of the files that the run was trained on: pixels 0 to 255
(digits: 0 to 16), or real numbers from 0 to 1. The output is a csv file: label, probabilities, entropy and its
epistemic and aleatoric parts in nats; or mean, std, epistemic_std and aleatoric_std in the units of the targets."""
PREDICT_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell predict runs/price --input new.csv --out predictions.csv",
    "  bayeswell predict runs/mnist --input digits.npz --out predictions.csv --draws 500",
    "  bayeswell predict runs/animals --input photos/ --out predictions.csv",
)


@command("evaluate", EVALUATE_HELP, EVALUATE_EXAMPLES)
@with_settings(
    "data", "draws", "ood", "seed", trains=False, seed={"help": "Decides the draws."},
    data={
        "help": "Other data, or 'corrupted'.", "show_default": "the run's own",
        "settings": "A setting of the data: severity=5, test_share=1.",
    },
)  # fmt: skip
def evaluate(*, run: RunFolder, given: Mapping[str, Any], json: Json = False) -> None:
    """Measure a finished run on test data."""
    from ..experiments import evaluate as measured

    chosen: dict[str, Any] = {}
    for name in ("data", "ood"):
        chosen = with_choice(chosen, given, SETTINGS[name])
    record = measured(run, chosen.get("data"), ood=chosen.get("ood"), **_said(given, "draws", "seed"))
    if json:
        show_json(record)
        return
    counts = [counted(record[f"{thing}s"], thing) for thing in ("example", "draw")]
    show_scores(record, f"{run} on {record['data']}, {', '.join(counts)}")
    if "calibration" in record:
        typer.echo(f"calibration: {record['calibration']}")


@command("predict", PREDICT_HELP, PREDICT_EXAMPLES)
@with_settings("draws", "seed", trains=False, seed={"help": "Decides the draws."})
def predict(
    *,
    run: RunFolder,
    inputs: Annotated[
        Path,
        typer.Option("--input", "-i", metavar="FILE", help="New inputs: .csv, .npz or pictures.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.csv", help="Where predictions go.", show_default="stdout"),
    ] = None,
    given: Mapping[str, Any],
    json: Json = False,
) -> None:
    """Predict for new inputs."""
    from ..experiments import predict_file, write_predictions
    from ..experiments.predicting import picture_files, prediction_rows

    found, spec = predict_file(run, inputs, **_said(given, "draws", "seed"))
    files = picture_files(inputs)
    if out is not None:
        write_predictions(out, found, spec, files)
    rows = list(prediction_rows(found, spec, files))
    if json:
        shown = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        show_json({"run": str(run), "examples": len(shown), "draws": found.draws, "predictions": shown})
    elif out is not None:
        typer.echo(one_line(f"{counted(len(rows) - 1, 'prediction')} ({', '.join(rows[0])}) in {out}"))
    else:
        import csv
        import sys

        safe = [[one_line(cell) for cell in row] for row in rows] if sys.stdout.isatty() else rows
        csv.writer(sys.stdout, lineterminator="\n").writerows(safe)


def _said(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of which something was said; the others have their defaults."""
    return {name: given[name] for name in names if given[name] is not None}
