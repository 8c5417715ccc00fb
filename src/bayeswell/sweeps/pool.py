"""The worker processes of one command."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ..errors import BayeswellError, SettingError
from ..processes import NO_GUARD, UNGUARDED, clean_context, dismiss, start_worker
from .definition import TrialFunction, name_of
from .ledger import Ledger
from .results import COMPLETE, FAILED, SweepResult
from .worker import worker_process

Watcher = Callable[[SweepResult], None]
"""Told how a sweep stands, whenever a trial has ended."""

LOOK_SECONDS = 0.5


_LATE_IMPORTS = (
    "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "psycopg", "alembic.command",
    "optuna.storages._rdb.models", "optuna.samplers",
)  # fmt: skip
"""What Optuna imports when a study is opened: half a second each worker need not spend. What is missing is left out."""


class SweepError(BayeswellError):
    """A sweep could not go on; what it has is kept, and running it again goes on from there."""

    exit_code = 1


class WorkerPool:
    """The worker processes of one command: those that die are replaced."""

    def __init__(
        self, function: TrialFunction, folder: Path, workers: int, ledger: Ledger, watch: Watcher | None
    ) -> None:
        self.function, self.folder, self.size, self.ledger, self.watch = function, folder, workers, ledger, watch
        self.context = clean_context([worker_process.__module__, *_LATE_IMPORTS])
        self.members: dict[BaseProcess, Connection] = {}
        self.losses = 0
        self.ended = -1

    def run(self) -> None:
        """Keep the pool at its size until the sweep is finished; leave no process behind."""
        try:
            for _ in range(self.size):
                self._start()
            while self.members:
                wait([member.sentinel for member in self.members], timeout=LOOK_SECONDS)
                self._look()
                self._replace()
        finally:
            dismiss(self.members)

    def _start(self) -> None:
        needed = f"several workers need a function that another process can import: {name_of(self.function)}"
        member, ours = start_worker(self.context, needed, worker_process, self.function, self.folder)
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
            if member.exitcode == UNGUARDED:
                raise SettingError(f"workers = {self.size}: {NO_GUARD}")
            self.losses += 1
            if self.losses > self.size * (self.ledger.definition.attempts + 1):
                raise SweepError(
                    f"{self.losses} workers died (the last with exit status {member.exitcode}) and no trial ended "
                    "between; run one worker to see why"
                )
            self._start()


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
