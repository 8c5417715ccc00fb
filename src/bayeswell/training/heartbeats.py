"""Which rank of a run on several is silent, and for how long.

A rank that has died breaks its connections, and the others learn it at once. One that is stopped, swapped out or behind
a cut cable breaks nothing: the others wait. So each rank counts aloud once a second, in a thread of its own, which a
busy rank does too and a stopped one does not; the others look whether the numbers go up.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..errors import BayeswellWarning

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

try:
    from torch.distributed import DistStoreError
except ImportError:  # a torch that knows one process only
    DistStoreError = RuntimeError  # type: ignore[misc, assignment]

INTERVAL = 1.0
_ANSWER_SECONDS = 3.0
_SILENT_SECONDS = 3.0
_FIRST_WORD_SECONDS = 10.0
_LEFT = "left"


class Heartbeats:
    """Counts for this rank, and listens to the others, until it is stopped. ``limit`` is told with the first word."""

    def __init__(self, rank: int, ranks: int, store: TCPStore, limit: float) -> None:
        self.rank, self.limit, self._store = rank, limit, store
        now = time.monotonic()
        self._heard: dict[int, tuple[str, float]] = {other: ("", now) for other in range(ranks) if other != rank}
        self._warned: set[int] = set()
        self._over = threading.Event()
        # Two threads: one may be kept waiting by a first rank that is stopped, the other tells of it.
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]
        for thread in self._threads:
            thread.start()

    def silent(self) -> dict[int, float]:
        """The ranks that have not been heard of lately, with the seconds since."""
        now = time.monotonic()
        return {
            rank: now - at for rank, (said, at) in self._heard.items() if said != _LEFT and now - at > _SILENT_SECONDS
        }

    def described(self) -> str:
        """The same in words; waits until it is sure."""
        time.sleep(_SILENT_SECONDS + INTERVAL)
        silent = self.silent()
        if not silent:
            return "no rank is silent"
        return " and ".join(f"rank {rank} has been silent for {seconds:.0f} s" for rank, seconds in silent.items())

    def stop(self) -> None:
        """Leave; the others do not wait to hear from this rank any more."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * INTERVAL)

    def _beat(self) -> None:
        count = 0
        # The first rank keeps the numbers; if it is gone nobody is heard any more.
        with contextlib.suppress(RuntimeError):
            while not self._over.wait(INTERVAL if count else 0):
                count += 1
                self._store.set(str(self.rank), str(count))
                for other in self._heard:
                    self._listen(other)
            self._store.set(str(self.rank), _LEFT)

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self._warn()

    def _listen(self, other: int) -> None:
        try:
            said = self._store.get(str(other)).decode()
        except DistStoreError:  # it has not begun yet, or does not answer
            return
        if said != self._heard[other][0]:
            self._heard[other] = (said, time.monotonic())
            self._warned.discard(other)

    def _warn(self) -> None:
        patience = min(_FIRST_WORD_SECONDS, self.limit / 2)
        for other, seconds in self.silent().items():
            if seconds > patience and other not in self._warned and not self._over.is_set():
                self._warned.add(other)
                note = (
                    f"rank {other} has been silent for {seconds:.0f} s; rank {self.rank} waits for it, {self.limit:g} s"
                )
                warnings.warn(f"{note} at the most (Devices(timeout=...))", BayeswellWarning, stacklevel=2)


def open_store(rank: int, broadcast: Any) -> TCPStore:
    """Where the ranks count: kept by the first one, on a port that is free; ``broadcast`` tells the others which."""
    # Not every build of torch has it, and one rank does not need it.
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    patience = timedelta(seconds=_ANSWER_SECONDS)
    own = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=patience) if rank == 0 else None
    port = broadcast(None if own is None else own.port)
    if own is not None:
        return own
    return TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=patience)
