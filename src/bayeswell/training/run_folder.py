"""A run on disk: its settings, its log, its checkpoints and its result, in one folder that survives.

``config.json``    everything that decides the run, with versions and fingerprints of the data and the network
``metrics.jsonl``  one line an epoch; the same bytes whether or not the run was ever cut off
``checkpoints/``   the last two states, each a bundle with checksums
``model/``         the trained model
``result.json``    what came out
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import FileError, SettingError
from ..persistence import JSON, LineLog, read_document, write_document
from ..persistence.locks import Lease, try_lock
from ..plain import plain
from .checkpoints import Checkpoints
from .records import EpochRecord
from .run import Callback, Run
from .signals import Interrupted, StopSignals

LOCK, LOCK_SECONDS = ".lock", 10.0
CONFIG, METRICS, RESULT, MODEL, CHECKPOINTS = "config.json", "metrics.jsonl", "result.json", "model", "checkpoints"


_EPOCHS = re.compile(r"(problem\.experiment\.)?epochs was ")
"""The change of settings that makes a run longer."""


class RunFolder:
    """The files of one run. ``problem`` is kept with the settings: what a command needs to make the run again.

    ``longer`` lets a run that may be finished go on to more epochs than it was begun with. ``finish`` has ``fit`` leave
    model, card of the data and result when it ends: not for whoever measures more, and does that himself. ``is_new``
    says, after ``open``, that there was no run here before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        problem: Mapping[str, JSON] | None = None,
        resume: bool = False,
        force: bool = False,
        longer: bool = False,
        checkpoint_steps: int | None = None,
        checkpoint_seconds: float = 30.0,
        finish: bool = True,
    ) -> None:
        self.path = Path(path)
        self.finish = finish
        self.problem = dict(problem or {})
        self.resume, self.force, self.longer = resume, force, longer
        self.checkpoint_steps, self.checkpoint_seconds = checkpoint_steps, checkpoint_seconds
        self.checkpoints = Checkpoints(self.path / CHECKPOINTS)
        self.is_new = False
        self._lease: Lease | None = None

    def unfinished(self) -> RunFolder:
        """The same folder, in which ``fit`` leaves the end of the run to its caller."""
        other = copy.copy(self)
        other.finish = False
        return other

    def open(self, settings: Mapping[str, JSON]) -> None:
        """Begin a run of these settings here, or find that the one here is the same and may go on (first rank only).

        Until ``close`` the folder is ours: another process that wants it is refused.
        """
        try:
            self._open(settings)
        except BaseException:
            self.close()
            raise

    def _open(self, settings: Mapping[str, JSON]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make the folder {str(self.path)!r}: {error.strerror or error}") from error
        self._lock()
        # Looked at with the lock in hand: another process may have begun a run here while we waited for it.
        self.is_new = not (self.path / CONFIG).exists()
        wanted = {**settings, "problem": self.problem}
        if not self.is_new:
            if not self.resume:
                raise FileError(
                    f"{str(self.path)!r} already holds a run; go on with it (resume=True, or `bayeswell resume`), or "
                    "choose another folder"
                )
            changes = differences(read_document(self.path / CONFIG), wanted)
            refused = [change for change in changes if not (self.longer and _EPOCHS.match(change))]
            if refused and not self.force:
                told = "; ".join(refused)
                raise SettingError(f"the run in {str(self.path)!r} was begun otherwise: {told}; use force to go on")
            if changes:
                write_document(self.path / CONFIG, wanted)
            if self.longer:
                (self.path / RESULT).unlink(missing_ok=True)  # it is no longer finished
            return
        if any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise FileError(f"{str(self.path)!r} is not empty and holds no run; choose another folder")
        write_document(self.path / CONFIG, wanted)

    def close(self) -> None:
        """Leave the folder to others."""
        if self._lease is not None:
            self._lease.give_back()
            self._lease = None

    def undo(self) -> None:
        """Take back what ``open`` has made, unless there was a run before: the place is free again."""
        if self.is_new:
            with contextlib.suppress(OSError):
                for name in (CONFIG, LOCK):
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    def _lock(self) -> None:
        """Hold the folder. A killed run's workers may outlive it by seconds, so there is some patience."""
        if self._lease is not None or sys.platform == "win32":
            return
        deadline = time.monotonic() + LOCK_SECONDS
        while (lease := try_lock(self.path / LOCK)) is None:
            if time.monotonic() > deadline:
                raise FileError(f"another process is working on the run in {str(self.path)!r}; wait for it, or stop it")
            time.sleep(0.05)
        self._lease = lease

    def config(self) -> dict[str, Any]:
        """The settings the run was begun with."""
        return read_document(self.path / CONFIG)

    def result(self) -> dict[str, Any] | None:
        """What came out, if the run is finished."""
        return read_document(self.path / RESULT) if (self.path / RESULT).exists() else None

    def write_result(self, record: Mapping[str, JSON]) -> None:
        """Say that the run is finished, and what came out."""
        write_document(self.path / RESULT, record)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Each setting that differs, by name, with both values."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), plain(new.get(key))  # as it would come back from a file
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} was {before!r}, is now {after!r}")
    return found


