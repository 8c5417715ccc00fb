"""Hooks of the training loop: early stopping, a CSV log and a progress bar."""

from __future__ import annotations

import copy
import csv
import datetime
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor, nn

from ..core.errors import FileError, SettingError, check_integer, check_number, nearest
from .history import EpochRecord
from .loop import Callback, Run


class KeepBest(Callback):
    """Early stopping: end with the weights of the epoch that had the best score on validation data.

    Args:
        metric: a validation score; higher is better for "accuracy", lower for all others.
        patience: stop after so many epochs without improvement; None: never stop early.
        min_change: smaller improvements do not count.
    """

    def __init__(self, metric: str = "nll", patience: int | None = None, min_change: float = 0.0) -> None:
        self.metric = metric
        self.patience = None if patience is None else check_integer("KeepBest", "patience", patience)
        self.min_change = check_number("KeepBest", "min_change", min_change, 0.0)
        self.best, self.best_epoch, self.waited = math.inf, -1, 0
        self.weights: dict[str, dict[str, Tensor]] = {}

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if self.metric not in record.validation:
            raise SettingError(f"KeepBest: `metric` = {self.metric!r}; {nearest(self.metric, record.validation)}")
        value = record.validation[self.metric] * (-1 if self.metric == "accuracy" else 1)
        if value < self.best - self.min_change:
            self.best, self.best_epoch, self.waited = value, record.epoch, 0
            self.weights = {name: copy.deepcopy(dict(one.state_dict())) for name, one in _modules(run).items()}
            return
        self.waited += 1
        if self.patience is not None and self.waited >= self.patience:
            run.stop(f"validation {self.metric} has not improved for {self.waited} epochs")

    def end(self, run: Run) -> None:
        for name, weights in self.weights.items():
            _modules(run)[name].load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("best", "best_epoch", "waited", "weights")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class CSVLog(Callback):
    """One row for each epoch of the present member in a CSV file, which is written anew after each epoch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if run.engine.rank != 0:
            return
        rows = [record.values() for record in run.history.epochs]
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(names), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise FileError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from error


class ProgressBar(Callback):
    """One line of epoch, loss and time; a terminal sees it change, a file gets one line for each epoch."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self._live = _is_terminal(self.stream)
        self._began = self._shown = 0.0
        self._first = self._width = 0

    def start(self, run: Run) -> None:
        self._began, self._first = time.monotonic(), run.state.progress.step

    def after_step(self, run: Run) -> None:
        if self._live and time.monotonic() - self._shown >= 0.1:
            self._shown = time.monotonic()
            self._write(self._line(run, run.sums.total / max(1, run.state.progress.batch), run.state.epoch), "")

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        names = [name for name in ("nll", "accuracy", "rmse") if name in record.validation]
        scores = "".join(f" {name} {record.validation[name]:.4g}" for name in names)
        line = self._line(run, record.total, record.epoch) + (f" | val{scores}" if scores else "")
        self._write(line, "" if self._live else "\n")

    def end(self, run: Run) -> None:
        if self._live:
            say("\n", self.stream)

    def _line(self, run: Run, loss: float, epoch: int) -> str:
        step, total = run.state.progress.step, run.state.progress.total_steps or 1
        spent = time.monotonic() - self._began
        left = spent * (total - step) / max(1, step - self._first)
        times = "<".join(str(datetime.timedelta(seconds=int(seconds))) for seconds in (spent, left))
        member = f" {run.member + 1}/{run.members}" if run.members > 1 else ""
        bar = ("#" * round(10 * step / total)).ljust(10, "-")
        return f"{run.state.method.name}{member} [{bar}] epoch {epoch + 1}/{run.epochs} loss {loss:.4f} {times}"

    def _write(self, line: str, end: str) -> None:
        if self._live:
            shown = line[: min(80, shutil.get_terminal_size().columns) - 1]
            line, self._width = "\r" + shown.ljust(self._width), len(shown)
        say(line + end, self.stream)


def say(text: str, stream: TextIO) -> None:
    """Write to a stream; one that is closed, or whose disk is full, must not end a run."""
    with suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


def wants_progress(progress: bool | None) -> bool:
    return _is_terminal(sys.stderr) if progress is None else bool(progress)


def _is_terminal(stream: Any) -> bool:
    # Programs without a console have no stderr, and what replaces it may not have `isatty`.
    return bool(getattr(stream, "isatty", bool)())


def _modules(run: Run) -> dict[str, nn.Module]:
    return {"model": run.state.model, "likelihood": run.state.likelihood}
