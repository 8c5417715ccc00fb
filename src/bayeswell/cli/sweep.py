"""``sweep``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .screen import new_table, plain, show, show_json

if TYPE_CHECKING:
    from ..experiments import Experiment
    from ..sweeps import SweepResult

HELP = """Search for good settings: train many runs, choose by what the earlier ones gave, and show the best.

Each trial is a run in OUT/trials. The best settings are in [bold]OUT/best.toml[/bold], for `bayeswell train --config`.
The same command again, whatever stopped it, goes on where it was: trials that ended are kept, trials that were cut off
are resumed. Further processes, here or on a machine that sees the folder, help with `bayeswell sweep --join OUT`."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    '  bayeswell sweep -d digits -m bbb --space "stepper.lr=1e-4:1e-1:log" --trials 20 --workers 2 --out sweeps/lr',
    '  bayeswell sweep -d wine -m k-tied --space "posterior.rank=1:3" --space "temperature=0.01,0.1,1" --out sweeps/k',
    "  bayeswell sweep --join sweeps/lr",
    "",
    "[bold]Ranges[/bold]",
    "  stepper.lr=1e-4:1e-1:log   a number, even on the log scale",
    "  posterior.rank=1:8         a whole number, because both ends are whole",
    "  temperature=0.01,0.1,1     one of these",
    "  epochs, batch_size, model.width and the like are settings of the run; all other names are those of --set.",
)
SWEEP = "The sweep"
HELD_OUT = 0.1
"""Share of the training data that trials are judged by, unless another is given."""

SCORES = {"nll": "minimize", "accuracy": "maximize", "ece": "minimize", "brier": "minimize", "rmse": "minimize"}
"""What a trial may be judged by, and which way is better."""

BEST, RESULT = "best.toml", "result.json"
SHOWN = 10

