"""Running a sweep: one process, or several that share its folder."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import PicklingError
from typing import Any

from ..errors import BayeswellError, SettingError, require_count
from ..persistence import JSON
from .definition import Definition, Objective, check_storage, establish, name_of, read_definition
from .ledger import Ledger
from .results import COMPLETE, FAILED, SweepResult
from .space import Spread
from .worker import work, worker_process

Watcher = Callable[[SweepResult], None]

LOOK_SECONDS = 0.5
STOP_SECONDS = 60.0
"""How long workers that were told to stop may take to save what they have."""


_LATE_IMPORTS = ("sqlalchemy.dialects.sqlite", "alembic.command", "optuna.storages._rdb.models", "optuna.samplers")
"""What Optuna imports when a study is opened: half a second that each worker need not spend."""


class SweepError(BayeswellError):
    """A sweep could not go on; what it has is kept, and running it again goes on from there."""

    exit_code = 1


def run_sweep(
    function: Objective,
    space: Mapping[str, Spread | str],
    folder: str | os.PathLike[str],
    *,
    trials: int,
    sampler: str = "tpe",
    seed: int = 0,
    direction: str = "minimize",
    workers: int = 1,
    storage: str | None = None,
    name: str | None = None,
    attempts: int = 5,
    settings: Mapping[str, JSON] | None = None,
    watch: Watcher | None = None,
) -> SweepResult:
    """Try ``trials`` settings of ``space`` on a function, and go on with what is in ``folder`` already.

    ``function(settings, folder)`` gives the value to minimize (or maximize). It has a folder of its own for each trial,
    and is called with the same one if the trial is begun again: what it keeps there, it can go on with. With several
    ``workers`` it runs in processes of their own, and must be importable: a function of a module, not of a function.

    ``sampler``: "tpe" (Bergstra et al., 2011, as Optuna has it) learns from finished trials; "random" draws settings
    that depend on ``seed`` and the trial's number alone. ``settings`` is what all trials share, kept with the sweep
    and compared when it is gone on with. ``watch`` is called whenever a trial ends.
    """
    require_count("sweep", "workers", workers)
    place = Path(os.path.abspath(folder))
    wanted = Definition(
        name=name or place.name,
        function=name_of(function),
        space=space,  # type: ignore[arg-type]  # text is parsed there
        trials=trials,
        sampler=sampler,
        seed=seed,
        direction=direction,
        attempts=attempts,
        storage=check_storage(storage),
        settings=dict(settings or {}),
    )
    return _go(establish(wanted, place), function, place, workers, watch)


def join_sweep(
    function: Objective, folder: str | os.PathLike[str], *, workers: int = 1, watch: Watcher | None = None
) -> SweepResult:
    """Work on the sweep in a folder, beside whoever else does, until it is finished."""
    require_count("sweep", "workers", workers)
    place = Path(os.path.abspath(folder))
    definition = read_definition(place)
    if name_of(function) != definition.function:
        raise SettingError(
            f"the sweep in {str(place)!r} is of the function {definition.function}, not of {name_of(function)}"
        )
    return _go(definition, function, place, workers, watch)


def sweep_definition(folder: str | os.PathLike[str]) -> Definition:
    """What the sweep in a folder is."""
    return read_definition(Path(os.path.abspath(folder)))


def sweep_result(folder: str | os.PathLike[str]) -> SweepResult:
    """What the sweep in a folder has so far."""
    place = Path(os.path.abspath(folder))
    return Ledger(read_definition(place), place).result()


def _go(definition: Definition, function: Objective, folder: Path, workers: int, watch: Watcher | None) -> SweepResult:
    ledger = Ledger(definition, folder)
    if workers == 1:
        work(ledger, function, lambda: watch(ledger.result()) if watch else None)
    elif not ledger.result().finished:
        _Crew(function, folder, workers, ledger, watch).run()
    return ledger.result()


class _Crew:
    """The worker processes of one command: those that die are replaced."""

    def __init__(self, function: Objective, folder: Path, workers: int, ledger: Ledger, watch: Watcher | None) -> None:
        self.function, self.folder, self.size, self.ledger, self.watch = function, folder, workers, ledger, watch
        self.context = _context()
        self.members: dict[BaseProcess, Connection] = {}
        self.losses = 0
        self.ended = -1

    def run(self) -> None:
        """Keep the crew at its size until the sweep is finished; leave no process behind."""
        try:
            for _ in range(self.size):
                self._start()
            while self.members:
                wait([member.sentinel for member in self.members], timeout=LOOK_SECONDS)
                self._look()
                self._replace()
        finally:
            self._dismiss()

    def _start(self) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        member: BaseProcess = self.context.Process(  # type: ignore[attr-defined]  # every context has it
            target=worker_process, args=(self.function, self.folder, theirs)
        )
        try:
            member.start()
        except (AttributeError, TypeError, PicklingError) as error:
            raise SettingError(
                f"several workers need a function that another process can import: {name_of(self.function)}: {error}"
            ) from error
        finally:
            theirs.close()
        self.members[member] = ours

    def _look(self) -> None:
        """Say how it stands, if a trial has ended since."""
        result = self.ledger.result()
        ended = result.count(COMPLETE) + result.count(FAILED)
        if ended > self.ended:
            self.losses = 0
            if self.watch is not None and self.ended >= 0:
                self.watch(result)
            self.ended = ended

    def _replace(self) -> None:
        for member in [member for member in self.members if not member.is_alive()]:
            messages = self.members.pop(member)
            member.join()
            said = _last(messages)
            if said is not None:
                raise SweepError(f"a worker of the sweep stopped: {said}")
            if member.exitcode == 0:
                continue
            self.losses += 1
            if self.losses > self.size * (self.ledger.definition.attempts + 1):
                raise SweepError(
                    f"{self.losses} workers died (the last with exit status {member.exitcode}) and no trial ended "
                    "between; run one worker to see why"
                )
            self._start()

    def _dismiss(self) -> None:
        """Tell those who are left to save what they have and stop; do not wait for ever."""
        deadline = time.monotonic() + STOP_SECONDS
        try:
            for member in self.members:
                member.terminate()
            for member in self.members:
                member.join(max(0.0, deadline - time.monotonic()))
        finally:  # also at a second Ctrl-C
            for member in self.members:
                if member.is_alive():
                    member.kill()
                    member.join()


def _last(messages: Connection) -> str | None:
    """What a worker said before it ended, if anything."""
    said: Any = None
    try:
        while messages.poll():
            said = messages.recv()
    except (EOFError, OSError):
        pass
    finally:
        messages.close()
    return None if said is None else str(said)


def _context() -> BaseContext:
    """Processes forked from a clean one, which has imported the package once, so that a worker starts in no time."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", worker_process.__module__, *_LATE_IMPORTS])
    return context
