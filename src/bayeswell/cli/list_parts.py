"""``methods``, ``models`` and ``data``: what there is to choose from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .command import command
from .options import Json
from .screen import new_table, plain, show, show_json

PARTS = (
    "posterior", "prior", "estimator", "divergence", "kl_weight", "temperature", "stepper", "std_multiplier", "rate",
    "plateau", "alternate", "clip_norm", "sharpness", "collector", "post_hoc", "dropout", "members", "means",
    "prediction",
)  # fmt: skip
TOLD = ("posterior", "estimator", "stepper", "sharpness", "collector", "post_hoc", "dropout", "members", "prediction")
USUAL = {"estimator": "weight_sampling", "members": 1, "prediction": "sampled"}

METHODS_HELP = """List the methods, each with its parts, its cost and its paper; or one of them in full.

Cost is that of a training step in forward passes, of all members together; ordinary training has 3."""
METHODS_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell methods",
    "  bayeswell methods f-bbb",
    "  bayeswell methods --json",
)
MODELS_HELP = """List the networks, each with its settings and how many parameters it has.

Sizes are those of the data the papers used; --data counts for other data."""
MODELS_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell models",
    "  bayeswell models resnet18",
    "  bayeswell models --data digits",
)
DATA_HELP = """List the data sets, which are there, and where the files of the others belong.

Files are looked for in the folders of BAYESWELL_DATA (several are separated as in PATH), else in the cache folder."""
DATA_EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell data",
    "  bayeswell data mnist",
    "  BAYESWELL_DATA=~/data bayeswell data",
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


@command("methods", METHODS_HELP, METHODS_EXAMPLES)
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One method in full.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List the methods."""
    from ..methods import METHODS, find_method, method_names

    if name is not None:
        record = _method(find_method(name))
        if json:
            show_json(record)
            return
        table = new_table("setting", "value", wraps=("value",))
        for part, value in record["parts"].items():
            table.add_row(part, plain(_shown(value)))
        table.add_row("cost", f"{record['cost']:g} forward passes a step")
        show(table, f"{record['name']}: {record['summary']} ({record['paper']})")
        return
    if json:
        show_json([_method(find_method(each)) for each in method_names()])
        return
    table = new_table(
        "method", "what it is", "parts", "cost", "paper", right=("cost",), wraps=("what it is", "parts", "paper")
    )
    for each in METHODS.values():
        parts = {part: getattr(each, part) for part in TOLD if getattr(each, part) not in (None, USUAL.get(part))}
        told = ", ".join(f"{part} {_shown(value)}" for part, value in parts.items())
        table.add_row(each.name, plain(each.summary), plain(told), f"{each.cost:g}", plain(each.paper))
    show(table)
    typer.echo(
        "cost: forward passes a step (ordinary training: 3). f-NAME adds sharpness to any of them at twice the cost;\n"
        "f-NAME-geometry, where stds are trained, measures by |mean| / std. `bayeswell methods NAME`: all settings."
    )


def _method(method: Any) -> dict[str, Any]:
    parts = {part: _plain(getattr(method, part)) for part in PARTS}
    return {"name": method.name, "summary": method.summary, "paper": method.paper, "cost": method.cost, "parts": parts}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def _shown(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, Mapping):
        settings = ", ".join(f"{key}={part}" for key, part in value.items() if key != "name")
        return f"{value.get('name', '')}({settings})"
    return "none" if value is None else str(value)


