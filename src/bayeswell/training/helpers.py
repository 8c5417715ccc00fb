"""Members of an ensemble trained at the same time, each bit for bit what it is when trained alone.

A helper is a process that trains a member ahead of the one that asked. All it leaves is the checkpoint at the member's
end, in a folder of the member's own; whoever gathers the members goes on from there, as from any checkpoint. So a
helper that is killed costs time and nothing else: its member is gone on with from its last checkpoint. In the same way
two processes share a member, where members are no multiple of processes: one trains it up to some step, the other goes
on from there when it has nothing else left to do. ::

    RUN/members/3/    config.json, checkpoints/, newest.json: as in any run's folder; gone when the run has ended
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ..errors import BayeswellError, BayeswellWarning, SettingError
from ..persistence import JSON
from ..processes import (
    NO_GUARD,
    STOP_SECONDS,
    UNGUARDED,
    CannotStart,
    Parcel,
    be_a_worker,
    clean_context,
    dismiss,
    first_line,
    try_worker,
)
from .early_stopping import KeepBest
from .looks import Looks
from .loop import train
from .records import EpochRecord
from .run import Callback, Run
from .run_folder import Checkpointer, RunFolder
from .signals import Interrupted, watched_signals
from .streams import own_global_stream

MEMBERS = "members"
_LATE_IMPORTS = ("bayeswell.training", "bayeswell.methods")


class Beginnings(Protocol):
    """What makes the runs of the members."""

    def begin(self, member: int, callbacks: Sequence[Callback]) -> Run:
        """A member's run at its first step."""


class Job(NamedTuple):
    """A member, and up to which part of its steps it is to be trained, from wherever it stands."""

    member: int
    part: Fraction = Fraction(1)


class Helpers:
    """Helper processes at work on some of the members; ``state_of`` waits for one and gives where it stands."""

    def __init__(self, folder: Path | None, like: RunFolder | None, settings: Mapping[str, JSON]) -> None:
        self.folder, self.like, self.settings = folder, like, settings
        self._busy: dict[int, _Helper] = {}
        self._failed = False

    def start(self, plan: Beginnings, looks: Looks, best: KeepBest | None, share: list[Job]) -> None:
        """One more process, for these jobs, in their order. Of two that share a member the first to start ends it."""
        work = (plan, looks, best, self, share, torch.get_num_threads(), torch.get_default_dtype())
        if self._failed:
            return
        try:
            one = _Helper(*try_worker(clean_context(_LATE_IMPORTS), _help, Parcel(work)))
        except CannotStart as error:
            self._do_without(str(error))
        else:
            self._busy = {**{job.member: one for job in share}, **self._busy}

    def _do_without(self, why: str) -> None:
        """Say, once, that there are no helpers."""
        if not self._failed:
            note = f"workers: no other process could begin, members are trained here, one after another: {why}"
            warnings.warn(note, BayeswellWarning, stacklevel=2)
        self._failed = True

    def folder_of(self, member: int) -> RunFolder:
        """Where a member's state is: below the run's own folder, checkpoints as often as there."""
        assert self.folder is not None  # where there are helpers there is one
        own = self.like
        often = {} if own is None else {
            "checkpoint_steps": own.checkpoint_steps, "checkpoint_seconds": own.checkpoint_seconds, "force": own.force,
        }  # fmt: skip
        return RunFolder(self.folder / str(member), resume=True, finish=False, **often)  # type: ignore[arg-type]

    def state_of(self, member: int) -> dict[str, Any] | None:
        """The newest state of a member once its helper has left it, its end if all went well; None: there is none."""
        helper = self._busy.pop(member, None)
        while helper is not None:
            wait([helper.ear, helper.process.sentinel])
            alive = helper.process.is_alive()  # asked first: what it said before it ended is then all there
            if helper.has_said(member) or not alive:
                break
        if helper is not None and (why := helper.why_not_begun()):
            self._do_without(why)
        if self.folder is None:
            return None
        found = self.folder_of(member)
        if not found.path.exists():
            return None
        saved = found.newest()
        return None if saved is None else dict(saved["run"])

    def dismiss(self) -> None:
        """Let those who are left save what they have and stop."""
        dismiss({helper.process for helper in self._busy.values()})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_busy": {}, "like": None if self.like is None else _unopened(self.like)}


@dataclass(eq=False)
class _Helper:
    """A process, and what it has said so far."""

    process: BaseProcess
    ear: Connection
    begun: bool = False
    refused: str = ""

    def has_said(self, member: int) -> bool:
        """Whether it has come to this member's end; what it warned of meanwhile is told here."""
        try:
            while self.ear.poll():
                said = self.ear.recv()
                if isinstance(said, str):
                    warnings.warn(BayeswellWarning(said), stacklevel=4)
                elif isinstance(said, tuple):
                    self.begun, self.refused = said
                elif said == member:
                    return True
        except (EOFError, OSError):
            return True
        return False

    def why_not_begun(self) -> str:
        """Empty if it had begun, whatever came then."""
        if self.begun or self.refused:
            return self.refused
        self.process.join(STOP_SECONDS)
        code = self.process.exitcode
        return NO_GUARD if code == UNGUARDED else f"it ended with exit status {code} while it imported the program"


