"""``sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError, require_count
from ..experiments.schema import HOW
from .command import OURS, command, with_settings
from .options import Json, Quiet, experiment_from, with_code
from .sweep_screen import advice_when_stopped, show_progress, show_sweep

if TYPE_CHECKING:
    from ..experiments.given import Given

HELP = """Search for good settings: train many runs, choose by what the earlier ones gave, and show the best.

Each trial is a run in OUT/trials. The best settings are in [bold]OUT/best.toml[/bold], for `bayeswell train --config`.
The same command again, whatever stopped it, goes on where it was: trials that ended are kept, trials that were cut off
are resumed. Further processes, here or on a machine that sees the folder, help with `bayeswell sweep --join OUT`. With
--storage on PostgreSQL machines need no folder in common: the same command on each, or --join with the address."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    '  bayeswell sweep -d digits -m bbb --space "stepper.lr=1e-4:1e-1:log" --trials 20 --workers 2 --out sweeps/lr',
    '  bayeswell sweep -d wine -m k-tied --space "posterior.rank=1:3" --space "temperature=0.01,0.1,1" --out sweeps/k',
    '  bayeswell sweep -d wine -m bbb --sampler grid --space "stepper.lr=0.001,0.01,0.1" --seeds 3 --out sweeps/grid',
    '  bayeswell sweep -d table.csv --model net.py:Net --space "model.width=16:256:log" --out sweeps/width',
    "  bayeswell sweep --join sweeps/lr",
    "  bayeswell sweep --join here/lr --storage 'postgresql+psycopg://me:${PASSWORD}@host/sweeps' --name lr",
    "",
    "[bold]Ranges[/bold]",
    "  stepper.lr=1e-4:1e-1:log   a number, even on the log scale",
    "  posterior.rank=1:8         a whole number, because both ends are whole",
    "  temperature=0.01,0.1,1     one of these",
    "  stepper.lr=near:0.01,0.1   one of these, v, then drawn from N(v, v/2) until above 0 (--sampler random)",
    "  stepper.beta1=near:0.5,0.9:below=1   the same, and below 1",
    "  epochs, batch_size, model.width and the like are settings of the run; all other names are those of --set.",
)
SWEEP = "The sweep"
Space = Annotated[
    list[str] | None,
    typer.Option(
        "--space", metavar="KEY=RANGE", help="What to vary, see below. May be repeated.", show_default=False,
        rich_help_panel=SWEEP,
    ),
]  # fmt: skip
Trials = Annotated[
    int | None,
    typer.Option("--trials", help="How many settings to try.", show_default="20; of a grid all", rich_help_panel=SWEEP),
]
Sampler = Annotated[
    str,
    typer.Option(
        "--sampler",
        help="tpe learns from earlier trials, random does not, grid visits every combination once.",
        rich_help_panel=SWEEP,
    ),
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
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds", "-k", help="Runs of each trial, of the seeds from --seed on: its score is their mean.",
        rich_help_panel=SWEEP,
    ),
]  # fmt: skip
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold", help="Say which share of the trials has a score at least as good as this.", show_default=False,
        rich_help_panel=SWEEP,
    ),
]  # fmt: skip
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
    without=("devices", "ood", "diagnose", "fold"),
    workers={"option": "--data-workers", "help": "Processes of each run that read the data."},
    validation={
        "help": "Training examples to judge by: so many, or (below 1) such a share of them.",
        "show_default": "0.1",
    },
)
def sweep(
    *,
    context: typer.Context,
    space: Space = None,
    trials: Trials = None,
    sampler: Sampler = "tpe",
    sampler_seed: SamplerSeed = 0,
    metric: Metric = "nll",
    seeds: Seeds = 1,
    threshold: Threshold = None,
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
    from ..workbench.sweep_files import keep_result, sweep_record
    from ..workbench.trials import SCORES, HeldOutScore, judgeable, shared_by_trials

    require_count("--workers", "workers", workers)
    if threads is not None:
        require_count("--threads", "threads", threads)
    share = threads if threads is not None else _share(workers)
    watch = None if quiet else show_progress
    shared: dict[str, Any]
    given, own = with_code(given)
    with advice_when_stopped():
        if join is not None:
            _refuse_changes(context, own)
            place, shared = join, dict(sweep_definition(join, storage=storage, name=name).settings)
            if shared.keys() - {"seeds"} != {"experiment", "metric"}:
                raise SettingError(f"{str(join)!r} holds the sweep of a program of its own: join it there")
            function = HeldOutScore(**shared, threads=share, given=own)
            _require_code(function)
            result = join_sweep(function, place, workers=workers, watch=watch)
        else:
            if out is None:
                raise SettingError("where to? --out FOLDER (or --join FOLDER to help with a sweep)")
            place, ranges = out, parse_space(space or [])
            experiment = judgeable(experiment_from(given)[0], metric, ranges, own)
            shared = shared_by_trials(experiment, metric, seeds)
            function = HeldOutScore(**shared, threads=share, given=own)
            result = run_sweep(
                function, ranges, place,
                trials=trials, sampler=sampler, seed=sampler_seed, direction=SCORES[metric], workers=workers,
                storage=storage, name=name, attempts=attempts, settings=shared, watch=watch,
            )  # fmt: skip
    best = None if result.best is None else function.changed(result.best.settings).as_json()
    record = sweep_record(result, function.metric, place, threshold)
    keep_result(record, place, best)
    code = own.network.name if own.network is not None else ""
    show_sweep(result, record, metric=function.metric, place=place, json=json, code=code)
    if best is None:
        raise typer.Exit(1)


_OF_A_JOIN = frozenset({"join", "storage", "name", "workers", "threads", "threshold", "quiet", "json"})
"""What the one who helps may say; all else is the sweep's."""


def _refuse_changes(context: typer.Context, own: Given) -> None:
    """Options that a join cannot heed are not passed over."""
    heeded = _OF_A_JOIN if own.network is None else _OF_A_JOIN | {f"{OURS}model"}
    said = [
        option.opts[0]
        for option in context.command.params
        if option.name not in heeded and _is_said(context, option.name)
    ]
    if said:
        listed = " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))
        raise SettingError(f"--join takes the sweep as its folder has it: leave out {listed}")


def _is_said(context: typer.Context, name: str | None) -> bool:
    source = None if name is None else context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _require_code(function: Any) -> None:
    """A sweep of a network of one's own needs its code again, the same as before."""
    from ..experiments import Experiment
    from ..experiments.given import code_needed, needs_code

    begun = Experiment.from_json(function.experiment)
    if needs_code(begun.model) and function.given.network is None:
        raise SettingError(f"the network {code_needed(begun.model)}")
    if function.given.network is not None and not needs_code(begun.model):
        raise SettingError("--model: the network of this sweep is no code; leave it out")
    if function.given.named_in(begun) != begun:
        raise SettingError("--model: the code is not that which the sweep was begun with; begin another sweep")


def _share(workers: int) -> int | None:
    """Threads of each of several workers, which share those of one; None is torch's own number."""
    import torch

    return None if workers == 1 else max(1, torch.get_num_threads() // workers)
