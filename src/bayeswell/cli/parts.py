"""``parts``: what each axis of a method offers by name, parts of other installed packages among them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from ..errors import SettingError, nearest
from .command import command
from .options import Json
from .screen import in_words, new_table, plain, show, show_json

HELP = """List the parts that methods are made of, each with its settings and its paper; or those of one kind.

A part goes by its name: [bold]--set prior=laplace --set stepper=sgd --set posterior.rank=3[/bold]. Parts of other
packages, which they offer by the entry points `bayeswell.parts`, are listed too."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell parts",
    "  bayeswell parts stepper",
    "  bayeswell parts --json",
)
ELSEWHERE = ("model", "data_set")
"""Axes with a command of their own."""
KEYS = {"optimizer": "stepper", "sampler": "stepper", "averaging": "collector"}
"""What a method calls an axis, where it is not by its own name."""


@command("parts", HELP, EXAMPLES)
def parts(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="Of one kind.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the parts."""
    from .. import methods  # noqa: F401  # the room that sees all parts: every axis is there now
    from ..registry import AXES

    wanted = None if kind is None else kind.replace("-", "_").lower()
    records = [
        {"axis": axis, "key": KEYS.get(axis, axis), "name": name, "summary": summary, "paper": paper,
         "settings": defaults_of(registry[name])}
        for axis, registry in sorted(AXES.items())
        if axis not in ELSEWHERE and wanted in (None, axis, KEYS.get(axis))
        for name, (summary, paper) in registry.summaries().items()
    ]  # fmt: skip
    if not records:
        raise SettingError(
            f"there are no parts '{kind}'; {nearest(str(wanted), {*AXES, *KEYS.values()} - {*ELSEWHERE})}"
        )
    if json:
        show_json(records)
        return
    table = new_table("part", "name", "what it is", "settings", "paper", wraps=("what it is", "settings", "paper"))
    for record in records:
        cells = (record["key"], record["name"], record["summary"], in_words(record["settings"]), record["paper"])
        table.add_row(*map(plain, cells))
    show(table)


def defaults_of(part: type[Any]) -> dict[str, Any]:
    """The settings of a part with their defaults, as plain data; None where one must be given."""
    from ..plain import plain as as_plain

    fields = [field for field in dataclasses.fields(part) if field.init] if dataclasses.is_dataclass(part) else []
    return {field.name: as_plain(_default(field), finite=True) for field in fields}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