@command("models", MODELS_HELP, MODELS_EXAMPLES)
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One model.", show_default=False)] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Count for this data set.", show_default="that of the paper")
    ] = None,
    json: Json = False,
) -> None:
    """List the networks."""
    from ..models import MODELS

    chosen = list(MODELS) if name is None else [MODELS[name].name]
    size = None if data is None else _size_of(data)
    records = [_model(each, size) for each in chosen]
    if json:
        show_json(records if name is None else records[0])
        return
    wraps = ("what it is", "settings", "paper")
    table = new_table(
        "model",
        "what it is",
        "input",
        "outputs",
        "parameters",
        "settings",
        "paper",
        right=("outputs", "parameters"),
        wraps=wraps,
    )
    for record in records:
        shape = "x".join(map(str, record["input_shape"]))
        settings = ", ".join(f"{key}={value}" for key, value in record["settings"].items())
        count = "does not fit" if record["parameters"] is None else f"{record['parameters']:,}"
        table.add_row(
            record["name"], plain(record["summary"]), shape, f"{record['outputs']}", count, plain(settings),
            plain(record["paper"]),
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

    part = MODELS[name]
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
    settings = {field.name: _listed(field.default) for field in dataclasses.fields(part)}  # type: ignore[arg-type]
    return {
        "name": name, "summary": summary, "paper": paper, "input_shape": list(shape), "outputs": outputs,
        "parameters": count, "settings": settings,
    }  # fmt: skip


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@command("data", DATA_HELP, DATA_EXAMPLES)
def data(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One data set.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the data sets."""
    from ..datasets import DATASETS, data_folders

    folders = [str(folder) for folder in data_folders()]
    records = [_data(each) for each in (DATASETS if name is None else [_known(name)])]
    if json:
        show_json({"folders": folders, "data": records})
        return
    if name is not None:
        _show_data(records[0], folders)
        return
    table = new_table(
        "data", "status", "examples", "what it is", "settings", wraps=("examples", "what it is", "settings")
    )
    for record in records:
        style = {"present": "green", "bundled": "green", "absent": "yellow"}.get(record["status"], "")
        status = f"[{style}]{record['status']}[/{style}]" if style else record["status"]
        settings = ", ".join(f"{key}={value!r}" for key, value in record["settings"].items())
        table.add_row(record["name"], status, plain(record["examples"]), plain(record["summary"]), plain(settings))
    show(table)
    typer.echo(
        f"Files are looked for in {', '.join(folders)} (BAYESWELL_DATA names others); `bayeswell data NAME`: which.\n"
        "A .csv or .npz file, or a folder of pictures with a folder for each class, is given by its path."
    )


def _known(name: str) -> str:
    """The name of a data set in the registry; ``uci_boston`` is one of uci's."""
    from ..datasets import DATASETS, find_data

    key = name.replace("-", "_")
    return find_data(name).name if key.startswith("uci_") else DATASETS[name].name


def _data(name: str) -> dict[str, Any]:
    from ..datasets import DATASETS, data_status

    part: Any = DATASETS[name]
    summary, paper = DATASETS.summaries()[name]
    settings = {field.name: _listed(field.default) for field in dataclasses.fields(part)}
    releases = [
        {
            "files": [_file(file) for file in release.files],
            "archive": None if release.archive is None else _file(release.archive),
        }
        for release in getattr(part, "releases", ())
    ]  # fmt: skip
    status = "your own" if part.source == "own" else data_status(name)
    return {
        "name": name, "status": status, "summary": summary, "paper": paper, "examples": part.examples,
        "settings": settings, "releases": releases,
    }  # fmt: skip


def _file(file: Any) -> dict[str, Any]:
    return {"path": file.path, "sha256": file.sha256, "url": file.url or None}


def _show_data(record: Mapping[str, Any], folders: list[str]) -> None:
    summary = record["summary"].replace("``", "")
    typer.echo(f"{record['name']} ({record['status']}): {summary}\n{record['examples']}; {record['paper']}")
    if record["settings"]:
        typer.echo("settings: " + ", ".join(f"{key}={value!r}" for key, value in record["settings"].items()))
    for index, release in enumerate(record["releases"]):
        typer.echo(f"{'or' if index else 'files'}, under {folders[0]}:")
        archive = release["archive"]
        if archive is not None:
            typer.echo(f"  packed in {archive['path']}" + (f" from {archive['url']}" if archive["url"] else ""))
        for file in release["files"]:
            typer.echo(f"  {file['path']}" + (f"   from {file['url']}" if file["url"] else ""))
            typer.echo(f"    SHA-256 {file['sha256']}")
