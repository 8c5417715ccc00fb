"""Checkpoints of a run: killed at any time, it resumes bit for bit.

The folder of a run holds one checkpoint for each member, ``checkpoints/member-0`` and so on, with the state of the run
and the settings it belongs to. A run whose settings, data, network or code differ is refused with the names of the
differences.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..core.errors import FileError, SettingError, check_integer, check_number
from ..io import folder_exists, load_folder, pack_state, save_folder, unpack_state
from .fingerprint import differences
from .loop import Callback, Run

_TEXTS = ("method.paper", "method.summary")
_WEIGHTS = "network.weights differs"
_SEED_IT = "the starting weights differ (call torch.manual_seed before the network is made)"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C arrived; the state of the run is saved."""


class Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived; the state of the run is saved. The exit code is 128 + the number of the signal."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run and when to save.

    Args:
        path: of the folder.
        every_steps: steps between checkpoints; None: ``every_seconds`` decides. Both give the same results.
        every_seconds: time between checkpoints.
        force: resume also if the settings differ.
    """

    path: str | os.PathLike[str]
    every_steps: int | None = None
    every_seconds: float = 60.0
    force: bool = False

    def __post_init__(self) -> None:
        if self.every_steps is not None:
            check_integer("RunFolder", "every_steps", self.every_steps)
        check_number("RunFolder", "every_seconds", self.every_seconds, 0.0)

    def checkpoint(self, member: int) -> Path:
        return Path(self.path) / "checkpoints" / f"member-{member}"

    def metrics(self, member: int) -> Path:
        return Path(self.path) / f"metrics-{member}.csv"

    def below(self, name: str) -> RunFolder:
        """Return the folder of a run that is part of this one."""
        return RunFolder(Path(self.path) / name, self.every_steps, self.every_seconds, self.force)

    def check_new(self) -> None:
        """Refuse a folder that has a run already."""
        if folder_exists(self.checkpoint(0)):
            raise SettingError(f"`folder` = {str(self.path)!r} has a run already; resume=True continues it")

    def load(self, member: int, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the saved state of a member, or None; FileError if it belongs to other settings."""
        path = self.checkpoint(member)
        if not folder_exists(path):
            return None
        tensors, documents = load_folder(path)
        # Through JSON, as the saved settings came.
        found = differences(documents["settings"], json.loads(json.dumps(settings)))
        changed = [_SEED_IT if line == _WEIGHTS else line for line in found if not line.startswith(_TEXTS)]
        if changed and not self.force:
            shown = "; ".join(changed[:6]) + (f"; and {len(changed) - 6} more" if len(changed) > 6 else "")
            raise FileError(f"the run in {str(self.path)!r} was started with other settings: {shown}")
        state: dict[str, Any] = unpack_state(tensors, documents["state"])
        return state


class Checkpointer(Callback):
    """Save the run when it is due, at its end, and when a signal asks to stop; comes after all other callbacks."""

    def __init__(self, folder: RunFolder, settings: Mapping[str, Any], signals: StopSignals) -> None:
        self.folder, self.settings, self.signals = folder, settings, signals
        self._saved = time.monotonic()

    def after_step(self, run: Run) -> None:
        # Epochs end in `after_epoch`, with their record.
        if run.state.progress.batch:
            self._save_if_due(run, last=False)

    def after_epoch(self, run: Run, record: Any) -> None:
        self._save_if_due(run, last=run.state.epoch >= run.epochs or bool(run.history.stopped))

    def save(self, run: Run) -> None:
        """Write a checkpoint; each process must call it."""
        state = run.state_dict()
        if run.engine.rank == 0:
            tensors, document = pack_state(state)
            save_folder(self.folder.checkpoint(run.member), tensors, {"state": document, "settings": self.settings})
        self._saved = time.monotonic()
        if run.engine.ranks > 1:
            run.engine.fabric.barrier()

    def _save_if_due(self, run: Run, *, last: bool) -> None:
        number = self.signals.received
        if run.engine.ranks > 1:
            number = int(max(run.engine.gather(torch.tensor([number])).flatten().tolist()))
        if self.folder.every_steps is not None:
            due = run.state.progress.step % self.folder.every_steps == 0
        else:
            due = bool(run.engine.broadcast(time.monotonic() - self._saved > self.folder.every_seconds))
        if number or last or due:
            self.save(run)
        if number == signal.SIGINT:
            raise Interrupted(f"stopped after step {run.state.progress.step}; resume=True continues the run")
        if number:
            raise Terminated(128 + number)


class StopSignals:
    """The first stop signal that arrived, or 0; a second one ends the process at once."""

    received = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = number


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Note SIGINT, SIGTERM and SIGHUP inside the block instead of ending at once, where Python allows it."""
    signals = StopSignals()
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signals.note) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