class MetricsLog(Callback):
    """One line for each epoch in ``metrics.jsonl``; a run that goes on first cuts off what it will write again."""

    def __init__(self, folder: RunFolder) -> None:
        self.log = LineLog(folder.path / METRICS)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if run.engine.rank == 0:
            self.log.append({"member": run.member, "epoch": record.epoch, "step": run.step, **record.values()})

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.log.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.log.cut(state["size"])


class Checkpointer(Callback):
    """Save the state when it is due: every so many steps or seconds, at the end, and when a signal asks to stop.

    When to save does not change what is learned, so the clock may decide. Must come after all callbacks that have a
    state; ``finished`` is what the members before this one have left.
    """

    def __init__(self, folder: RunFolder, signals: StopSignals, finished: list[dict[str, Any]]) -> None:
        self.folder, self.signals, self.finished = folder, signals, finished
        self.saved_at = time.monotonic()

    def start(self, run: Run) -> None:
        self.saved_at = time.monotonic()

    def after_step(self, run: Run) -> None:
        steps = self.folder.checkpoint_steps
        if steps is None:
            due = time.monotonic() - self.saved_at > self.folder.checkpoint_seconds
        else:
            due = run.step % steps == 0
        asked = self._told(run)
        if run.engine.ranks > 1:  # every rank has a clock of its own: the first one's counts
            due = bool(run.engine.summed(torch.tensor(float(due and run.engine.rank == 0), dtype=torch.float64)) > 0)
        if asked or due:
            self.save(run)
        self._leave(run, asked)

    def _told(self, run: Run) -> int:
        """The signal that came, or 0; it may have reached one rank only."""
        asked = self.signals.received or 0
        if run.engine.ranks > 1:
            told = torch.tensor([asked == signal.SIGTERM, asked == signal.SIGINT], dtype=torch.float64)
            terminate, interrupt = (run.engine.summed(told) > 0).tolist()
            asked = signal.SIGTERM if terminate else signal.SIGINT if interrupt else 0
        return int(asked)

    def _leave(self, run: Run, asked: int) -> None:
        if asked:
            note = f"stopped by signal {asked} after step {run.step}; the state is saved: resume to go on"
            raise Interrupted(asked, note)

    def end(self, run: Run) -> None:
        self.save(run)
        self._leave(run, self._told(run))  # a signal in the last epoch, or between members

    def save(self, run: Run) -> None:
        """Write a checkpoint of this moment; every rank must call it."""
        state = run.state_dict()
        if run.engine.rank == 0:
            self.folder.checkpoints.save(run.member, run.step + run.epoch, {"run": state, "finished": self.finished})
        self.saved_at = time.monotonic()
        run.engine.wait()
