"""Where numbers go while a network trains, besides ``metrics.jsonl``: CSV, TensorBoard, the screen."""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..extras import needs_extra
from ..persistence import read_lines
from ..training import Callback, EpochRecord, Run
from ..training.run_folder import METRICS


class Watchers(Callback):
    """Callbacks that only look on, as one: called in the first of several processes alone, and closed together.

    ``steps`` counts the steps of this session: what is refused before the first is bad input, not a failed run.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        self.steps = 0

    def start(self, run: Run) -> None:
        for callback in self._here(run):
            callback.start(run)

    def after_step(self, run: Run) -> None:
        self.steps += 1
        for callback in self._here(run):
            callback.after_step(run)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        for callback in self._here(run):
            callback.after_epoch(run, record)

    def end(self, run: Run) -> None:
        for callback in self._here(run):
            callback.end(run)

    def close(self) -> None:
        """Let go of terminals and files; also after an error."""
        for callback in self.callbacks:
            getattr(callback, "close", _nothing)()

    def _here(self, run: Run) -> Sequence[Callback]:
        """One process speaks for all."""
        return self.callbacks if run.engine.rank == 0 else ()


class CsvLog(Callback):
    """One row an epoch in a CSV file, for spreadsheets; a run that goes on first drops rows that it will write again.

    Beside a ``metrics.jsonl`` it says what that says and is made from it: nothing is ever read from the CSV file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def start(self, run: Run) -> None:
        log = self.path.with_name(METRICS)
        rows = csv_rows(read_lines(log)) if log.exists() else self._rows()
        kept = [row for row in rows[1:] if _before(row, run)]
        if kept:
            self._write("w", [rows[0], *kept])
        else:
            self.path.unlink(missing_ok=True)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        values = {"member": run.member, "epoch": record.epoch, "step": run.step, **record.values()}
        self._write("a", csv_rows([values])[1 if self.path.exists() else 0 :])

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
    """The rows of a CSV file that says what these lines say, with a heading."""
    return [list(lines[0]), *([repr(value) for value in line.values()] for line in lines)] if lines else []


def _before(row: Sequence[str], run: Run) -> bool:
    """Whether a row is of an epoch that the run has behind it; a row cut short by a crash is not."""
    try:
        return (int(row[0]), int(row[1])) < (run.member, run.epoch)
    except (ValueError, IndexError):
        return False


class TensorBoardLog(Callback):
    """The numbers of every epoch for TensorBoard, one folder of events a member."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: Any = None
        with needs_extra("tensorboard", "the log for TensorBoard"):
            importlib.import_module("tensorboard")

    def start(self, run: Run) -> None:
        # Imported here: it is optional, and takes seconds.
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        name = f"member{run.member}" if run.members > 1 else ""
        self._writer = SummaryWriter(str(self.folder / name), purge_step=run.step)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        for name, value in record.values().items():
            self._writer.add_scalar(name.replace(".", "/"), value, run.step)

    def end(self, run: Run) -> None:
        self.close()

    def close(self) -> None:
        """Write what is waiting."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _nothing() -> None:
    """For what has nothing to let go of."""
