"""``evaluate`` and ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError
from .command import command
from .options import Json
from .screen import counted, show_json, show_scores

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
def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Other data, or 'corrupted'.", show_default="the run's own")
    ] = None,
    data_set: Annotated[
        list[str] | None,
        typer.Option("--data-set", metavar="KEY=VALUE", help="A setting of the data: severity=5.", show_default=False),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Networks drawn for a prediction.")] = 100,
    ood: Annotated[
        str | None, typer.Option("--ood", help="Data outside the distribution.", show_default="none")
    ] = None,
    ood_set: Annotated[
        list[str] | None,
        typer.Option("--ood-set", metavar="KEY=VALUE", help="A setting of it.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Decides the draws.")] = 0,
    json: Json = False,
) -> None:
    """Measure a finished run on test data."""
    from ..experiments import evaluate as measured

    record = measured(run, _choice("data", data, data_set), draws=draws, ood=_choice("ood", ood, ood_set), seed=seed)
    if json:
        show_json(record)
    else:
        show_scores(
            record, f"{run} on {record['data']}, {counted(record['examples'], 'example')}, {counted(draws, 'draw')}"
        )


@command("predict", PREDICT_HELP, PREDICT_EXAMPLES)
def predict(
    run: RunFolder,
    inputs: Annotated[
        Path,
        typer.Option("--input", "-i", metavar="FILE", help="New inputs: .csv, .npz or pictures.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.csv", help="Where predictions go.", show_default="stdout"),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Networks drawn for a prediction.")] = 100,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Decides the draws.")] = 0,
    json: Json = False,
) -> None:
    """Predict for new inputs."""
    from ..experiments import predict_file, write_predictions
    from ..experiments.predicting import picture_files, prediction_rows

    found, spec = predict_file(run, inputs, draws=draws, seed=seed)
    files = picture_files(inputs)
    if out is not None:
        write_predictions(out, found, spec, files)
    rows = list(prediction_rows(found, spec, files))
    if json:
        shown = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        show_json({"run": str(run), "examples": len(shown), "draws": found.draws, "predictions": shown})
    elif out is not None:
        typer.echo(f"{counted(len(rows) - 1, 'prediction')} ({', '.join(rows[0])}) in {out}")
    else:
        import csv
        import sys

        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def _choice(what: str, name: str | None, pairs: list[str] | None) -> dict[str, Any] | None:
    from ..experiments import parse_settings

    settings = parse_settings(pairs or [], f"--{what}-set")
    if name is None and settings:
        raise SettingError(f"--{what}-set: say which data with --{what}")
    return None if name is None else {"name": name, **settings}
