"""Who may write into the book of a sweep, and whose trial is whose: locks that die with their holder, of two kinds.

- Of a folder (``flock``): for workers that see one file system.
- Of PostgreSQL (advisory locks of a session): for workers that share nothing but the database. The server frees them
  when the connection ends, which the system closes with its process, by ``kill -9`` too; that of a machine that is gone
  ends when the server gets no answer for about a minute (TCP keepalive). So here too a lock that is free means that
  nobody works there, and nobody writes heartbeats.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ..errors import FileError
from ..extras import needs_extra
from ..persistence.locks import WAIT_SECONDS, locked, try_lock
from .definition import LEASES, LOCK

with needs_extra("lab", "a sweep"):
    from sqlalchemy import NullPool, create_engine, text
    from sqlalchemy.engine import Connection, make_url
    from sqlalchemy.exc import DBAPIError

_OURS = 0x6277
"""Begins the key of every lock, so that it is not that of another program in the same database."""
_ALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_SESSION = {
    "lock_timeout": f"{WAIT_SECONDS:.0f}s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",  # a trial may take days; not known before PostgreSQL 14
}


class Lease(Protocol):
    """A trial is ours as long as we hold this."""

    def write(self, text: str) -> None:
        """Leave a note for whoever holds it next, where there is a place for one."""

    def read(self) -> str:
        """The note that is there; empty if there is none."""

    def give_back(self, *, remove: bool = False) -> None:
        """Free it; ``remove``: nobody will ask for it again."""


class Locks(Protocol):
    """The locks of one sweep."""

    def opening(self) -> AbstractContextManager[None]:
        """Nobody else opens or makes a study meanwhile."""

    def book(self, study: int) -> AbstractContextManager[None]:
        """Nobody else writes into the study meanwhile."""

    def lease(self, study: int, number: int) -> Lease | None:
        """The lease of a trial; None if somebody has it."""

    def close(self) -> None:
        """Free all that are held."""


def shares_nothing_but(url: str) -> bool:
    """Whether this database can keep the locks too, so that workers need no folder in common."""
    return make_url(url).get_backend_name() == "postgresql"


def locks_of(url: str, folder: Path) -> Locks:
    """Those of the database, where it has any that die with their holder; else those of the folder."""
    return DatabaseLocks(url) if shares_nothing_but(url) else FolderLocks(folder)


class FolderLocks:
    """``.sweep.lock`` and ``.leases/NNNN`` in the sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            (folder / LEASES).mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write into {str(folder)!r}: {error.strerror or error}") from error

    def opening(self) -> AbstractContextManager[None]:
        return locked(self._folder / LOCK)

    def book(self, study: int) -> AbstractContextManager[None]:
        return locked(self._folder / LOCK)

    def lease(self, study: int, number: int) -> Lease | None:
        return try_lock(self._folder / LEASES / f"{number:04d}")

    def close(self) -> None:
        return None  # a lease of a file is its holder's own


class DatabaseLocks:
    """One connection of its own that holds them all; with it they end, and by the next one those that are free yet are
    taken again."""

    def __init__(self, url: str) -> None:
        known = make_url(url).get_driver_name() in ("psycopg", "psycopg2")  # both are libpq underneath
        self._engine = create_engine(url, poolclass=NullPool, connect_args=dict(_ALIVE) if known else {})
        self._connection: Connection | None = None
        self._held: set[int] = set()

    def opening(self) -> AbstractContextManager[None]:
        return self._locked(_key(0, 0))  # tables are made for all studies of the database

    def book(self, study: int) -> AbstractContextManager[None]:
        return self._locked(_key(study, 0))

    def lease(self, study: int, number: int) -> DatabaseLease | None:
        key = _key(study, number + 1)
        if key in self._held and self._still_holds(key):  # the server would give a session its own lock once more
            return None
        if not self._ask("pg_try_advisory_lock", key):
            return None
        self._held.add(key)
        return DatabaseLease(self, key)

    def close(self) -> None:
        self._disconnect()
        self._held.clear()

    def free(self, key: int) -> None:
        """Give a lock back; with a connection that is lost it is free already."""
        if key in self._held:
            self._held.discard(key)
            with contextlib.suppress(DBAPIError):
                self._ask("pg_advisory_unlock", key)

    @contextlib.contextmanager
    def _locked(self, key: int) -> Iterator[None]:
        self._ask("pg_advisory_lock", key)
        try:
            yield
        finally:
            self._ask("pg_advisory_unlock", key)

    def _ask(self, function: str, key: int) -> bool:
        """The server's answer; if the connection was lost since (a server that was started anew), by a new one."""
        for again in (True, False):
            try:
                return self._session().execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar() is not False
            except DBAPIError as error:
                if not again or not error.connection_invalidated:
                    raise
                self._disconnect()
        raise AssertionError

    def _still_holds(self, key: int) -> bool:
        """Whether a lock that was taken is ours, perhaps by a new connection."""
        try:
            self._session().execute(text("SELECT 1"))
        except DBAPIError:
            self._disconnect()
            self._session()
        return key in self._held

    def _disconnect(self) -> None:
        """Every lock is lost with the connection; which they were is kept."""
        if self._connection is not None:
            with contextlib.suppress(DBAPIError):
                self._connection.close()
        self._connection = None

    def _session(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            for name, value in _SESSION.items():
                chosen = text("SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name")
                self._connection.execute(chosen, {"name": name, "value": value})
            retake = text("SELECT pg_try_advisory_lock(:key)")
            self._held = {key for key in self._held if self._connection.execute(retake, {"key": key}).scalar()}
        return self._connection


class DatabaseLease:
    """A trial held by a session. There is no place for a note, and no need: the study itself is as near."""

    def __init__(self, locks: DatabaseLocks, key: int) -> None:
        self._locks, self._key = locks, key

    def write(self, text: str) -> None:
        return None

    def read(self) -> str:
        return ""

    def give_back(self, *, remove: bool = False) -> None:
        self._locks.free(self._key)


def _key(study: int, number: int) -> int:
    """One whole number of 64 bits, the server's kind of name for a lock: ours, the study, the trial from 1 (0: all)."""
    return _OURS << 48 | (study & 0xFFFFFF) << 24 | number & 0xFFFFFF
