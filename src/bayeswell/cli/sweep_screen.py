"""What a sweep shows and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .screen import new_table, plain, show, show_json

if TYPE_CHECKING:
    from ..sweeps import SweepResult

BEST, RESULT = "best.toml", "result.json"
SHOWN = 10


@contextmanager
def advice_when_stopped() -> Iterator[None]:
    """Say how to go on when a sweep is stopped."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        typer.echo("bayeswell: the sweep was stopped; the same command goes on with it", err=True)
        raise


def show_progress(result: SweepResult) -> None:
    """How it stands, in one line."""
    from ..sweeps.results import settings_in_words

    best = result.best
    failed = result.count("failed")
    parts = [f"{result.count('complete') + failed} of {result.wanted} trials"]
    if failed:
        parts.append(f"{failed} failed")
    if best is not None:
        spread = "" if best.error is None else f" ± {best.error:.2g}"
        parts.append(f"best {best.value:.5g}{spread} (trial {best.number}: {settings_in_words(best.settings)})")
    typer.echo(", ".join(parts), err=True)


def keep_result(result: SweepResult, best: Mapping[str, Any] | None, *, metric: str, place: Path) -> None:
    """The result, and the best settings as a file for ``train --config``."""
    from ..persistence import write_document
    from ..sweeps.toml import write_toml

    write_document(place / RESULT, result.record())
    if best is not None and result.best is not None:
        heading = f"The best of {len(result.ranked())} trials: {metric} {result.best.value:.6g} on held-out data"
        write_toml(place / BEST, best, heading)


def show_sweep(result: SweepResult, *, metric: str, place: Path, json: bool, code: str = "") -> None:
    """The best trials, and those that failed; ``code`` is what ``--model`` said of a network of one's own."""
    from ..sweeps.results import in_words, settings_in_words

    if json:
        show_json({"sweep": str(place), "metric": metric, **result.record()})
        return
    best = result.ranked()[:SHOWN]
    names = list(result.trials[0].settings) if result.trials else []
    errors = ["± over seeds"] if any(trial.error is not None for trial in best) else []
    numbers = ["trial", metric, *errors, *names, "seconds"]
    table = new_table(*numbers, right=numbers)
    for trial in best:
        cells = [in_words(trial.settings[name]) for name in names]
        spread = [] if not errors else ["-" if trial.error is None else f"{trial.error:.2g}"]
        table.add_row(str(trial.number), f"{trial.value:.5g}", *spread, *map(plain, cells), f"{trial.seconds:.1f}")
    failed = [trial for trial in result.trials if trial.state == "failed"]
    complete = result.count("complete")
    show(table, f"{complete} of {result.wanted} trials finished, {len(failed)} failed; the best {len(best)} of them")
    for trial in failed[:SHOWN]:
        typer.echo(f"trial {trial.number} ({settings_in_words(trial.settings)}) failed: {trial.message}")
    if best:
        again = f"bayeswell train --config {place / BEST}" + (f" --model {code}" if code else "")
        typer.echo(f"the best settings are in {place / BEST}: {again}")
