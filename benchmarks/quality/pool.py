"""Cells run by worker processes at low priority; what is finished is handed over one by one.

A worker lives for many cells, so that data are read and libraries imported once. It ends with the process that started
it; one that dies (say, for want of memory) is replaced, and its cell tried once more.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from .lengths import parted

if TYPE_CHECKING:
    from .plan import Cell

_NICE = 10
_TRIES = 2

Work = Callable[["Cell"], dict[str, Any]]


def measure(cell: Cell) -> dict[str, Any]:
    """One cell, whatever happens to it."""
    from . import peers, runs  # torch is imported by the worker, after its threads are set

    began = time.perf_counter()
    try:
        if cell.method.startswith(peers.PREFIX):
            found = peers.run(cell.method, cell.problem, cell.seed, cell.epochs)
        else:
            length = parted(cell.method)
            settings = {**length.settings, **({} if cell.epochs is None else {"epochs": cell.epochs})}
            found = runs.run(cell.problem, length.method, cell.seed, settings, cell.development)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    return {**found, "wall": time.perf_counter() - began}


def finished(cells: Sequence[Cell], workers: int, work: Work = measure) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Each cell with what was measured, as they finish."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    waiting = [(cell, 1) for cell in reversed(cells)]
    busy: dict[Connection, tuple[multiprocessing.process.BaseProcess, Cell, int]] = {}
    idle: list[tuple[Connection, multiprocessing.process.BaseProcess]] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                connection, process = idle.pop() if idle else _start(work)
                cell, attempt = waiting.pop()
                connection.send(cell)
                busy[connection] = (process, cell, attempt)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                process, cell, attempt = busy.pop(ready)
                try:
                    found = ready.recv()
                except (EOFError, OSError):
                    process.join()
                    if attempt < _TRIES:
                        waiting.append((cell, attempt + 1))
                    else:
                        yield cell, {"error": f"its process ended {_TRIES} times, with exit code {process.exitcode}"}
                    continue
                idle.append((ready, process))
                yield cell, found
    finally:
        for process, _, _ in busy.values():
            process.kill()
        for connection, process in idle:
            connection.close()
            process.join(5)


def _start(work: Work) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _serve(connection: Connection, work: Work) -> None:
    os.nice(_NICE)
    try:
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the process that asked has gone
