"""Hooks of the training loop: early stopping, a CSV log and a progress bar."""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from torch import Tensor, nn

from ..core.errors import FileError, SettingError, check_integer, check_number, nearest
from .history import EpochRecord

if TYPE_CHECKING:
    from .loop import Run


class Callback:
    """Base class of hooks; override what is needed.

    A callback that keeps anything between calls returns it from ``state_dict`` (tensors and plain data), so that a
    resumed run continues exactly. ``run.state`` is the ``TrainState``; ``run.stop(reason)`` ends training after the
    epoch.
    """

    def start(self, run: Run) -> None:
        """Called before the first step, also of a resumed run."""

    def after_step(self, run: Run) -> None:
        """Called after each step; ``run.state.progress.step`` counts it."""

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        """Called after each epoch and its validation."""

    def end(self, run: Run) -> None:
        """Called after the last epoch."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


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
            self.weights = {name: _copy(module) for name, module in _modules(run).items()}
            return
        self.waited += 1
        if self.patience is not None and self.waited >= self.patience:
            run.stop(f"validation {self.metric} has not improved for {self.waited} epochs")

    def end(self, run: Run) -> None:
        for name, module in _modules(run).items():
            if name in self.weights:
                module.load_state_dict(self.weights[name])

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
        self.weights = state["weights"]


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
        self._began = self._shown = self._first = 0.0
        self._width = 0

    def start(self, run: Run) -> None:
        self._began, self._first = time.monotonic(), run.state.progress.step

    def after_step(self, run: Run) -> None:
        now = time.monotonic()
        if self._live and now - self._shown >= 0.1:
            self._shown = now
            self._write(self._line(run), "")

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        names = [name for name in ("nll", "accuracy", "rmse") if name in record.validation]
        scores = "".join(f" {name} {record.validation[name]:.4g}" for name in names)
        line = self._line(run, record.total, record.epoch) + (f" | val{scores}" if scores else "")
        self._write(line, "" if self._live else "\n")

    def end(self, run: Run) -> None:
        if self._live:
            self._write("", "\n")

    def _line(self, run: Run, loss: float | None = None, epoch: int | None = None) -> str:
        progress = run.state.progress
        total = progress.total_steps or 1
        loss = run.sums.total / max(1, progress.batch) if loss is None else loss
        epoch = run.state.epoch if epoch is None else epoch
        spent = time.monotonic() - self._began
        left = spent * (total - progress.step) / max(1, progress.step - self._first)
        member = f" {run.member + 1}/{run.members}" if run.members > 1 else ""
        filled = round(10 * progress.step / total)
        bar = "#" * filled + "-" * (10 - filled)
        name = f"{run.state.method.name}{member}"
        return f"{name} [{bar}] epoch {epoch + 1}/{run.epochs} loss {loss:.4f} {_clock(spent)}<{_clock(left)}"

    def _write(self, line: str, end: str) -> None:
        columns = min(80, shutil.get_terminal_size().columns) - 1
        text = f"\r{line[:columns].ljust(self._width)}{end}" if self._live and line else f"{line}{end}"
        say(text, self.stream)
        self._width = len(line[:columns])


def early_stopping(asked: KeepBest | int | None, *, validates: bool, averages: bool) -> KeepBest | None:
    """Return the callback that ``fit(early_stopping=...)`` asks for; an integer is the patience."""
    if asked is None:
        return None
    if not validates:
        raise SettingError("`early_stopping` needs `validation` data")
    if averages:
        raise SettingError(
            "`early_stopping` keeps the weights of one epoch, but this method averages or samples along the whole run; "
            "drop one of the two"
        )
    if isinstance(asked, KeepBest):
        return asked
    return KeepBest(patience=check_integer("fit", "early_stopping", asked))


def say(text: str, stream: TextIO) -> None:
    """Write to a stream; one that is closed, or whose disk is full, must not end a run."""
    with suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


def wants_progress(progress: bool | None) -> bool:
    return _is_terminal(sys.stderr) if progress is None else bool(progress)


def _modules(run: Run) -> dict[str, nn.Module]:
    return {"model": run.state.model, "likelihood": run.state.likelihood}


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole // 60 % 60:02d}:{whole % 60:02d}"
