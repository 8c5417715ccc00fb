"""What is broken inside the process of a run. Each fault is a function, called there before the run."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Fault = Callable[[], None]
CHANGES = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fsync"})
"""The operations on files that are counted: those which change something, as Python's audit events name them."""


class Counter:
    """A number that a process and those forked from it share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def __int__(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    def up(self) -> int:
        value = int(self) + 1
        self._memory[:8] = value.to_bytes(8, "little")
        return value


def at_changes(folder: Path, action: Callable[[int], None], counter: Counter | None = None) -> None:
    """From now on call ``action`` with its number before each operation that changes something in the folder."""
    counter, inside, real = counter or Counter(), os.fspath(folder), os.fsync

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event in CHANGES and given and str(given[0]).startswith(inside) and _changes(event, given):
            action(counter.up())

    def fsync(descriptor: int) -> None:
        watch("fsync", (os.readlink(f"/proc/self/fd/{descriptor}") if sys.platform == "linux" else inside,))
        real(descriptor)

    sys.addaudithook(watch)
    os.fsync = fsync  # type: ignore[assignment]  # descriptors are all that the project gives it


def _changes(event: str, given: tuple[Any, ...]) -> bool:
    return event != "open" or bool(given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def counted(folder: Path, counter: Counter) -> Fault:
    """Nothing is broken: the operations are counted."""
    return lambda: at_changes(folder, lambda _: None, counter)


def killed_at(folder: Path, number: int) -> Fault:
    """The process is killed before this operation."""

    def kill(found: int) -> None:
        if found == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: at_changes(folder, kill)


def moved_at(folder: Path, number: int, moved: Path, instead: str) -> Fault:
    """The folder is moved away before this operation, with nothing, "a file" or "a link" in its place."""

    def move(found: int) -> None:
        if found == number and folder.exists():
            folder.rename(moved)
            if instead == "a file":
                folder.write_text("something else")
            elif instead == "a link":
                folder.symlink_to("nowhere")

    def begin() -> None:
        short_pauses()
        at_changes(folder, move)

    return begin


def worker_killed_at(folder: Path, number: int) -> Fault:
    """A process that this one has started is killed before this operation, or the first one after it that has any."""
    done: list[int] = []

    def kill(found: int) -> None:
        if found >= number and not done and (workers := children(os.getpid())):
            done.append(found)
            os.kill(workers[-1], signal.SIGKILL)

    return lambda: at_changes(folder, kill)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def failing(folder: Path, first: int, count: int, code: int) -> Fault:
    """``count`` operations from the first one on fail with this error."""

    def fail(found: int) -> None:
        if first <= found < first + count:
            raise OSError(code, os.strerror(code), os.fspath(folder))

    def begin() -> None:
        short_pauses()
        at_changes(folder, fail)

    return begin


def short_pauses() -> None:
    """A disk that fails is tried again soon, for the sake of the time of all tries."""
    from bayeswell.training import checkpoints

    checkpoints._PAUSES = (0.02, 0.05)


def small_files(size: int) -> Fault:
    """No file may be longer than this: the write that would make it so fails."""

    def begin() -> None:
        short_pauses()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return begin


def clock_jumps(rng: random.Random) -> Fault:
    """The time of day jumps by years, forwards and backwards; the clock that only goes on leaps ahead by hours."""

    def begin() -> None:
        state = {"day": 0.0, "on": 0.0}
        wall, wall_ns, steady, counter = time.time, time.time_ns, time.monotonic, time.perf_counter

        def jump() -> None:
            if rng.random() < 0.05:
                state["day"] += rng.uniform(-1e9, 1e9)
                state["on"] += rng.expovariate(1 / 3600)

        def day() -> float:
            jump()
            return max(0.0, wall() + state["day"])

        def on(real: Callable[[], float]) -> Callable[[], float]:
            def told() -> float:
                jump()
                return real() + state["on"]

            return told

        time.time, time.time_ns = day, lambda: max(0, wall_ns() + int(state["day"] * 1e9))
        time.monotonic, time.perf_counter = on(steady), on(counter)

    return begin


def no_locks(code: int) -> Fault:
    """The file system knows no locks."""

    def begin() -> None:
        def flock(descriptor: Any, operation: int) -> None:
            raise OSError(code, os.strerror(code))

        fcntl.flock = flock

    return begin


NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def little_memory(more: int) -> Fault:
    """The process may take so many bytes more than it has."""

    def begin() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return begin


def few_handles(more: int) -> Fault:
    """The process may open so many files more than it has open."""

    def begin() -> None:
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, free + more))

    return begin


def short_patience() -> None:
    """A folder that another process holds is given up soon."""
    from bayeswell.training import run_folder

    run_folder.LOCK_SECONDS = 0.1
