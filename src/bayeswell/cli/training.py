"""``train`` and ``resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options as o
from .screen import show_json, show_result

TRAIN_HELP = """Train one network by one method, measure it on the test set, and keep everything in a folder.

The folder has [bold]config.json[/bold] (all settings), [bold]metrics.jsonl[/bold] (a line an epoch),
[bold]checkpoints/[/bold], [bold]model/[/bold] and [bold]result.json[/bold]. Whatever stops the run, `bayeswell resume`
goes on with it, bit for bit."""
TRAIN_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell train --data digits --method k-tied --ood noise --out runs/digits",
    "  bayeswell train -d mnist -m bbb -n lenet5 -e 10 --set temperature=1 --set stepper.lr=0.001 --out runs/mnist",
    "  bayeswell train -d cifar10 -n resnet18 --model-set width=8 --augment --validation 5000 --early-stopping 5",
    "  bayeswell train -d table.csv --data-set target=price -m swag --out runs/price",
    "  bayeswell train --config settings.toml --seed 1",
    "",
    "[bold]A settings file[/bold] has the long options as keys, and a table for each thing with a name and settings:",
    "  epochs = 40",
    "  batch_size = 50",
    "  data = 'digits'",
    "  \\[method]",
    "  name = 'k-tied'",
    "  posterior.rank = 3",
)
RESUME_HELP = """Go on with a run that was stopped, exactly as if it had never been, from its folder alone.

A finished run is left as it is, and its result is shown."""
RESUME_EXAMPLES = ("[bold]Example[/bold]", "  bayeswell resume runs/mnist")

Csv = Annotated[bool, typer.Option("--csv", help="Also write metrics.csv.", rich_help_panel=o.RUN)]
Tensorboard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write events for TensorBoard.", rich_help_panel=o.RUN)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("train", help=TRAIN_HELP, epilog="\n".join(TRAIN_EXAMPLES))(train)
    app.command("resume", help=RESUME_HELP, epilog="\n".join(RESUME_EXAMPLES))(resume)


def train(
    method: o.Method = None,
    settings: o.Set = None,
    data: o.Data = None,
    data_set: o.DataSet = None,
    model: o.Model = None,
    model_set: o.ModelSet = None,
    likelihood: o.Likelihood = None,
    likelihood_set: o.LikelihoodSet = None,
    config: o.Config = None,
    epochs: o.Epochs = None,
    batch_size: o.BatchSize = None,
    seed: o.Seed = None,
    validation: o.Validation = None,
    validation_rule: o.ValidationRule = None,
    early_stopping: o.EarlyStopping = None,
    early_stopping_metric: o.EarlyStoppingMetric = None,
    augment: o.Augment = None,
    standardise: o.Standardise = None,
    accumulate: o.Accumulate = None,
    diagnose: o.Diagnose = None,
    workers: o.Workers = None,
    accelerator: o.Accelerator = None,
    devices: o.DeviceCount = None,
    precision: o.Precision = None,
    threads: o.Threads = None,
    ood: o.Ood = None,
    ood_set: o.OodSet = None,
    draws: o.Draws = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="RUN", help="The folder of the run.", show_default="ROOT/NAME", rich_help_panel=o.RUN
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Where runs are kept by name.", show_default="runs", rich_help_panel=o.RUN),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The run's name in the root.", show_default="DATA-METHOD-seedN", rich_help_panel=o.RUN
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that may be there.", rich_help_panel=o.RUN)
    ] = False,
    force: o.Force = False,
    checkpoint_steps: o.CheckpointSteps = None,
    csv: Csv = False,
    tensorboard: Tensorboard = False,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> None:
    """Train one network by one method."""
    from ..experiments import path_of, place_in, run

    experiment, others = o.experiment_from(
        config, ("out", "root", "name"),
        method=method, method_set=settings, data=data, data_set=data_set, model=model, model_set=model_set,
        likelihood=likelihood, likelihood_set=likelihood_set, epochs=epochs, batch_size=batch_size, seed=seed,
        validation=validation, validation_rule=validation_rule, early_stopping=early_stopping,
        early_stopping_metric=early_stopping_metric, augment=augment, standardise=standardise, accumulate=accumulate,
        workers=workers, accelerator=accelerator, devices=devices, precision=precision, ood=ood, ood_set=ood_set,
        draws=draws, diagnose=diagnose,
    )  # fmt: skip
    place = _place(experiment, others, out, root, name, path_of, place_in)
    o.use_threads(threads)
    record = run(
        experiment, place, resume=resume, force=force, checkpoint_steps=checkpoint_steps,
        loggers=_loggers(place, csv, tensorboard), progress=not quiet,
    )  # fmt: skip
    _show(record, place, json)


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.", show_default=False)],
    force: o.Force = False,
    checkpoint_steps: o.CheckpointSteps = None,
    threads: o.Threads = None,
    csv: Csv = False,
    tensorboard: Tensorboard = False,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> None:
    """Go on with a run that was stopped."""
    from ..experiments import experiment_of, finished_result, resume_run

    experiment_of(run)  # first of all: is there a run?
    done = finished_result(run)
    if done is not None:
        if not json:
            typer.echo(f"the run in {run} is finished; there is nothing left to do")
        _show(done, run, json)
        return
    o.use_threads(threads)
    record = resume_run(
        run, force=force, checkpoint_steps=checkpoint_steps,
        loggers=_loggers(run, csv, tensorboard), progress=not quiet,
    )  # fmt: skip
    _show(record, run, json)


def _place(
    experiment: Any, others: dict[str, Any], out: Path | None, root: Path | None, name: str | None,
    path_of: Any, place_in: Any,
) -> Path:  # fmt: skip
    """Where the run goes: ``--out``, or its name in the root; the command line before the file."""
    from ..errors import SettingError

    for key, value in others.items():
        if not isinstance(value, str):
            raise SettingError(f"{key} = {value!r}; it must be a text")
    if out is None and root is None and name is None and "out" in others:
        out = others["out"]
    if out is not None:
        if name is not None or root is not None:
            raise SettingError("--out says where the run goes: leave out --root and --name")
        return Path(path_of(out))
    return Path(place_in(root or others.get("root", "runs"), name or others.get("name") or experiment.name))


def _loggers(place: Path, csv: bool, tensorboard: bool) -> list[Any]:
    from ..experiments import CsvLog, TensorBoardLog

    chosen: list[Any] = [CsvLog(place / "metrics.csv")] if csv else []
    return [*chosen, TensorBoardLog(place / "tensorboard")] if tensorboard else chosen


def _show(record: dict[str, Any], place: Path, json: bool) -> None:
    if not record:  # another process of the same run has it
        return
    if json:
        show_json({"run": str(place), **record})
    else:
        show_result(record, str(place))
