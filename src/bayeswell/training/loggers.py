"""The numbers of every epoch in a file of one's own, besides ``metrics.jsonl`` of a run's folder."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..persistence import read_lines
from .records import EpochRecord
from .run import Callback, Run
from .run_folder import METRICS


class CSVLogger(Callback):
    """One row an epoch in a CSV file: ``fit(..., callbacks=[CSVLogger("metrics.csv")])``.

    A run that goes on first drops the rows that it will write again; of several processes the first writes. Beside a
    ``metrics.jsonl`` it says what that says and is made from it: nothing is ever read from the CSV file.
    """

    every_step = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def start(self, run: Run) -> None:
        if run.engine.rank != 0:
            return
        log = self.path.with_name(METRICS)
        rows = csv_rows(read_lines(log)) if log.exists() else self._rows()
        kept = [row for row in rows[1:] if _before(row, run)]
        if kept:
            self._write("w", [rows[0], *kept])
        else:
            self.path.unlink(missing_ok=True)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if run.engine.rank != 0:
            return
        values = {"member": run.member, "epoch": record.epoch, "step": run.step, **record.values()}
        heading, row = csv_rows([values])
        if not self.path.exists():
            self._write("w", [heading, row])
            return
        there = self._heading()
        if there == heading:
            self._write("a", [row])
            return
        # Numbers that there were not before (those of an average, from its first snapshot on), or are not now.
        names = [*there, *(name for name in heading if name not in there)]
        found = dict(zip(heading, row, strict=True))
        row = [found.get(name, "") for name in names]
        if names == there:
            self._write("a", [row])
            return
        more = [""] * (len(names) - len(there))
        self._write("w", [names, *([*one, *more] for one in self._rows()[1:]), row])

    def _heading(self) -> list[str]:
        with open(self.path, newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])

    def _rows(self) -> list[list[str]]:
        try:
            with open(self.path, newline="", encoding="utf-8") as file:
                return list(csv.reader(file))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {str(self.path)!r}: {getattr(error, 'strerror', None) or error}") from error

    def _write(self, mode: str, rows: Sequence[Sequence[str]]) -> None:
        try:
            with open(self.path, mode, newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        except OSError as error:
            raise FileError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from error


def csv_rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of a CSV file that says what these lines say, with a heading; what a line does not have is empty."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = ([repr(line[name]) if name in line else "" for name in names] for line in lines)
    return [names, *rows] if lines else []


def _before(row: Sequence[str], run: Run) -> bool:
    """Whether a row is of an epoch that the run has behind it; a row cut short by a crash is not."""
    try:
        return (int(row[0]), int(row[1])) < (run.member, run.epoch)
    except (ValueError, IndexError):
        return False
