"""``methods``: the named methods, with all their parts."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from .command import command
from .options import Json
from .screen import in_words, new_table, plain, show, show_json

TOLD = ("posterior", "estimator", "stepper", "sharpness", "collector", "post_hoc", "dropout", "members", "prediction")
USUAL = {"estimator": "weight_sampling", "members": 1, "prediction": "sampled"}
HELP = """List the methods, each with its parts, its cost and its paper; or one of them in full.

Cost is that of a training step in forward passes, of all members together; ordinary training has 3."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell methods",
    "  bayeswell methods f-bbb",
    "  bayeswell methods --json",
)


@command("methods", HELP, EXAMPLES)
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One method in full.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List the methods."""
    from ..methods import METHODS, find_method, method_names

    if json:
        records = [_record(find_method(each)) for each in (method_names() if name is None else [name])]
        show_json(records if name is None else records[0])
    elif name is not None:
        _show_one(_record(find_method(name)))
    else:
        wraps = ("what it is", "parts", "paper")
        table = new_table("method", "what it is", "parts", "cost", "paper", right=("cost",), wraps=wraps)
        for each in METHODS.values():
            parts = {part: getattr(each, part) for part in TOLD if getattr(each, part) not in (None, USUAL.get(part))}
            told = ", ".join(f"{part} {in_words(value)}" for part, value in parts.items())
            table.add_row(each.name, plain(each.summary), plain(told), f"{each.cost:g}", plain(each.paper))
        show(table)
        typer.echo(
            "cost: forward passes a step (ordinary training: 3). f-NAME adds sharpness to any of them at twice the "
            "cost;\nf-NAME-geometry, where stds are trained, measures by |mean| / std. `bayeswell methods NAME`: all "
            "settings; `bayeswell parts`: what they may be."
        )


def _record(method: Any) -> dict[str, Any]:
    from ..plain import plain as as_plain

    record = {field.name: as_plain(getattr(method, field.name), finite=True) for field in dataclasses.fields(method)}
    told = {key: record.pop(key) for key in ("name", "summary", "paper")}
    return {**told, "cost": method.cost, "parts": record}


def _show_one(record: dict[str, Any]) -> None:
    table = new_table("setting", "value", wraps=("value",))
    for part, value in record["parts"].items():
        table.add_row(part, plain(in_words(value)))
    table.add_row("cost", f"{record['cost']:g} forward passes a step")
    show(table, f"{record['name']}: {record['summary']} ({record['paper']})")
