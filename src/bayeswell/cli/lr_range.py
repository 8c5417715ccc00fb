"""``lr-range``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import command, with_settings
from .options import Json, Threads, experiment_from, use_threads, with_code
from .screen import show_json

if TYPE_CHECKING:
    from ..training import RateRange

HELP = """Find a learning rate: raise it step by step and see where the objective falls and where it breaks.

Nothing is kept but a picture, if matplotlib is installed. Use the suggestion as
[bold]--set lr=...[/bold]; --lowest and --highest are the ends of the range."""
EXAMPLES = (
    "[bold]Example[/bold]",
    "  bayeswell lr-range --data digits --method bbb --plot rates.png",
)


@command("lr-range", HELP, EXAMPLES)
@with_settings("method", "data", "model", "likelihood", "where", "batch_size", "seed")
def lr_range(
    *,
    given: Mapping[str, Any],
    threads: Threads = None,
    lowest: Annotated[float, typer.Option("--lowest", help="The first rate.")] = 1e-5,
    highest: Annotated[
        float | None,
        typer.Option("--highest", help="The last rate.", show_default="1, or a hundred times the method's own"),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="How many rates, a step each.")] = 100,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Where the picture goes.", show_default="lr-range.png"),
    ] = None,
    json: Json = False,
) -> None:
    """Find a learning rate."""
    from ..experiments import load_problem
    from ..training import rate_range

    given, own = with_code(given)
    experiment, _ = experiment_from(given)
    use_threads(threads)
    problem = load_problem(experiment, own, with_ood=False)
    found = rate_range(
        problem.net, problem.data.train, experiment.method_part, problem.likelihood,
        lowest=lowest, highest=highest, steps=steps, batch_size=experiment.batch_size, seed=experiment.seed,
        where=experiment.where,
    )  # fmt: skip
    picture = _picture(found, plot)
    if json:
        show_json({**dataclasses.asdict(found), "plot": picture})
        return
    broke = "it did not break" if found.broke_at is None else f"it broke at {found.broke_at:.3g}"
    best = min(found.objectives)
    typer.echo(f"suggested learning rate: {found.suggestion:.3g}   (--set lr={found.suggestion:.3g})")
    typer.echo(
        f"{len(found.rates)} rates from {found.rates[0]:.3g} to {found.rates[-1]:.3g}; the objective fell from "
        f"{found.objectives[0]:.4g} to {best:.4g} nats per example, {broke}"
    )
    if picture is not None:
        typer.echo(f"picture in {picture}")


def _picture(found: RateRange, path: Path | None) -> str | None:
    """Draw it: to a path that was asked for, else to one of our own if it can be done."""
    from importlib.util import find_spec

    from ..errors import FileError, SettingError
    from ..plots import plot_rate_range

    if find_spec("matplotlib") is None:
        if path is not None:
            raise SettingError("--plot needs matplotlib, which is not installed: pip install matplotlib")
        return None
    import matplotlib

    matplotlib.use("Agg")  # to a file: no window, and no display needed
    target = path or Path("lr-range.png")
    figure: Any = plot_rate_range(found).figure
    try:
        figure.savefig(str(target), dpi=120)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {str(target)!r}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        from matplotlib import pyplot

        pyplot.close("all")
    return str(target)
