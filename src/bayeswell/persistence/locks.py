"""Locks that die with their holder.

``flock`` belongs to a process: the system gives it back the moment the process ends, by ``kill -9`` too. So a lock
that is free means that nobody works there, with no clock, no heartbeat and no grace period, and a process that was
merely stopped for an hour still holds its own. There are no stale locks to clear: the file is nothing but a name.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import FileError

if sys.platform != "win32":
    import fcntl

WAIT_SECONDS = 120.0
"""How long to wait for a lock that others hold for moments only."""


_NOTE_BYTES = 1000


class Lease:
    """A lock that is held until it is given back or the process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def write(self, text: str) -> None:
        """Leave a note for whoever holds the lock next: one write, which is done or not, whatever happens to us."""
        try:
            os.pwrite(self._descriptor, text.encode(), 0)
        except OSError as error:
            raise FileError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from error

    def read(self) -> str:
        """The note that is there; empty if there is none."""
        return os.pread(self._descriptor, _NOTE_BYTES, 0).decode(errors="replace")

    def give_back(self, *, remove: bool = False) -> None:
        """Free the lock, and remove its file if nobody will ask for it again."""
        if remove:
            self.path.unlink(missing_ok=True)
        if sys.platform != "win32":  # closing alone would not do: a process forked meanwhile has the descriptor too
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def try_lock(path: Path) -> Lease | None:
    """The lock of this file, or None if another holds it."""
    if sys.platform == "win32":
        raise FileError("file locks that end with their process are needed here; run it on Linux or macOS")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise FileError(f"cannot open the lock {str(path)!r}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return None
        raise FileError(
            f"cannot lock {str(path)!r}: {error.strerror or error}; choose a disk that knows file locks"
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(path, descriptor)


@contextmanager
def locked(path: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of this file; wait for whoever has it."""
    deadline = time.monotonic() + wait_seconds
    while (lease := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise FileError(
                f"another process has held {str(path)!r} for {wait_seconds:g} s; see which one is stopped or hangs"
            )
        time.sleep(0.01)
    try:
        yield
    finally:
        lease.give_back()
