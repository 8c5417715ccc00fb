"""Worker processes: forked from a clean one, told to stop together, and gone when the one that started them is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from types import FrameType
from typing import Any

from .errors import BayeswellError, SettingError

STOP_SECONDS = 60.0
"""How long workers that were told to stop may take to save what they have."""


UNGUARDED = 87
"""How a worker ends that has met, while it imported the program, the call that started it."""


class CannotStart(BayeswellError):
    """No worker can be started from this program; the line says why."""


class Parcel:
    """What is sent to a worker in one piece, and opened when it has begun, so that it can say what it cannot read."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __getstate__(self) -> bytes:
        return bytes(ForkingPickler.dumps(self.content))

    def __setstate__(self, state: bytes) -> None:
        self.content = state

    def open(self) -> Any:
        """The content, in the process it was sent to."""
        return ForkingPickler.loads(self.content)


def leave_if_imported() -> None:
    """End a worker that imports the program and has come to a call that starts workers: nothing guards it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)  # the parent says it, in one line


def try_worker(context: BaseContext, work: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """As ``start_worker``, but ``CannotStart`` says why there is none: one can do without."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is not None and getattr(main, "__spec__", None) is None and not os.path.isfile(path):
        raise CannotStart("the program is not a file that they could import (was it read from stdin?)")
    if multiprocessing.current_process().daemon:
        raise CannotStart("this is a daemonic process, which may have no children")
    try:
        return _start(context, work, *arguments)
    except _NOT_SENT as error:
        raise CannotStart(f"something cannot be sent to another process: {first_line(error)}") from error
    except _NOT_IMPORTED as error:
        raise CannotStart(ENDED_EARLY) from error
    except (RuntimeError, AssertionError, ValueError, OSError) as error:
        raise CannotStart(f"{type(error).__name__}: {first_line(error)}") from error


_NOT_SENT = (AttributeError, TypeError, PicklingError)
_NOT_IMPORTED = (EOFError, ConnectionError)
"""The process that workers are forked from has ended: most often while it imported the program."""
_GUARD = 'put what it does below `if __name__ == "__main__":`'
NO_GUARD = f"the program starts them when it is imported: {_GUARD}"
ENDED_EARLY = (
    "the process that they are forked from was killed, or, likelier, the program starts them when it is imported: "
    f"{_GUARD}"
)
"""Nothing tells the two apart here: the one who ended cannot be asked."""


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def clean_context(preload: Sequence[str]) -> BaseContext:
    """Processes forked from a clean one, which has imported these modules once, so that a worker starts in no time."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *preload])
    return context


def start_worker(
    context: BaseContext, needed: str, work: Callable[..., None], *arguments: Any
) -> tuple[BaseProcess, Connection]:
    """A process that does ``work(*arguments, mouth)``, and the ear for what it says into its mouth.

    ``needed`` begins the line that is said where the arguments cannot be sent to another process, or none can begin.
    """
    try:
        return _start(context, work, *arguments)
    except _NOT_SENT as error:
        raise SettingError(f"{needed}: {error}") from error
    except _NOT_IMPORTED as error:
        raise SettingError(f"{needed}: {ENDED_EARLY}") from error


def _start(context: BaseContext, work: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    ear, mouth = multiprocessing.Pipe(duplex=False)
    member: BaseProcess = context.Process(target=work, args=(*arguments, mouth))  # type: ignore[attr-defined]
    try:
        member.start()
    finally:
        mouth.close()
    return member, ear


def be_a_worker() -> None:
    """What a worker does first: leave Ctrl-C to whoever started it, stop when told to, and end when that one ends."""
    os.setpgrp()  # Ctrl-C is for the process that was started from the terminal; it tells us
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def dismiss(members: Iterable[BaseProcess]) -> None:
    """Tell those who are left to save what they have and stop; do not wait for ever."""
    left = list(members)
    deadline = time.monotonic() + STOP_SECONDS
    try:
        for member in left:
            member.terminate()
        for member in left:
            member.join(max(0.0, deadline - time.monotonic()))
    finally:  # also at a second Ctrl-C
        for member in left:
            if member.is_alive():
                member.kill()
                member.join()


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
