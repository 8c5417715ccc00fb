"""``models``: the networks, with how many parameters they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .command import command
from .options import Json
from .parts import defaults_of
from .screen import in_words, new_table, plain, show, show_json

HELP = """List the networks, each with its settings and how many parameters it has.

Sizes are those of the data the papers used; --data counts for other data."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell models",
    "  bayeswell models resnet18",
    "  bayeswell models --data digits",
)

SIZES: Mapping[str, tuple[tuple[int, ...], int, int | None]] = {
    "mlp": ((1, 28, 28), 10, None),
    "small_mlp": ((13,), 1, None),
    "cnn": ((1, 8, 8), 10, None),
    "lenet5": ((1, 28, 28), 10, None),
    "lenet_hwa": ((1, 28, 28), 10, None),
    "lenet_wide": ((3, 32, 32), 100, None),
    "densenet161": ((3, 224, 224), 1000, None),
    "resnet152": ((3, 224, 224), 1000, None),
    "lstm": ((80,), 1, 20_000),
}
"""Input shape, outputs and vocabulary of the data in the papers; all others: CIFAR-10."""
_CIFAR10 = ((3, 32, 32), 10, None)


@command("models", HELP, EXAMPLES)
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One model.", show_default=False)] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Count for this data set.", show_default="that of the paper")
    ] = None,
    json: Json = False,
) -> None:
    """List the networks."""
    from ..models import MODELS

    chosen = list(MODELS.summaries()) if name is None else [MODELS[name].name]
    size = None if data is None else _size_of(data)
    records = [_model(each, size) for each in chosen]
    if json:
        show_json(records if name is None else records[0])
        return
    headings = ("model", "what it is", "input", "outputs", "parameters", "settings", "paper")
    table = new_table(*headings, right=("outputs", "parameters"), wraps=("what it is", "settings", "paper"))
    for record in records:
        count = "does not fit" if record["parameters"] is None else f"{record['parameters']:,}"
        table.add_row(
            record["name"], plain(record["summary"]), "x".join(map(str, record["input_shape"])),
            str(record["outputs"]), count, plain(in_words(record["settings"])), plain(record["paper"]),
        )  # fmt: skip
    show(table)


def _size_of(data: str) -> tuple[tuple[int, ...], int, int | None]:
    from ..datasets import load_data
    from ..experiments.config_parsing import as_data_choice

    found = load_data(as_data_choice("data", data))
    return found.input_shape, found.outputs, found.vocabulary


def _model(name: str, size: tuple[tuple[int, ...], int, int | None] | None) -> dict[str, Any]:
    import torch

    from ..errors import NetworkError
    from ..models import MODELS, build_model

    shape, outputs, vocabulary = size or SIZES.get(name, _CIFAR10)
    count = None
    try:
        with torch.device("meta"):  # counted without memory for the weights
            net = build_model(name, shape, outputs, vocabulary=vocabulary)
        count = sum(math.prod(parameter.shape) for parameter in net.parameters())
    except NetworkError:
        if size is None:
            raise
    summary, paper = MODELS.summaries()[name]
    return {
        "name": name, "summary": summary, "paper": paper, "input_shape": list(shape), "outputs": outputs,
        "parameters": count, "settings": defaults_of(MODELS[name]),
    }  # fmt: skip
