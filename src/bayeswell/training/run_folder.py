"""A run on disk: its settings, its log, its checkpoints and its result, in one folder that survives.

``config.json``    everything that decides the run, with versions and fingerprints of the data and the network; its id
``metrics.jsonl``  one line an epoch; the same bytes whether or not the run was ever cut off
``checkpoints/``   the last two states, each a bundle with checksums and the run's id
``members/``       while it runs: states of members of an ensemble that are trained at the same time
``newest.json``    which checkpoint is the newest, and how far the log was then: no older one is taken for it
``model/``         the trained model
``result.json``    what came out
``seals.json``     its fingerprint, and those of the settings, the model and the data it goes with
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import BayeswellWarning, FileError, InUseError, SettingError
from ..persistence import JSON, LineLog, read_document, read_lines, read_plain, write_document, write_whole
from ..persistence.contents import encode_record
from ..persistence.folders import remove_leftovers
from ..persistence.locks import Lease, try_lock
from ..persistence.manifest import MANIFEST
from ..plain import plain
from .checkpoints import Checkpoints
from .identity import RUN, Identity, changes_of_machine, new_entry, settings_sha256
from .records import EpochRecord
from .run import Callback, Run
from .signals import STOPPING, Interrupted, StopSignals

LOCK, LOCK_SECONDS = ".lock", 10.0
CONFIG, METRICS, RESULT, MODEL, CHECKPOINTS = "config.json", "metrics.jsonl", "result.json", "model", "checkpoints"
NEWEST = "newest.json"
SEALS = "seals.json"
_EMPTIED = 3
"""A result with fewer entries says nothing."""


_EPOCHS = re.compile(r"(problem\.experiment\.)?epochs was ")
"""The change of settings that makes a run longer."""


def is_in_use(path: Path) -> bool:
    """Whether a process that is alive works on the run in this folder."""
    if sys.platform == "win32" or not (path / LOCK).is_file():
        return False
    lease = try_lock(path / LOCK)
    if lease is not None:
        lease.give_back()
    return lease is None


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
        self._identity: Identity | None = None

    def about(self, **problem: JSON) -> RunFolder:
        """The same folder, with more to say of what the run is about: another run is one that differs in it."""
        other = copy.copy(self)
        other.problem = {**self.problem, **problem}
        return other

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
            self._identity = self.identity()
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
        for place in (self.path, self.path / CHECKPOINTS):
            remove_leftovers(place)  # of saves that were killed
        wanted = {**settings, "problem": self.problem}
        if not self.is_new:
            self._go_on(wanted)
            return
        if any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise FileError(f"{str(self.path)!r} is not empty and holds no run; choose another folder")
        write_document(self.path / CONFIG, {**wanted, RUN: new_entry()})

    def _go_on(self, wanted: Mapping[str, JSON]) -> None:
        """Look whether the run that is here is the one that is wanted, or may become it."""
        if not self.resume:
            raise FileError(
                f"{str(self.path)!r} already holds a run; go on with it (resume=True, or `bayeswell resume`), or "
                "choose another folder"
            )
        config = self.config()
        own = config.pop(RUN, None)
        changes = differences(config, wanted)
        refused = [change for change in changes if not (self.longer and _EPOCHS.match(change))]
        if refused and not self.force:
            told = "; ".join(refused)
            raise SettingError(f"the run in {str(self.path)!r} was begun otherwise: {told}; use force to go on")
        entry: dict[str, Any] = new_entry(adopted=True) if own is None else own
        machine = changes_of_machine({RUN: entry})
        if machine:
            note = (
                f"the run in {str(self.path)!r} goes on otherwise: {machine}; it will not end bit for bit as it would"
            )
            warnings.warn(f"{note} have", BayeswellWarning, stacklevel=5)
        if changes:
            entry["earlier"] = [*entry["earlier"], settings_sha256(config)]
        if changes or own is None:
            write_document(self.path / CONFIG, {**wanted, RUN: entry})
        if self.longer:
            (self.path / RESULT).unlink(missing_ok=True)  # it is no longer finished

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
                raise InUseError(
                    f"another process is working on the run in {str(self.path)!r}; wait for it, or stop it"
                )
            time.sleep(0.05)
        self._lease = lease

    def config(self) -> dict[str, Any]:
        """The settings the run was begun with."""
        return read_document(self.path / CONFIG)

    def identity(self) -> Identity | None:
        """Which run this is; None if an earlier version began it and it was not gone on with since."""
        return Identity.of(self.config(), self.path / CONFIG)

    def document(self, name: str, *, users: bool = False) -> dict[str, Any]:
        """A document of the run; sealed, if the run's settings are, unless it may be the user's own."""
        sealed = (self.path / CONFIG).exists() and self.identity() is not None
        return read_document(self.path / name, users=users, sealed=sealed and not users)

    def newest(self) -> dict[str, Any] | None:
        """The state to go on from: of this very run, and the newest that was saved."""
        if not (self.path / CONFIG).exists():
            return self.checkpoints.newest()
        try:
            self.newest_name()
        except FileError as error:
            if not self.force:
                raise
            warnings.warn(f"{error}: going on from what there is", BayeswellWarning, stacklevel=2)
        return self.checkpoints.newest(self.identity())

    def newest_name(self) -> str | None:
        """The newest checkpoint by ``newest.json``; refused if it is gone, and older ones at most are there."""
        name = self.pointer().get("checkpoint")
        found = [path.name for path in self.checkpoints.paths()]
        excused = name is not None and (self.checkpoints.was_damaged(name) or self.checkpoints.is_being_replaced(name))
        if name is not None and not excused and not any(own >= name for own in found):
            there = f"the newest there is {found[-1]!r}, older than the log" if found else "there is none"
            note = f"the checkpoint {name!r} was saved in {str(self.checkpoints.folder)!r}, but {there}"
            raise FileError(f"{note}; put it back, or use force to go on from what there is")
        return name

    def pointer(self) -> dict[str, Any]:
        """What ``newest.json`` says; nothing before the first checkpoint."""
        return self.document(NEWEST) if (self.path / NEWEST).exists() else {}

    def save(self, member: int, step: int, state: dict[str, Any], log: Mapping[str, Any]) -> None:
        """Write a checkpoint, and then that it is the newest; ``log`` says how far the log was."""
        owner = None if self._identity is None else self._identity.owner()
        name = self.checkpoints.save(member, step, state, owner)
        write_document(self.path / NEWEST, {"checkpoint": name, "log": dict(log)})

    def epochs(self) -> list[dict[str, Any]]:
        """The lines of the log; refused if it is not all that was written when the newest checkpoint was."""
        log = self.pointer().get("log") or {}
        return read_lines(self.path / METRICS, log.get("size", 0), log.get("seal"))

    def result(self) -> dict[str, Any] | None:
        """What came out, if the run is finished. One that was emptied is none: it can be measured again."""
        path = self.path / RESULT
        if not path.exists() or path.stat().st_size == 0:
            return None
        if not (self.path / SEALS).exists():
            record = read_document(path)  # with a word: an earlier version wrote it, or a kill came in between
            return None if (self.path / CONFIG).exists() and self.identity() is not None else record
        wanted = self.document(SEALS).get(RESULT)
        record, digest = read_plain(path)
        if digest == wanted:
            return record
        if len(record) < _EMPTIED:
            return None
        raise FileError(f"{str(path)!r} was altered (SHA-256 differs); restore it, or remove it to have it made again")

    def write_result(self, record: Mapping[str, JSON]) -> None:
        """Say that the run is finished, and what came out; then seal it, with the files that it goes with.

        The result is a document whose seal lies beside it: it is the same for the same run, but for its time.
        """
        if self._identity is not None and not (self.path / CONFIG).exists():
            raise FileError(f"{str(self.path)!r} was moved or removed while the run went on; put it back and resume")
        data = encode_record(record)
        write_whole(self.path / RESULT, data)
        write_document(self.path / SEALS, {RESULT: hashlib.sha256(data).hexdigest(), **self._fingerprints()})

    def _fingerprints(self) -> dict[str, JSON]:
        """SHA-256 of the settings, and of the files that a result goes with."""
        names = (f"{MODEL}/{MANIFEST}", "data.json")
        found = {name: self.path / name for name in names if (self.path / name).is_file()}
        files = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
        settings = settings_sha256(self.config()) if (self.path / CONFIG).exists() else None
        return {"settings": settings, **files}

    def swapped(self) -> list[str]:
        """Which of the files that the result goes with are not those that it was written with."""
        if not (self.path / SEALS).exists() or self.result() is None:
            return []
        now = self._fingerprints()
        said = {name: value for name, value in self.document(SEALS).items() if name != RESULT}
        return [name for name, value in said.items() if now.get(name) != value]


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

    every_step = False

    def __init__(self, folder: RunFolder) -> None:
        self.log, self.force = LineLog(folder.path / METRICS), folder.force

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if run.engine.rank == 0:
            self.log.append({"member": run.member, "epoch": record.epoch, "step": run.step, **record.values()})

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.log.size, "seal": self.log.link}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.log.cut(state["size"], state.get("seal"), force=self.force)


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
            told = run.engine.summed(torch.tensor([asked == number for number in STOPPING], dtype=torch.float64))
            asked = next((number for number, count in zip(STOPPING, told.tolist(), strict=True) if count), 0)
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
            log: dict[str, Any] = next(
                (own for name, own in state["callbacks"].items() if name.startswith("MetricsLog ")), {}
            )
            self.folder.save(run.member, run.step + run.epoch, {"run": state, "finished": self.finished}, log)
        self.saved_at = time.monotonic()
        run.engine.wait()
