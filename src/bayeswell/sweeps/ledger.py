"""The book of a sweep: which trial is whose, and what came out. It is an Optuna study and two locks.

A trial of the sweep is one trial of the study, from its first beginning to its end, whoever works on it: a trial whose
worker died is taken over under its own number, in its own folder, with the settings it had. So there are never more
trials than were asked for, and each ends once.

- Every change to the study is made under the lock of the book. Two workers can therefore not take the same trial, nor
  begin one too many, and SQLite never sees two writers.
- A worker holds the lease of its trial as long as it works on it. A running trial whose lease is free has no worker:
  it is freed when a process ends, however it ends.

Where the locks are, in the folder or in the database, ``leases`` says. A worker whose connection to the database was
cut takes its leases again with the next one, where they are free. If its trial was taken over meanwhile, it finds it
ended, or ends it first: the book records one end, under its lock. In a folder that both see nobody takes it over: a run
whose own folder is locked is being worked on.

Optuna's own heartbeat would be a clock instead: seconds until a death is noticed, a write to the database by every
worker in every interval, and a worker that was only stopped for a while would find its folder taken by another.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import FileError
from ..extras import needs_extra
from ..training.run_folder import is_in_use
from .definition import TRIALS, Definition, storage_url
from .leases import Lease, locks_of
from .results import COMPLETE, FAILED, RUNNING, SweepResult, TrialRecord
from .space import Value
from .study import check_database, close_storage, faults_of, open_study, storage_at, without_password
from .suggestions import suggest

with needs_extra("lab", "a sweep"):
    import optuna
    from optuna.trial import FrozenTrial, TrialState

BUSY_SECONDS = 60.0
"""How long to wait for a database that another program keeps locked."""

_ATTEMPTS, _MESSAGE, _PLACE = "bayeswell:attempts", "bayeswell:message", "bayeswell:place"
_ERROR = "bayeswell:error"
_STATES = {TrialState.COMPLETE: COMPLETE, TrialState.FAIL: FAILED}


@dataclass(frozen=True)
class Claim:
    """A trial that is ours until it ends or is given back."""

    number: int
    settings: Mapping[str, Value]
    folder: Path
    attempt: int
    trial: optuna.Trial
    lease: Lease


class Ledger:
    """The book of the sweep in ``folder``."""

    def __init__(self, definition: Definition, folder: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.folder = folder
        self._busy_seconds = busy_seconds
        url = storage_url(definition, folder)
        self._where = without_password(url)
        try:
            (folder / TRIALS).mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write into {str(folder)!r}: {error.strerror or error}") from error
        with faults_of(self._where, busy_seconds):
            self._locks = locks_of(url, folder)
            weakref.finalize(self, self._locks.close)
            with self._locks.opening():
                check_database(definition, folder)
                storage = storage_at(url, busy_seconds)
                weakref.finalize(self, close_storage, storage)
                self._study, self.definition = open_study(definition, folder, url, storage)

    def claim(self) -> Claim | None:
        """A trial to work on: one whose worker died, else a new one; None if there is none at the moment."""
        with self._book():
            trials = self._trials()
            running = [trial for trial in trials if trial.state == TrialState.RUNNING]
            # Those first that were begun in this folder: they go on, on another machine they would begin anew.
            for trial in sorted(running, key=lambda trial: not self._folder_of(trial.number).exists()):
                if self._is_worked_on(trial.number):  # by one who has lost the lease with a connection
                    continue
                if lease := self._lease(trial.number):
                    with _given_back_on_error(lease):
                        claim = self._take(trial, lease)
                    if claim is not None:
                        return claim
            if len(trials) >= self.definition.trials:
                return None
            number = len(trials)
            # The lease first: if this fails half-way, a trial without a worker is left, and the next one takes it.
            new = self._lease(number)
            if new is None:
                raise FileError(
                    f"the lease of trial {number} in {self._where} is held although it does not exist yet; was the "
                    "study replaced?"
                )
            with _given_back_on_error(new):
                asked = self._study.ask()
                if asked.number != number:
                    raise FileError(
                        f"the study in {self._where} is changed by another program: its trials are out of order"
                    )
                return self._begin(asked, new, attempt=1)

    def finish(self, claim: Claim, value: float, error: float | None = None) -> None:
        """Record what came out of a trial, and its standard error if it is known."""
        # On the lease first, in one write: if we are killed before it is in the study, whoever comes next records it
        # and need not run the trial again.
        claim.lease.write(json.dumps({"value": value, "error": error}))
        self._end(claim, value, error)

    def fail(self, claim: Claim, message: str) -> None:
        """Record that a trial failed for good, and why."""
        self._end(claim, message=message)

    def give_back(self, claim: Claim, message: str | None = None) -> None:
        """Leave a trial to be gone on with. With a message it counts as an attempt that went wrong."""
        with self._book(), contextlib.ExitStack() as stack:
            stack.callback(claim.lease.give_back)
            if self._has_ended(claim.number):
                return
            if message is None:
                claim.trial.set_user_attr(_ATTEMPTS, claim.attempt - 1)
            else:
                claim.trial.set_user_attr(_MESSAGE, message)

    def result(self) -> SweepResult:
        """The book as it stands now."""
        definition = self.definition
        with faults_of(self._where, self._busy_seconds):
            records = tuple(_record(trial) for trial in self._trials())
        return SweepResult(definition.name, definition.trials, definition.direction, records)

    def _take(self, found: FrozenTrial, lease: Lease) -> Claim | None:
        """Go on with a trial that has no worker; None if it had ended after all, or was begun too often."""
        trial = optuna.Trial(self._study, found._trial_id)  # one that can be changed
        begun = int(found.user_attrs.get(_ATTEMPTS, 1))
        value, error = _value_on(lease)
        if value is None and begun < self.definition.attempts:
            trial.set_user_attr(_ATTEMPTS, begun + 1)
            return self._begin(trial, lease, attempt=begun + 1)
        if value is None:
            reason = found.user_attrs.get(_MESSAGE) or "its worker died each time"
            trial.set_user_attr(_MESSAGE, f"given up after {begun} attempts: {reason}")
        if error is not None:
            trial.set_user_attr(_ERROR, error)
        self._tell(found.number, value)
        lease.give_back(remove=True)
        return None

    def _begin(self, trial: optuna.Trial, lease: Lease, *, attempt: int) -> Claim:
        settings = suggest(self._study, self.definition, trial)
        folder = self._folder_of(trial.number)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
        return Claim(trial.number, settings, folder, attempt, trial, lease)

    def _end(
        self, claim: Claim, value: float | None = None, error: float | None = None, *, message: str | None = None
    ) -> None:
        with self._book():
            if not self._has_ended(claim.number):
                for name, known in ((_MESSAGE, message), (_ERROR, error)):
                    if known is not None:
                        claim.trial.set_user_attr(name, known)
                claim.trial.set_user_attr(_PLACE, f"{socket.gethostname()}:{claim.folder}")
                self._tell(claim.number, value)
            claim.lease.give_back(remove=True)

    def _has_ended(self, number: int) -> bool:
        """Whether another has ended it, because our lease was lost with a connection."""
        return self._trials()[number].state.is_finished()

    def _tell(self, number: int, value: float | None) -> None:
        """The end of a trial: with a value it is complete, without one it has failed."""
        self._study.tell(number, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _folder_of(self, number: int) -> Path:
        return self.folder / TRIALS / f"{number:04d}"

    def _is_worked_on(self, number: int) -> bool:
        """Whether a run of the trial is, the one in its folder or one of several in folders within."""
        folder = self._folder_of(number)
        return any(map(is_in_use, (folder, *folder.glob("*"))))

    def _lease(self, number: int) -> Lease | None:
        return self._locks.lease(self._study._study_id, number)

    @contextlib.contextmanager
    def _book(self) -> Iterator[None]:
        """Nobody else writes meanwhile, and what goes wrong with the database is one line."""
        with faults_of(self._where, self._busy_seconds), self._locks.book(self._study._study_id):
            yield


def _value_on(lease: Lease) -> tuple[float | None, float | None]:
    """The value and its error that the last holder wrote down before it could record them, if any."""
    try:
        note = json.loads(lease.read())
    except ValueError:
        return None, None
    value, error = ((note.get(name) if isinstance(note, dict) else None) for name in ("value", "error"))
    if not (isinstance(value, float) and math.isfinite(value)):
        return None, None
    return value, error if isinstance(error, float) else None


@contextlib.contextmanager
def _given_back_on_error(lease: Lease) -> Iterator[None]:
    try:
        yield
    except BaseException:
        lease.give_back()
        raise


def _record(trial: FrozenTrial) -> TrialRecord:
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return TrialRecord(
        trial.number,
        _STATES.get(trial.state, RUNNING),
        dict(trial.params),
        value,
        None if trial.duration is None else trial.duration.total_seconds(),
        int(trial.user_attrs.get(_ATTEMPTS, 1)),
        trial.user_attrs.get(_MESSAGE),
        trial.user_attrs.get(_PLACE),
        trial.user_attrs.get(_ERROR),
    )
