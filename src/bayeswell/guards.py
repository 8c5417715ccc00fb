"""Threads: who may change a network, or torch's switches, for the length of a block.

A lifted network is called with drawn weights in the places of its parameters; a prediction puts it into evaluation
mode; some estimators replace the forward of its layers. All this is put back at the end of the block, and until then
another thread must neither see nor change it. So whoever changes a network holds its guard for as long (``guarded``),
and there is one guard for a network, however many lifted ones share it. Some passes also turn off fused kernels, which
torch can only do for the whole process: they have the process for themselves (``alone``), while all others run side by
side (``together``).

Order, so that no two threads wait for each other: first the guard of a network, then the process. Nothing is attached
to networks, so they are copied and pickled as ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any

import torch

_GUARDS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def guarded(owner: Any) -> AbstractContextManager[Any]:
    """The guard of a network, to be held while it is changed; who holds it may take it again.

    Something that shares its network with others names it as ``guarded_by``. Code that is being compiled runs without:
    it becomes a function of the weights, which changes no network.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    network = getattr(owner, "guarded_by", owner)
    guard: AbstractContextManager[Any] | None = _GUARDS.get(network)
    if guard is None:
        with _making:
            guard = _GUARDS.setdefault(network, threading.RLock())
    return guard


class _Process:
    """Any number of threads together, or one alone, in the order in which they ask.

    A thread that is in may ask for either again, and need not queue for more of what it has.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queue: deque[object] = deque()
        self.together: dict[int, int] = {}  # by thread, how often it is in
        self.alone: int | None = None
        self.depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.changed:
            if self.alone != me and me not in self.together:
                self._wait_until(lambda: self.alone is None)
            self.together[me] = self.together.get(me, 0) + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        me = threading.get_ident()
        with self.changed:
            self.together[me] -= 1
            if not self.together[me]:
                del self.together[me]
                self.changed.notify_all()

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        if not self.queue and ready():
            return
        ticket = object()
        self.queue.append(ticket)
        try:
            while self.queue[0] is not ticket or not ready():
                self.changed.wait()
        finally:
            self.queue.remove(ticket)
            self.changed.notify_all()

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        me = threading.get_ident()
        with self.changed:
            # A thread that waits computes nothing, so it need not be waited for: two that ask at once both come on.
            own = self.together.pop(me, 0)
            self.changed.notify_all()
            try:
                if self.alone != me:
                    self._wait_until(lambda: self.alone is None and not self.together)
            except BaseException:  # Ctrl-C while it waits
                if own:
                    self.together[me] = own
                raise
            self.alone = me
            self.depth += 1
        try:
            yield
        finally:
            with self.changed:
                self.depth -= 1
                if not self.depth:
                    self.alone = None
                if own:
                    self.together[me] = own
                self.changed.notify_all()


_process = _Process()


def together() -> AbstractContextManager[None]:
    """Within the block no other thread turns off kernels; others may be in such a block too."""
    return nullcontext() if torch.compiler.is_compiling() else _process


def alone() -> AbstractContextManager[None]:
    """Within the block no other thread is in a block of either kind: torch's switches may be set, and put back."""
    return nullcontext() if torch.compiler.is_compiling() else _process.by_itself()


def _begin_anew() -> None:
    """A forked process has one thread: what others held in its parent is not held any more."""
    global _process, _making
    _GUARDS.clear()
    _process, _making = _Process(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
