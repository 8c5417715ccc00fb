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


@command("parts", HELP, EXAMPLES)
def parts(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="Of one kind.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the parts."""
    wanted = None if kind is None else kind.replace("-", "_").lower()
    found = part_records()
    records = [record for record in found if wanted in (None, record["part"])]
    if not records:
        raise SettingError(f"there are no parts '{kind}'; {nearest(str(wanted), {one['part'] for one in found})}")
    if json:
        show_json(records)
        return
    table = new_table("part", "name", "what it is", "settings", "paper", wraps=("what it is", "settings", "paper"))
    for record in records:
        cells = (record["part"], record["name"], record["summary"], in_words(record["settings"]), record["paper"])
        table.add_row(*map(plain, cells))
    show(table)


def part_records() -> list[dict[str, Any]]:
    """Every part of every axis: its name, what it is, its settings with their defaults, its paper."""
    from ..gradients import Sharpness
    from ..methods.registering import REGISTRIES
    from ..optimizers import OPTIMIZERS, Plateau
    from ..samplers import SAMPLERS

    axes = [
        (axis, registry) for axis, registry in REGISTRIES.items() if axis != "model"
    ]  # `bayeswell models` has those
    axes += [("stepper", OPTIMIZERS), ("stepper", SAMPLERS)]
    records = [
        {"part": axis, "name": name, "summary": summary, "paper": paper, "settings": defaults_of(registry[name])}
        for axis, registry in axes
        for name, (summary, paper) in registry.summaries().items()
    ]
    # Settings of a method that are tables, without another to choose: --set sharpness.rho=0.05.
    for part in (Sharpness, Plateau):
        summary = (part.__doc__ or "").strip().partition("\n")[0]
        told = {"summary": summary, "paper": part.paper, "settings": defaults_of(part)}
        records.append({"part": part.name, "name": part.name, **told})
    return records


def defaults_of(part: type[Any]) -> dict[str, Any]:
    """The settings of a part with their defaults, as plain data; None where one must be given."""
    from ..plain import plain as as_plain

    fields = [field for field in dataclasses.fields(part) if field.init] if dataclasses.is_dataclass(part) else []
    return {field.name: as_plain(_default(field), finite=True) for field in fields}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
