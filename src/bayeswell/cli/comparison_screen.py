"""What people see of several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from .screen import SCORES, counted, new_table, plain, show

_LEFT_OUT = frozenset({"entropy", "ood_entropy", "r2", "coverage_50", "coverage_95"})
SHOWN = [(name, heading) for name, heading in SCORES if name not in _LEFT_OUT]


def told(name: str, state: str) -> None:
    """How a run stands, in one line."""
    typer.echo(f"{name}: {state}", err=True)


def show_failures(record: Mapping[str, Any]) -> None:
    """Why runs failed, if any did, and the exit code of a run that failed."""
    failures = [failure for row in record["rows"] for failure in row["failed"]]
    for failure in failures:
        typer.echo(f"bayeswell: {failure['run']}: {failure['error']}", err=True)
    if failures:
        raise typer.Exit(1)


def show_comparison(record: Mapping[str, Any], out: Path) -> None:
    """The table, and what its columns mean."""
    rows = record["rows"]
    shown = [(name, heading) for name, heading in SHOWN if any(name in row["scores"] for row in rows)]
    experiment = next(iter(record["experiments"].values()))
    parts = [(experiment["epochs"], "epoch"), (len(record["seeds"]), "seed"), (experiment["draws"], "draw")]
    if record.get("folds"):
        parts.insert(2, (record["folds"], "fold"))
    name = experiment["data"]["name"].removeprefix(":")
    title = ", ".join([name, *(counted(*part) for part in parts)])
    show(_table(record, shown, full=True), title, narrow=lambda: _table(record, shown, full=False))
    typer.echo(_footnote(record, experiment))
    typer.echo(f"in {out}")


def _table(record: Mapping[str, Any], shown: Sequence[tuple[str, str]], *, full: bool) -> Any:
    """All there is; or, for a narrow terminal, without errors and passes, which are in the file."""
    after = ["T", "std/prior", *(["passes/step", "passes"] if full else []), "seconds"]
    numbers = [heading for _, heading in shown] + after
    table = new_table("method", *numbers, right=numbers)
    for row in record["rows"]:
        temperature, ratio, cost = row["scores"].get("temperature"), row["scores"].get("std_ratio"), row["cost"]
        passes = ["", ""] if cost is None else [f"{cost['per_step']:g}", f"{cost['total']:,.0f}"]
        seconds = record["time"][row["method"]]["train_seconds"]
        table.add_row(
            plain(row["method"]) + (" [red](failed)[/red]" if row["failed"] else ""),
            *(_score(row["scores"].get(name), _over(record), full) for name, _ in shown),
            "" if temperature is None else f"{temperature['mean']:.2g}",
            "" if ratio is None else f"{ratio['mean']:.3f}",
            *(passes if full else []),
            "" if seconds is None else f"{seconds['mean']:.1f}",
        )
    return table


def _over(record: Mapping[str, Any]) -> str:
    """What the standard errors of the table are over."""
    return "folds" if record.get("folds") else "seeds" if len(record["seeds"]) > 1 else "examples"


def _score(score: Mapping[str, Any] | None, over: str, full: bool) -> str:
    if score is None:
        return ""
    error = score.get(f"standard_error_over_{over}")
    return f"{score['mean']:.4f}" + ("" if error is None or not full else f" [dim]±{error:.4f}[/dim]")


def _footnote(record: Mapping[str, Any], experiment: Mapping[str, Any]) -> str:
    spread = {
        "folds": "over folds, whose training sets overlap (over test examples: comparison.json)",
        "seeds": "over seeds (over test examples: comparison.json)",
        "examples": "over test examples",
    }[_over(record)]
    parts = [f"± standard error {spread}; NLL in nats"]
    if any("auroc" in row["scores"] for row in record["rows"]):
        parts.append(f"AUROC: {experiment['ood']['name']} told apart by entropy")
    parts.append("T: temperature of the posterior, 1 is Bayes' rule (of auto: what the fit found, mean over runs)")
    parts.append("std/prior: mean posterior std over prior std, 0 without uncertainty")
    parts.append("passes: forward passes of a batch, a backward pass counts as two (ordinary training: 3 a step)")
    return "\n".join([*parts, *(row["plan"] for row in record["rows"] if row.get("plan"))])