Space = Annotated[
    list[str] | None,
    typer.Option(
        "--space", metavar="KEY=RANGE", help="What to vary, see below. May be repeated.", show_default=False,
        rich_help_panel=SWEEP,
    ),
]  # fmt: skip
Trials = Annotated[int, typer.Option("--trials", help="How many runs.", rich_help_panel=SWEEP)]
Sampler = Annotated[
    str, typer.Option("--sampler", help="tpe learns from earlier trials; random does not.", rich_help_panel=SWEEP)
]
SamplerSeed = Annotated[
    int, typer.Option("--sampler-seed", help="Decides which settings are tried.", rich_help_panel=SWEEP)
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric", help="Which score on held-out data: nll, accuracy, ece, brier or rmse.", rich_help_panel=SWEEP
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", "-w", help="Runs at a time, each in a process.", rich_help_panel=SWEEP)
]
Attempts = Annotated[
    int, typer.Option("--attempts", help="How often a run whose worker died is begun.", rich_help_panel=SWEEP)
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="URL", help="A database that Optuna knows; ${NAME} in it is taken from the environment.",
        show_default="a file in OUT", rich_help_panel=SWEEP,
    ),
]  # fmt: skip
Name = Annotated[
    str | None,
    typer.Option("--name", help="Its name in the database.", show_default="that of OUT", rich_help_panel=SWEEP),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="OUT", help="Its folder.", show_default=False, rich_help_panel=SWEEP),
]
Join = Annotated[
    Path | None,
    typer.Option(
        "--join", metavar="OUT", help="Help with the sweep in this folder, by its own settings.", show_default=False,
        rich_help_panel=SWEEP,
    ),
]  # fmt: skip
HeldOut = Annotated[
    float | None,
    typer.Option(
        "--validation", help="Training examples to judge by: so many, or (below 1) such a share of them.",
        show_default=f"{HELD_OUT}", rich_help_panel=o.HOW,
    ),
]  # fmt: skip
DataWorkers = Annotated[
    int | None,
    typer.Option(
        "--data-workers", help="Processes of each run that read the data.", show_default="0: none",
        rich_help_panel=o.HOW,
    ),
]  # fmt: skip
WorkerThreads = Annotated[
    int | None,
    typer.Option(
        "--threads", help="Threads of each worker.", show_default="torch's, shared out", rich_help_panel=o.HOW
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep", help=HELP, epilog="\n".join(EXAMPLES))(sweep)


def sweep(
    space: Space = None,
    trials: Trials = 20,
    sampler: Sampler = "tpe",
    sampler_seed: SamplerSeed = 0,
    metric: Metric = "nll",
    workers: Workers = 1,
    attempts: Attempts = 5,
    storage: Storage = None,
    name: Name = None,
    out: Out = None,
    join: Join = None,
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
    validation: HeldOut = None,
    validation_rule: o.ValidationRule = None,
    early_stopping: o.EarlyStopping = None,
    early_stopping_metric: o.EarlyStoppingMetric = None,
    augment: o.Augment = None,
    standardise: o.Standardise = None,
    accumulate: o.Accumulate = None,
    data_workers: DataWorkers = None,
    accelerator: o.Accelerator = None,
    precision: o.Precision = None,
    threads: WorkerThreads = None,
    draws: o.Draws = None,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> None:
    """Search for good settings."""
    from ..errors import SettingError, require_count
    from ..sweeps import join_sweep, parse_space, run_sweep, sweep_definition

    require_count("--workers", "workers", workers)
    if threads is not None:
        require_count("--threads", "threads", threads)
    share = threads if threads is not None else _share(workers)
    told = None if quiet else _told
    if join is not None:
        if space or out is not None:
            raise SettingError("--join takes the sweep as its folder has it: leave out --space and --out")
        place, definition = join, sweep_definition(join)
        function = _function(definition.settings, share)
        with _advised():
            result = join_sweep(function, place, workers=workers, watch=told)
    else:
        if out is None:
            raise SettingError("where to? --out FOLDER (or --join FOLDER to help with a sweep)")
        place, ranges = out, parse_space(space or [])
        experiment, _ = o.experiment_from(
            config,
            method=method, method_set=settings, data=data, data_set=data_set, model=model, model_set=model_set,
            likelihood=likelihood, likelihood_set=likelihood_set, epochs=epochs, batch_size=batch_size, seed=seed,
            validation=validation, validation_rule=validation_rule, early_stopping=early_stopping,
            early_stopping_metric=early_stopping_metric, augment=augment, standardise=standardise,
            accumulate=accumulate, workers=data_workers, accelerator=accelerator, precision=precision, draws=draws,
        )  # fmt: skip
        experiment = _judgeable(experiment, metric, ranges)
        shared: dict[str, Any] = {"experiment": experiment.as_json(), "metric": metric}
        function = _function(shared, share)
        with _advised():
            result = run_sweep(
                function, ranges, place,
                trials=trials, sampler=sampler, seed=sampler_seed, direction=SCORES[metric], workers=workers,
                storage=storage, name=name, attempts=attempts, settings=shared, watch=told,
            )  # fmt: skip
    _keep(result, function, place)
    _show(result, function, place, json)
    if result.best is None:
        raise typer.Exit(1)


@dataclass(frozen=True)
class HeldOutScore:
    """What a sweep wants of a trial: the score on held-out data of the experiment with the trial's settings.

    The run is in the trial's folder: called again, it is resumed, or its model is only measured if it had ended.
    """

    experiment: Mapping[str, Any]
    metric: str
    threads: int | None

    def __call__(self, settings: Mapping[str, Any], folder: Path) -> float:
        from ..experiments import RunFailed, run
        from ..training import Interrupted

        o.use_threads(self.threads)
        experiment = self.changed(settings)
        try:
            with warnings.catch_warnings():  # of settings that suit badly: to find those is what the sweep is for
                warnings.simplefilter("ignore")
                run(experiment, folder, resume=True, progress=False)
        except Interrupted as stopped:  # by a signal, its state saved: the trial waits to be gone on with
            raise SystemExit(stopped.exit_code) from stopped
        except RunFailed as failure:
            raise failure.__cause__ or failure from None
        return self.score(experiment, folder)

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """The experiment with these settings."""
        from ..experiments import Experiment

        return Experiment.from_json(self.experiment).changed({_path(name): value for name, value in settings.items()})

    def score(self, experiment: Experiment, folder: Path) -> float:
        """The final model, as it will be used, on the examples that were held out."""
        from ..experiments import load_model, load_problem
        from ..experiments.evaluating import scores_of

        held_out = load_problem(experiment).data
        assert held_out.validation is not None  # seen to before the sweep began
        as_test = replace(held_out, test=held_out.validation)
        scores = scores_of(load_model(folder), as_test, None, draws=experiment.draws)
        return float(scores["test"]["values"][self.metric])


def _path(name: str) -> str:
    """A setting's place in an experiment: its own settings by their names, all others are the method's, as in --set."""
    from ..experiments import experiment_settings

    return name if name.split(".")[0] in experiment_settings() else f"method.{name}"


def _share(workers: int) -> int | None:
    """Threads of each of several workers, which share those of one; None is torch's own number."""
    import torch

    return None if workers == 1 else max(1, torch.get_num_threads() // workers)


def _function(shared: Mapping[str, Any], threads: int | None) -> HeldOutScore:
    return HeldOutScore(shared["experiment"], shared["metric"], threads)


def _judgeable(experiment: Experiment, metric: str, ranges: Any) -> Experiment:
    """The experiment with held-out data; refuses, before any work, what no trial could do."""
    from ..errors import SettingError, nearest
    from ..experiments import load_problem
    from ..sweeps.space import corners

    if metric not in SCORES:
        raise SettingError(f"--metric {metric}; {nearest(metric, SCORES)}")
    if experiment.validation is None:
        experiment = experiment.changed({"validation": HELD_OUT})
    if not experiment.validation:
        raise SettingError(
            f"--validation {experiment.validation}: trials are judged by held-out data, so hold some out"
        )
    for name in ("validation", "validation_rule", "draws", "seed", "data", "ood"):
        if any(varied.split(".")[0] == name for varied in ranges):
            raise SettingError(f"--space {name}: trials would be judged by other data; vary what is trained")
    data = load_problem(experiment).data
    for settings in corners(ranges):
        _try(HeldOutScore(experiment.as_json(), metric, None).changed(settings), settings)
    allowed = ("nll", "rmse") if data.class_names is None else ("nll", "accuracy", "ece", "brier")
    if metric not in allowed:
        raise SettingError(f"--metric {metric}: '{data.name}' has none; {nearest(metric, allowed)}")
    return experiment


def _try(experiment: Experiment, settings: Mapping[str, Any]) -> None:
    """Build all that a trial with these settings would train, and let it go again."""
    from ..errors import BayeswellError, SettingError
    from ..experiments.dry_run import rehearse

    try:
        rehearse({experiment.method_part.name: experiment})
    except (BayeswellError, TypeError) as error:
        raise SettingError(f"--space: at {_settings(settings)}: {error}") from error


class _advised:
    """Say how to go on when a sweep is stopped."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            typer.echo("bayeswell: the sweep was stopped; the same command goes on with it", err=True)


def _told(result: SweepResult) -> None:
    best = result.best
    failed = result.count("failed")
    parts = [f"{result.count('complete') + failed} of {result.wanted} trials"]
    if failed:
        parts.append(f"{failed} failed")
    if best is not None:
        parts.append(f"best {best.value:.5g} (trial {best.number}: {_settings(best.settings)})")
    typer.echo(", ".join(parts), err=True)


def _settings(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_number(value)}" for name, value in settings.items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _keep(result: SweepResult, function: HeldOutScore, place: Path) -> None:
    """The result, and the best settings as a file for ``train --config``."""
    from ..persistence import write_document
    from ..sweeps.toml import write_toml

    write_document(place / RESULT, result.record())
    if result.best is not None:
        record = function.changed(result.best.settings).as_json()
        heading = (
            f"The best of {len(result.ranked())} trials: {function.metric} {result.best.value:.6g} on held-out data"
        )
        write_toml(place / BEST, record, heading)


def _show(result: SweepResult, function: HeldOutScore, place: Path, json: bool) -> None:
    if json:
        show_json({"sweep": str(place), "metric": function.metric, **result.record()})
        return
    best: Sequence[Any] = result.ranked()[:SHOWN]
    names = list(result.trials[0].settings) if result.trials else []
    numbers = ["trial", function.metric, *names, "seconds"]
    table = new_table(*numbers, right=numbers)
    for trial in best:
        cells = [_number(trial.settings[name]) for name in names]
        table.add_row(str(trial.number), f"{trial.value:.5g}", *map(plain, cells), f"{trial.seconds:.1f}")
    failed = [trial for trial in result.trials if trial.state == "failed"]
    complete = result.count("complete")
    show(table, f"{complete} of {result.wanted} trials finished, {len(failed)} failed; the best {len(best)} of them")
    for trial in failed[:SHOWN]:
        typer.echo(f"trial {trial.number} ({_settings(trial.settings)}) failed: {trial.message}")
    if best:
        typer.echo(f"the best settings are in {place / BEST}: bayeswell train --config {place / BEST}")
