"""The book of a sweep: which trial is whose, and what came out. It is an Optuna study and two kinds of lock.

A trial of the sweep is one trial of the study, from its first beginning to its end, whoever works on it: a trial whose
worker died is taken over under its own number, in its own folder, with the settings it had. So there are never more
trials than were asked for, and each ends once.

- Every change to the study is made under the folder's lock (``.sweep.lock``). Two workers can therefore not take the
  same trial, nor begin one too many, and SQLite never sees two writers.
- A worker holds the lease of its trial (``.leases/NNNN``) as long as it works on it. A running trial whose lease is
  free has no worker: the system frees the lease when a process ends, however it ends (see ``locks``).

Optuna's own heartbeat would be a clock instead: seconds until a death is noticed, a write to the database by every
worker in every interval, and a worker that was only stopped for a while would find its folder taken by another.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..errors import FileError, SettingError
from ..extras import needs_extra
from ..persistence.locks import Lease, locked, try_lock
from ..random import derive_seed
from .definition import DATABASE, LEASES, LOCK, TRIALS, Definition, storage_url
from .results import COMPLETE, FAILED, RUNNING, SweepResult, TrialRecord
from .space import Choices, Setting, Spread

with needs_extra("lab", "a sweep"):
    import optuna
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, TrialState
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

T = TypeVar("T")

BUSY_SECONDS = 60.0
"""How long to wait for a database that another program keeps locked."""

_IDENTITY, _ATTEMPTS, _MESSAGE = "bayeswell:sweep", "bayeswell:attempts", "bayeswell:message"
_STATES = {TrialState.COMPLETE: COMPLETE, TrialState.FAIL: FAILED}


@dataclass(frozen=True)
class Claim:
    """A trial that is ours until it ends or is given back."""

    number: int
    settings: Mapping[str, Setting]
    folder: Path
    attempt: int
    trial: optuna.Trial
    lease: Lease


class Ledger:
    """The book of the sweep in ``folder``."""

    def __init__(self, definition: Definition, folder: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.definition, self.folder = definition, folder
        self._busy_seconds = busy_seconds
        url = storage_url(definition, folder)
        self._where = _shown(url)
        try:
            (folder / LEASES).mkdir(exist_ok=True)
            (folder / TRIALS).mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write into {str(folder)!r}: {error.strerror or error}") from error
        with self._lock():
            if definition.storage is None:
                _check_database(folder / DATABASE)
            self._study = self._patiently(lambda: self._open(url))

    def claim(self) -> Claim | None:
        """A trial to work on: one whose worker died, else a new one; None if there is none at the moment."""
        with self._lock():
            trials = self._trials()
            for trial in trials:
                if trial.state == TrialState.RUNNING and (lease := try_lock(self._lease_path(trial.number))):
                    claim = self._take(trial, lease)
                    if claim is not None:
                        return claim
            if len(trials) >= self.definition.trials:
                return None
            number = len(trials)
            # The lease first: if this fails half-way, a trial without a worker is left, and the next one takes it.
            lease = _leased(self._lease_path(number))
            with _given_back_on_error(lease):
                return self._begin(self._patiently(lambda: self._create(number)), lease, attempt=1)

    def finish(self, claim: Claim, value: float) -> None:
        """Record what came out of a trial."""
        # On the lease first, in one write: if we are killed before it is in the study, whoever comes next records it
        # and need not run the trial again.
        claim.lease.write(json.dumps({"value": value}))
        self._end(claim, TrialState.COMPLETE, value=value)

    def fail(self, claim: Claim, message: str) -> None:
        """Record that a trial failed for good, and why."""
        self._end(claim, TrialState.FAIL, message=message)

    def give_back(self, claim: Claim, message: str | None = None) -> None:
        """Leave a trial to be gone on with. With a message it counts as an attempt that went wrong."""
        with self._lock(), contextlib.ExitStack() as stack:
            stack.callback(claim.lease.give_back)
            attempt = claim.attempt - 1 if message is None else claim.attempt
            self._note(claim.trial, {_ATTEMPTS: attempt, **({} if message is None else {_MESSAGE: message})})

    def result(self) -> SweepResult:
        """The book as it stands now."""
        definition = self.definition
        records = tuple(_record(trial) for trial in self._trials())
        return SweepResult(definition.name, definition.trials, definition.direction, records)

    def _take(self, found: FrozenTrial, lease: Lease) -> Claim | None:
        """Go on with a trial that has no worker; None if it had ended after all, or was begun too often."""
        with _given_back_on_error(lease):
            value = _value_on(lease)
            if value is not None:
                self._patiently(lambda: self._study.tell(found.number, value, state=TrialState.COMPLETE))
                lease.give_back(remove=True)
                return None
            trial = self._patiently(lambda: self._handle(found))
            begun = int(found.user_attrs.get(_ATTEMPTS, 1))
            if begun < self.definition.attempts:
                self._note(trial, {_ATTEMPTS: begun + 1})
                return self._begin(trial, lease, attempt=begun + 1)
            reason = found.user_attrs.get(_MESSAGE) or "its worker died each time"
            self._note(trial, {_MESSAGE: f"given up after {begun} attempts: {reason}"})
            self._patiently(lambda: self._study.tell(found.number, state=TrialState.FAIL))
        lease.give_back(remove=True)
        return None

    def _begin(self, trial: optuna.Trial, lease: Lease, *, attempt: int) -> Claim:
        settings = self._patiently(lambda: self._suggest(trial))
        folder = self.folder / TRIALS / f"{trial.number:04d}"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
        return Claim(trial.number, settings, folder, attempt, trial, lease)

    def _suggest(self, trial: optuna.Trial) -> dict[str, Setting]:
        """The trial's settings; those that are recorded already stay.

        The sampler begins anew for each trial, from the sweep's seed and the trial's number: settings of a random
        sweep depend on nothing else, whichever worker draws them and whatever was killed in between.
        """
        self._study.sampler = _sampler(self.definition, trial.number)
        recorded = trial.params
        settings: dict[str, Setting] = {}
        for name, spread in self.definition.space.items():
            if name in recorded:
                # Its draw is taken and dropped, so that the names after it get the draws they would have had.
                frozen = self._study.get_trials(deepcopy=False)[trial.number]
                self._study.sampler.sample_independent(self._study, frozen, name, frozen.distributions[name])
                settings[name] = recorded[name]
            else:
                settings[name] = _suggested(trial, name, spread)
        return settings

    def _end(self, claim: Claim, state: TrialState, *, value: float | None = None, message: str | None = None) -> None:
        with self._lock():
            if message is not None:
                self._note(claim.trial, {_MESSAGE: message})
            self._patiently(lambda: self._study.tell(claim.number, value, state=state))
            claim.lease.give_back(remove=True)

    def _note(self, trial: optuna.Trial, notes: Mapping[str, int | str]) -> None:
        for key, value in notes.items():
            self._patiently(partial(trial.set_user_attr, key, value))

    def _trials(self) -> list[FrozenTrial]:
        return self._patiently(lambda: self._study.get_trials(deepcopy=False))

    def _create(self, number: int) -> optuna.Trial:
        trial = self._study.ask()
        if trial.number != number:
            raise FileError(f"the study in {self._where} is changed by another program: its trials are out of order")
        return trial

    def _handle(self, found: FrozenTrial) -> optuna.Trial:
        """A trial of the study as one that can be changed: Optuna makes it from the row's key alone."""
        return optuna.Trial(self._study, found._trial_id)

    def _lease_path(self, number: int) -> Path:
        return self.folder / LEASES / f"{number:04d}"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with locked(self.folder / LOCK):
            yield

    def _open(self, url: str) -> optuna.Study:
        """Open the study, or make it if this sweep has none yet."""
        connect = {"timeout": self._busy_seconds / 4} if url.startswith("sqlite") else {}
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": connect})
        definition = self.definition
        names = optuna.get_all_study_names(storage)
        if definition.name not in names and any((self.folder / TRIALS).iterdir()):
            raise FileError(
                f"{self._where} has no study '{definition.name}', but {str(self.folder / TRIALS)!r} holds its trials: "
                "the database was emptied or replaced; put it back, or begin the sweep in another folder"
            )
        with _quiet():
            study = optuna.create_study(
                storage=storage,
                study_name=definition.name,
                direction=StudyDirection[definition.direction.upper()],
                load_if_exists=True,
            )
        owner = study.user_attrs.get(_IDENTITY)
        if owner is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(_IDENTITY, definition.identity)
        elif owner != definition.identity:
            raise SettingError(
                f"the study '{definition.name}' in {self._where} is not of the sweep in {str(self.folder)!r}; give the "
                "sweep another name"
            )
        return study

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do it; while another program keeps the database locked, try again; any other fault is one line."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                return action()
            except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError) as error:
                why = str(error.__cause__ or error).splitlines()[0]
                if "database is locked" not in why:
                    raise FileError(f"the study in {self._where} cannot be used: {why}") from error
                if time.monotonic() > deadline:
                    raise FileError(
                        f"another program has kept {self._where} locked for {self._busy_seconds:g} s; close it and "
                        "run the sweep again"
                    ) from error
                time.sleep(0.05)


