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


def show_sweep(
    result: SweepResult, record: Mapping[str, Any], *, metric: str, place: Path, json: bool, code: str = ""
) -> None:
    """The best trials, and those that failed; ``code`` is what ``--model`` said of a network of one's own."""
    from ..sweeps.results import in_words, settings_in_words
    from ..workbench.sweep_files import BEST

    if json:
        show_json({"sweep": str(place), **record})
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
    for line in (_success(record), _bands(record)):
        if line:
            typer.echo(line)
    if best:
        again = f"bayeswell train --config {place / BEST}" + (f" --model {code}" if code else "")
        typer.echo(f"the best settings are in {place / BEST}: {again}")


def _success(record: Mapping[str, Any]) -> str:
    """``success rate 0.65: 13 of 20 trials with nll at most 0.3``."""
    success = record.get("success")
    if success is None or success["rate"] is None:
        return ""
    ended = record["complete"] + record["failed"]
    side = "at most" if record["direction"] == "minimize" else "at least"
    failed = f"; the {record['failed']} that failed are not among them" if record["failed"] else ""
    passed = round(success["rate"] * ended)
    return (
        f"success rate {success['rate']:.3g}: {passed} of {ended} trials have {record['metric']} {side} "
        f"{success['threshold']:g}{failed}"
    )


def _bands(record: Mapping[str, Any]) -> str:
    """Median and quartiles of the last epoch that most trials have."""
    bands = record.get("bands")
    if not bands:
        return ""
    place = max(index for index, count in enumerate(bands["trials"]) if count == max(bands["trials"]))
    lower, median, upper = (_number(bands[name][place]) for name in ("lower", "median", "upper"))
    failed = f", {bands['failed']} of them failed" if bands["failed"] else ""
    return (
        f"{bands['score']} over {bands['trials'][place]} trials{failed}, after {bands['epochs'][place] + 1} epochs: "
        f"median {median}, quartiles {lower} and {upper}"
    )


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.4g}"
