"""Being told to stop: note it, finish the step, save, and leave with the usual code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..errors import BayeswellError

STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""The signals after which a run saves its state and ends."""


class Interrupted(BayeswellError):
    """A signal ended the run after its state was saved; ``exit_code`` is 128 + the signal's number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class StopSignals:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.received: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; the second ends the process at once."""
        if self.received is not None:
            os._exit(128 + number)
        self.received = number


@contextmanager
def watched_signals(wanted: bool = True) -> Iterator[StopSignals]:
    """Note SIGTERM, SIGINT and SIGHUP, if ``wanted``, instead of ending at once; only the main thread can note them.

    What is ignored stays so: under ``nohup`` a lost terminal ends nothing.
    """
    signals = StopSignals()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield signals
        return
    noted = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    kept = {number: signal.signal(number, signals.note) for number in noted}
    try:
        yield signals
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