def _value_on(lease: Lease) -> float | None:
    """What the last holder wrote down before it could record it, if anything."""
    try:
        note = json.loads(lease.read())
    except ValueError:
        return None
    value = note.get("value") if isinstance(note, dict) else None
    return value if isinstance(value, float) and math.isfinite(value) else None


def _leased(path: Path) -> Lease:
    lease = try_lock(path)
    if lease is None:
        raise FileError(f"{str(path)!r} is held although its trial does not exist yet; was the study replaced?")
    return lease


@contextlib.contextmanager
def _given_back_on_error(lease: Lease) -> Iterator[None]:
    try:
        yield
    except BaseException:
        lease.give_back()
        raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's remark that a study was made."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _suggested(trial: optuna.Trial, name: str, spread: Spread) -> Setting:
    if isinstance(spread, Choices):
        chosen: Setting = trial.suggest_categorical(name, spread.values)  # type: ignore[assignment]  # none is None
        return chosen
    if spread.whole:
        return trial.suggest_int(name, int(spread.low), int(spread.high), log=spread.log)
    return trial.suggest_float(name, spread.low, spread.high, log=spread.log)


def _sampler(definition: Definition, number: int) -> optuna.samplers.BaseSampler:
    seed = derive_seed(definition.seed, "sweep", number) % 2**32  # all that numpy's old generators take
    if definition.sampler == "random":
        return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(seed=seed)


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
    )


def _shown(url: str) -> str:
    """An address without its password."""
    try:
        return repr(make_url(url).render_as_string(hide_password=True))
    except (SQLAlchemyError, ValueError) as error:
        raise SettingError("storage is no address of a database; write sqlite:///PATH or postgresql://...") from error


def _check_database(path: Path) -> None:
    """Refuse a damaged file before anything is read from it or added to it."""
    if not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=0.0)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):  # opening the study waits for it
            return
        found = str(error)
    if found != "ok":
        raise FileError(
            f"the database {str(path)!r} is damaged ({str(found).splitlines()[-1]}); put a copy of it back, or begin "
            "the sweep in another folder"
        )
