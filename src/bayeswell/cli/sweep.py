"""``sweep``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BayeswellError, SettingError, nearest, require_count
from ..experiments.schema import HOW, SETTINGS
from .command import command, with_settings
from .options import Json, Quiet, experiment_from, use_threads
from .sweep_screen import advice_when_stopped, keep_result, settings_in_words, show_progress, show_sweep

if TYPE_CHECKING:
    from ..experiments import Experiment

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
WorkerThreads = Annotated[
    int | None,
    typer.Option("--threads", help="Threads of each worker.", show_default="torch's, shared out", rich_help_panel=HOW),
]


@command("sweep", HELP, EXAMPLES)
@with_settings(
    without=("devices", "ood", "diagnose"),
    workers={"option": "--data-workers", "help": "Processes of each run that read the data."},
    validation={
        "help": "Training examples to judge by: so many, or (below 1) such a share of them.",
        "show_default": str(HELD_OUT),
    },
)
def sweep(
    *,
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
    given: Mapping[str, Any],
    threads: WorkerThreads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Search for good settings."""
    from ..sweeps import join_sweep, parse_space, run_sweep, sweep_definition

    require_count("--workers", "workers", workers)
    if threads is not None:
        require_count("--threads", "threads", threads)
    share = threads if threads is not None else _share(workers)
    watch = None if quiet else show_progress
    shared: dict[str, Any]
    with advice_when_stopped():
        if join is not None:
            if space or out is not None:
                raise SettingError("--join takes the sweep as its folder has it: leave out --space and --out")
            place, shared = join, dict(sweep_definition(join).settings)
            if shared.keys() != {"experiment", "metric"}:
                raise SettingError(f"{str(join)!r} holds the sweep of a program of its own: join it there")
            function = HeldOutScore(**shared, threads=share)
            result = join_sweep(function, place, workers=workers, watch=watch)
        else:
            if out is None:
                raise SettingError("where to? --out FOLDER (or --join FOLDER to help with a sweep)")
            place, ranges = out, parse_space(space or [])
            experiment = _judgeable(experiment_from(given)[0], metric, ranges)
            shared = {"experiment": experiment.as_json(), "metric": metric}
            function = HeldOutScore(**shared, threads=share)
            result = run_sweep(
                function, ranges, place,
                trials=trials, sampler=sampler, seed=sampler_seed, direction=SCORES[metric], workers=workers,
                storage=storage, name=name, attempts=attempts, settings=shared, watch=watch,
            )  # fmt: skip
    best = None if result.best is None else function.changed(result.best.settings).as_json()
    keep_result(result, best, metric=function.metric, place=place)
    show_sweep(result, metric=function.metric, place=place, json=json)
    if best is None:
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

        use_threads(self.threads)
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
    return name if name.split(".")[0] in SETTINGS else f"method.{name}"


def _share(workers: int) -> int | None:
    """Threads of each of several workers, which share those of one; None is torch's own number."""
    import torch

    return None if workers == 1 else max(1, torch.get_num_threads() // workers)


def _judgeable(experiment: Experiment, metric: str, ranges: Any) -> Experiment:
    """The experiment with held-out data; refuses, before any work, what no trial could do."""
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
    from ..experiments.dry_run import rehearse

    try:
        rehearse({experiment.method_part.name: experiment})
    except (BayeswellError, TypeError) as error:
        raise SettingError(f"--space: at {settings_in_words(settings)}: {error}") from error
