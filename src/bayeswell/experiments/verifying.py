"""Is every file of a run, of a comparison or of a saved model as it was written?"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..persistence import read_bundle, read_document
from ..persistence.folders import refuse_link_out
from ..persistence.manifest import MANIFEST
from ..training.loggers import csv_rows
from ..training.run_folder import CHECKPOINTS, CONFIG, METRICS, MODEL, NEWEST, RESULT, SEALS, RunFolder
from .comparing import COMPARISON
from .data_spec import NAME as DATA
from .paths import path_of
from .run_records import AVERAGES, RECORDS

CSV, INSPECTION = "metrics.csv", "inspection.json"
_DOCUMENTS = (CONFIG, NEWEST, DATA, SEALS, RESULT, INSPECTION)


@dataclass(frozen=True)
class Verdict:
    """One file, or the folder of a bundle: what is wrong with it, in a line; nothing if all is well."""

    path: Path
    fault: str = ""


def verify(path: str | os.PathLike[str]) -> list[Verdict]:
    """A verdict on everything in a folder that carries a seal or follows from what does, in the order of names.

    Nothing is changed. What bayeswell has not written (or another program reads, such as the events of TensorBoard) is
    left out.
    """
    folder = path_of(path)
    if not folder.is_dir():
        raise FileError(f"{str(folder)!r}: there is no such folder")
    found = list(verdicts(folder))
    if not found:
        raise FileError(f"{str(folder)!r} holds neither a run nor a model nor a comparison")
    return found


def verdicts(folder: Path) -> Iterator[Verdict]:
    """The same, one by one."""
    if (folder / MANIFEST).exists():
        yield _verdict(folder, lambda: read_bundle(folder))
        return
    if (folder / COMPARISON).exists():
        yield _verdict(folder / COMPARISON, lambda: read_document(folder / COMPARISON))
    run = RunFolder(folder)
    for name in _DOCUMENTS:
        if (folder / name).exists():
            yield _verdict(folder / name, lambda name=name: _document(run, name))  # type: ignore[misc]
    if (folder / RECORDS).exists():
        yield _verdict(folder / RECORDS, lambda: read_document(folder / RECORDS, users=True))
    if (folder / AVERAGES).exists():
        yield _verdict(folder / AVERAGES, lambda: read_document(folder / AVERAGES))
    if (folder / METRICS).exists():
        yield _verdict(folder / METRICS, run.epochs)
    if (folder / CSV).exists():
        yield _verdict(folder / CSV, lambda: _same_as_log(run))
    if (folder / CHECKPOINTS).is_dir():
        yield _verdict(folder / CHECKPOINTS, run.newest_name)
        for place in run.checkpoints.paths():
            yield _verdict(place, lambda place=place: run.checkpoints.require(place, run.identity()))  # type: ignore[misc]
    if (folder / MODEL).exists():
        yield _verdict(folder / MODEL, lambda: _model(folder / MODEL))
    for place in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        if place.name not in (CHECKPOINTS, MODEL) and not place.is_symlink():
            yield from verdicts(place)


def _verdict(path: Path, look: Callable[[], Any]) -> Verdict:
    try:
        look()
    except FileError as error:
        return Verdict(path, str(error))
    return Verdict(path)


def _document(run: RunFolder, name: str) -> None:
    if name != RESULT:
        run.document(name)
    elif run.result() is None:
        raise FileError(f"{str(run.path / name)!r} is empty or has no seal; `resume` makes it again")
    elif swapped := run.swapped():
        raise FileError(f"{str(run.path / name)!r} was written with other files than are there: {', '.join(swapped)}")


def _model(place: Path) -> None:
    refuse_link_out(place)
    read_bundle(place)


def _same_as_log(run: RunFolder) -> None:
    """The CSV file is made from the log: it must say the same."""
    wanted = io.StringIO()
    csv.writer(wanted, lineterminator="\n").writerows(csv_rows(run.epochs()))
    path = run.path / CSV
    try:
        found = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    rows, lines = found.splitlines(keepends=True), wanted.getvalue().encode("utf-8").splitlines(keepends=True)
    # A kill may have come between the two: until the run is finished one of them may be a line ahead.
    ahead = 0 if (run.path / RESULT).exists() else 1
    if abs(len(rows) - len(lines)) > ahead or any(row != line for row, line in zip(rows, lines, strict=False)):
        raise FileError(f"{str(path)!r} does not say what {METRICS} says; `resume --csv` makes it anew")
