"""``data``: the data sets, which are there, and where the files of the others belong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .command import command
from .options import Json
from .parts import defaults_of
from .screen import in_words, new_table, plain, show, show_json

HELP = """List the data sets, which are there, and where the files of the others belong.

Files are looked for in the folders of BAYESWELL_DATA (several are separated as in PATH), else in the cache folder."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell data",
    "  bayeswell data mnist",
    "  BAYESWELL_DATA=~/data bayeswell data",
)


@command("data", HELP, EXAMPLES)
def data(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One data set.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the data sets."""
    from ..datasets import DATASETS, data_folders

    folders = [str(folder) for folder in data_folders()]
    records = [_data(each) for each in (DATASETS.summaries() if name is None else [_known(name)])]
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
        settings = plain(in_words(record["settings"]))
        table.add_row(record["name"], status, plain(record["examples"]), plain(record["summary"]), settings)
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
        "settings": defaults_of(part), "releases": releases,
    }  # fmt: skip


def _file(file: Any) -> dict[str, Any]:
    return {"path": file.path, "sha256": file.sha256, "url": file.url or None}


def _show_data(record: Mapping[str, Any], folders: list[str]) -> None:
    summary = record["summary"].replace("``", "")
    typer.echo(f"{record['name']} ({record['status']}): {summary}\n{record['examples']}; {record['paper']}")
    if record["settings"]:
        typer.echo(f"settings: {in_words(record['settings'])}")
    for index, release in enumerate(record["releases"]):
        typer.echo(f"{'or' if index else 'files'}, under {folders[0]}:")
        archive = release["archive"]
        if archive is not None:
            typer.echo(f"  packed in {archive['path']}" + (f" from {archive['url']}" if archive["url"] else ""))
        for file in release["files"]:
            typer.echo(f"  {file['path']}" + (f"   from {file['url']}" if file["url"] else ""))
            typer.echo(f"    SHA-256 {file['sha256']}")