@contextmanager
def helpers(
    plan: Beginnings, looks: Looks, best: KeepBest | None, folder: RunFolder | None,
    settings: Mapping[str, JSON], members: Sequence[int], workers: int,
) -> Iterator[Helpers]:  # fmt: skip
    """Processes for all but the first share of these members, which is for whoever asks.

    What helpers of an earlier session have left in the run's folder is found again, however many there are now.
    """
    shares = _shares(members, workers)
    with ExitStack() as stack:
        place = None if folder is None else folder.path / MEMBERS
        if place is None and len(shares) > 1:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bayeswell-members-")))
        found = Helpers(place, folder, settings)
        stack.callback(found.dismiss)
        for own in shares[1:]:
            found.start(plan, looks, best, own)
        yield found
        if folder is not None:  # not after an error: what is there is gone on with
            _remove(folder.path / MEMBERS)


def _remove(place: Path) -> None:
    """What helpers have left, and nothing else."""
    if place.is_dir():
        for own in [entry for entry in place.iterdir() if entry.name.isdecimal()]:
            shutil.rmtree(own, ignore_errors=True)
        with suppress(OSError):
            place.rmdir()


class Replay(Callback):
    """Tells others of the epochs that a member had elsewhere, once all have been started."""

    every_step = False

    def __init__(self, state: Mapping[str, Any], others: Sequence[Callback]) -> None:
        self.records = [EpochRecord(**record) for record in state["history"]]
        self.others = others

    def start(self, run: Run) -> None:
        here = run.epoch, run.step
        for record in self.records:
            run.epoch, run.step = record.epoch + 1, (record.epoch + 1) * run.batches.count
            for other in self.others:
                other.after_epoch(run, record)
        run.epoch, run.step = here


def require_content_with_epochs(callbacks: Sequence[Callback]) -> None:
    """Refuse callbacks that must see every step of members that are trained in other processes."""
    for callback in callbacks:
        if callback.every_step:
            raise SettingError(
                f"workers above 1: the callback {type(callback).__name__} could not see the steps of members in other "
                "processes; use workers = 1, or set its every_step = False if records of epochs are all it needs"
            )


def _shares(members: Sequence[int], workers: int) -> list[list[Job]]:
    """Equal parts of all members laid end to end (McNaughton's rule); none is empty, none shorter than a member.

    A member that is cut in two is begun first of all by the process behind the cut, and ended last of all by the one
    before it: with shares of at least a member's length the one is done before the other wants to go on.
    """
    number = min(workers, len(members))
    cuts = [Fraction(index * len(members), number) for index in range(number + 1)] if number else []
    return [
        [
            *([Job(members[floor(start)], ceil(start) - start)] if start.denominator > 1 else []),
            *map(Job, members[ceil(start) : ceil(stop)]),
        ]
        for start, stop in pairwise(cuts)
    ]


def _help(parcel: Parcel, mouth: Connection) -> None:
    """What a helper process does first: see whether it can."""
    be_a_worker()
    try:
        work: tuple[Any, ...] = parcel.open()
    except Exception as error:  # of whatever is unpickled
        mouth.send((False, f"it cannot read what it was sent: {type(error).__name__}: {first_line(error)}"))
    else:
        mouth.send((True, ""))
        _train_members(mouth, *work)


def _train_members(
    mouth: Connection, plan: Beginnings, looks: Looks, best: KeepBest | None, to: Helpers,
    share: list[Job], threads: int, dtype: torch.dtype,
) -> None:  # fmt: skip
    torch.set_num_threads(threads)  # as in the process that asked: sums depend on it
    torch.set_default_dtype(dtype)
    warnings.simplefilter("ignore")
    for member, part in share:
        folder = to.folder_of(member)
        try:
            folder.open({**to.settings, "member": member})
            _train(plan, looks, best, folder, Job(member, part), mouth)
        except Interrupted:
            return
        except BayeswellError:
            pass  # whoever gathers meets it too, from the last checkpoint on, and says it
        finally:
            folder.close()
        mouth.send(member)


def _train(
    plan: Beginnings, looks: Looks, best: KeepBest | None, folder: RunFolder, job: Job,
    mouth: Connection,
) -> None:  # fmt: skip
    with own_global_stream(), watched_signals() as signals, warnings.catch_warnings():
        keeping = Checkpointer(folder, signals, [])
        leaving = _Leave(keeping, job.part)
        run = plan.begin(job.member, [*([] if best is None else [copy.deepcopy(best)]), keeping, leaving])
        saved = folder.newest()
        if saved is not None:
            run.load_state_dict(saved["run"])
        warnings.simplefilter("always", BayeswellWarning)
        warnings.showwarning = lambda message, *_: mouth.send(str(message))
        with suppress(_Left):
            train(run, looks)


class _Left(Exception):
    """The rest of a member's steps is another's."""


class _Leave(Callback):
    """Saves the state after some part of a run's steps, and ends training there."""

    def __init__(self, keeping: Checkpointer, part: Fraction) -> None:
        self.keeping, self.part = keeping, part

    def _is_there(self, run: Run) -> bool:
        return self.part < 1 and run.step >= self.part * run.epochs * run.batches.count

    def start(self, run: Run) -> None:
        if self._is_there(run):  # as it was saved by whoever came so far
            raise _Left

    def after_step(self, run: Run) -> None:
        if self._is_there(run):
            self.keeping.save(run)
            raise _Left


def _unopened(folder: RunFolder) -> RunFolder:
    """The same folder in a process that does not hold it."""
    return RunFolder(
        folder.path, force=folder.force, checkpoint_steps=folder.checkpoint_steps,
        checkpoint_seconds=folder.checkpoint_seconds,
    )  # fmt: skip
