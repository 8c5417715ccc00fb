"""``evaluate`` and ``predict``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError
from ..experiments.schema import SETTINGS
from .command import command, with_settings
from .imports import kept_imports
from .options import Json, OwnCode, Threads, own_code_only, use_threads, with_choice
from .screen import counted, one_line, show_corruptions, show_json, show_scores

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="The folder of a finished run, or of a saved model.", show_default=False
    ),
]  # fmt: skip
EVALUATE_HELP = """Measure a finished run on test data: its own, other data of the same kind, or its own corrupted.

Accuracy, NLL, ECE and Brier score; or RMSE, R2, NLL, CRPS and how many targets the intervals cover, in the units of the
targets; each with its standard error over the test examples (--json has more of them). The NLL is that of the run's
likelihood, averaged over draws. With --ood also how well the entropy tells inputs from outside. Columns and classes of
other files are matched by name; --data-set test_share=1 measures on every row of a file."""
EVALUATE_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell evaluate runs/digits --draws 500",
    "  bayeswell evaluate runs/digits --prediction mean",
    "  bayeswell evaluate runs/digits --data corrupted --data-set corruption=gaussian_blur --data-set severity=5",
    "  bayeswell evaluate runs/digits --corruptions all",
    "  bayeswell evaluate runs/cifar10 --corruptions data/CIFAR-10-C --corrupted-images 0",
    "  bayeswell evaluate runs/price --data held_out.csv --data-set test_share=1",
    "  bayeswell evaluate runs/mnist --ood notmnist --json",
)
PREDICT_HELP = """Predict for new inputs, with the uncertainty of each prediction.

Inputs are a .csv file (an example a row; columns by name if the run was trained on a csv file), a .npz file (array x),
a picture or a folder of pictures. Numbers are in the units of the files that the run was trained on: pixels 0 to 255
(digits: 0 to 16), or real numbers from 0 to 1. The output is a csv file: label, probabilities, entropy and its
epistemic and aleatoric parts in nats; or mean, std, epistemic_std, aleatoric_std, lower and upper in the units of the
targets. lower and upper are the ends of the central interval in which a new target lies with probability 0.9."""
PREDICT_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell predict runs/price --input new.csv --out predictions.csv",
    "  bayeswell predict runs/price --input new.csv --interval 0.5 --quantiles 0.01,0.99",
    "  bayeswell predict runs/mnist --input digits.npz --out predictions.csv --draws 500",
    "  bayeswell predict runs/animals --input photos/ --out predictions.csv",
)


@command("evaluate", EVALUATE_HELP, EVALUATE_EXAMPLES)
@with_settings(
    "data", "draws", "prediction", "ood", "seed", trains=False, seed={"help": "Decides the draws."},
    prediction={"show_default": "as the run says"},
    data={
        "help": "Other data, or 'corrupted'.", "show_default": "the run's own",
        "settings": "A setting of the data: severity=5, test_share=1.",
    },
)  # fmt: skip
def evaluate(
    *,
    run: RunFolder,
    corruptions: Annotated[
        str | None,
        typer.Option(
            "--corruptions",
            metavar="NAME,...|FOLDER",
            help="Also on corrupted test images in five severities: all, families (noise, blur, weather, digital), "
            "names, or a folder of published files like CIFAR-10-C's.",
            show_default="none",
        ),
    ] = None,
    corrupted_images: Annotated[
        int,
        typer.Option(
            "--corrupted-images",
            min=0,
            help="How many images each severity has; 0: all, as in papers.",
        ),
    ] = 1000,
    given: Mapping[str, Any],
    model: OwnCode = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure a finished run on test data."""
    with kept_imports():
        from ..experiments import evaluate as measured

    use_threads(threads)
    chosen: dict[str, Any] = {}
    for name in ("data", "ood"):
        chosen = with_choice(chosen, given, SETTINGS[name])
    said = _said(given, "draws", "seed", "prediction")
    # The name of a folder may have a comma in it.
    folder = corruptions is not None and Path(corruptions).is_dir()
    named = None if corruptions is None else [corruptions] if folder else [n.strip() for n in corruptions.split(",")]
    record = measured(
        run,
        chosen.get("data"),
        ood=chosen.get("ood"),
        corruptions=named,
        corrupted_images=corrupted_images or None,
        given=own_code_only(model),
        **said,
    )
    if json:
        show_json(record)
        return
    counts = [counted(record[f"{thing}s"], thing) for thing in ("example", "draw")]
    show_scores(record, f"{run} on {record['data']}, {', '.join(counts)}, prediction {record['prediction']}")
    if "corruptions" in record:
        show_corruptions(record["corruptions"])
    if "calibration" in record:
        typer.echo(f"calibration: {record['calibration']}")


@command("predict", PREDICT_HELP, PREDICT_EXAMPLES)
@with_settings(
    "draws", "prediction", "seed", trains=False, seed={"help": "Decides the draws."},
    prediction={"show_default": "as the run says"},
)  # fmt: skip
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
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="LEVEL", help="Of real targets: lower and upper end; 0 leaves them out."),
    ] = 0.9,
    quantiles: Annotated[
        str | None,
        typer.Option(
            "--quantiles", metavar="Q,Q,...", help="Of real targets: a column for each level.", show_default="none"
        ),
    ] = None,
    nats: Annotated[bool, typer.Option("--nats", help="Of real targets: also entropy and its parts, in nats.")] = False,
    given: Mapping[str, Any],
    model: OwnCode = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Predict for new inputs."""
    with kept_imports():
        from ..experiments import predict_file, write_predictions
        from ..experiments.predicting import Shown, picture_files, prediction_rows
        from ..experiments.table_inputs import id_cells

    use_threads(threads)
    levels = () if quantiles is None else numbers_in("--quantiles", quantiles)
    for option, level in (("--interval", interval), *(("--quantiles", level) for level in levels)):
        if not 0 < level < 1 and not (option == "--interval" and level == 0):
            raise SettingError(f"{option} {level:g}: it must lie between 0 and 1")
    said = _said(given, "draws", "seed", "prediction")
    found, spec = predict_file(run, inputs, given=own_code_only(model), **said)
    shown = Shown(interval, levels, nats, given["seed"] or 0)
    files, ids = picture_files(inputs), id_cells(Path(inputs), spec)
    if out is not None:
        write_predictions(out, found, spec, files, shown, ids)
    rows = list(prediction_rows(found, spec, files, shown, ids))
    if json:
        predictions = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        show_json({"run": str(run), "examples": len(predictions), "draws": found.draws, "predictions": predictions})
    elif out is not None:
        typer.echo(one_line(f"{counted(len(rows) - 1, 'prediction')} ({', '.join(rows[0])}) in {out}"))
    else:
        import csv
        import sys

        printed = [[one_line(cell) for cell in row] for row in rows] if sys.stdout.isatty() else rows
        csv.writer(sys.stdout, lineterminator="\n").writerows(printed)


def numbers_in(option: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingError(f"{option} {text}: numbers with commas between them are wanted, as in 0.05,0.95") from None


def _said(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of which something was said; the others have their defaults."""
    return {name: given[name] for name in names if given[name] is not None}
