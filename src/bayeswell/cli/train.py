"""``train`` and ``resume``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError
from ..experiments.schema import RUN
from .command import command, with_settings
from .comparison_screen import show_comparison, show_failures, told
from .imports import kept_imports
from .options import (
    CheckpointSteps,
    Folds,
    Force,
    Json,
    OwnCode,
    Quiet,
    Threads,
    experiment_from,
    own_code_only,
    use_threads,
    with_code,
)
from .screen import show_json, show_result

TRAIN_HELP = """Train one network by one method, measure it on the test set, and keep everything in a folder.

The folder has [bold]config.json[/bold] (all settings), [bold]metrics.jsonl[/bold] (a line an epoch),
[bold]checkpoints/[/bold], [bold]model/[/bold] and [bold]result.json[/bold]. Whatever stops the run, `bayeswell resume`
goes on with it, bit for bit."""
TRAIN_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell train --data digits --method k-tied --ood noise --out runs/digits",
    "  bayeswell train -d mnist -m bbb -n lenet5 -e 10 --set temperature=1 --set lr=0.001 --out runs/mnist",
    "  bayeswell train -d cifar10 -n resnet18 --model-set width=8 --augment --validation 5000 --early-stopping 5",
    "  bayeswell train -d table.csv --data-set target=price -m swag --out runs/price",
    "  bayeswell train -d table.csv --model net.py:Net --model-set width=64 --out runs/own",
    "  bayeswell train -d wine -m bbb --folds 5 --out runs/folds",
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

A finished run is left as it is, and its result is shown; with [bold]--epochs[/bold] it goes on until it has had as
many. A network that is your own code is given again: nothing in a folder is ever run."""
RESUME_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell resume runs/mnist",
    "  bayeswell resume runs/mnist --epochs 40",
    "  bayeswell resume runs/own --model net.py:Net",
)

Csv = Annotated[bool, typer.Option("--csv", help="Also write metrics.csv.", rich_help_panel=RUN)]
Tensorboard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write events for TensorBoard.", rich_help_panel=RUN)
]
PLACE = ("out", "root", "name")
"""What a settings file may say besides, of where the run goes."""


@command("train", TRAIN_HELP, TRAIN_EXAMPLES)
@with_settings()
def train(
    *,
    given: Mapping[str, Any],
    threads: Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="RUN", help="The folder of the run.", show_default="ROOT/NAME", rich_help_panel=RUN
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Where runs are kept by name.", show_default="runs", rich_help_panel=RUN),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The run's name in the root.", show_default="DATA-METHOD-seedN", rich_help_panel=RUN
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that may be there.", rich_help_panel=RUN)
    ] = False,
    folds: Folds = None,
    force: Force = False,
    checkpoint_steps: CheckpointSteps = None,
    csv: Csv = False,
    tensorboard: Tensorboard = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train one network by one method."""
    with kept_imports():
        from ..experiments import run

    given, own = with_code(given)
    experiment, said = experiment_from(given, PLACE)
    place = _place(experiment.name if folds is None else f"{experiment.name}-{folds}folds", said, out, root, name)
    use_threads(threads)
    if folds is not None:
        for option, used in (("--force", force), ("--csv", csv), ("--tensorboard", tensorboard)):
            if used:
                raise SettingError(f"{option} is for one run; with --folds there are {folds}")
        from ..experiments import compare

        label = experiment.method_part.name
        table = compare(
            {label: experiment}, [experiment.seed], place, folds=folds, progress=not quiet, given=own,
            told=None if quiet else told, checkpoint_steps=checkpoint_steps,
        )  # fmt: skip
        show_json(table) if json else show_comparison(table, place)
        show_failures(table)
        return
    record = run(
        experiment, place, resume=resume, force=force, checkpoint_steps=checkpoint_steps,
        loggers=_loggers(place, csv, tensorboard), progress=not quiet, given=own,
    )  # fmt: skip
    _show(record, place, json)


@command("resume", RESUME_HELP, RESUME_EXAMPLES)
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.", show_default=False)],
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", "-e", help="Train on to so many epochs in all.", show_default="as it was begun"),
    ] = None,
    model: OwnCode = None,
    force: Force = False,
    checkpoint_steps: CheckpointSteps = None,
    threads: Threads = None,
    csv: Csv = False,
    tensorboard: Tensorboard = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on with a run that was stopped."""
    with kept_imports():
        from ..experiments import experiment_of, finished_result, resume_run
        from ..experiments.paths import run_config
        from ..training.identity import threads_of

    done = finished_result(run) if run_config(run) and epochs is None else None  # first of all: is there a run?
    if done is None:
        begun = experiment_of(run)
        done = finished_result(run) if epochs == begun.epochs else None
    if done is not None:
        if not json:
            typer.echo(f"the run in {run} is finished; there is nothing left to do")
        _show(done, run, json)
        return
    own = own_code_only(model)
    use_threads(threads or threads_of(run_config(run)))
    record = resume_run(
        run, epochs=epochs, given=own, force=force, checkpoint_steps=checkpoint_steps,
        loggers=_loggers(run, csv, tensorboard), progress=not quiet,
    )  # fmt: skip
    _show(record, run, json)


def _place(own: str, said: Mapping[str, Any], out: Path | None, root: Path | None, name: str | None) -> Path:
    """Where the run goes: ``--out``, or its name in the root; the command line before the file, its own name last."""
    from ..experiments import path_of, place_in

    for key, value in said.items():
        if not isinstance(value, str):
            raise SettingError(f"{key} = {value!r}; it must be a text")
    if out is not None and (name is not None or root is not None):
        raise SettingError("--out says where the run goes: leave out --root and --name")
    if out is None and root is None and name is None:
        out = said.get("out")
    return (
        path_of(out) if out is not None else place_in(root or said.get("root", "runs"), name or said.get("name", own))
    )


def _loggers(place: Path, csv: bool, tensorboard: bool) -> list[Any]:
    from ..experiments import TensorBoardLogger
    from ..training import CSVLogger

    chosen: list[Any] = [CSVLogger(place / "metrics.csv")] if csv else []
    return [*chosen, TensorBoardLogger(place / "tensorboard")] if tensorboard else chosen


def _show(record: dict[str, Any], place: Path, json: bool) -> None:
    if not record:  # another process of the same run has it
        return
    if json:
        show_json({"run": str(place), **record})
    else:
        show_result(record, str(place))
