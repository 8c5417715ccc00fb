"""Tasks in threads of their own, which take turns so often that a race is met and not missed by luck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


def in_threads(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each task returns, all of them begun together; the first error is raised."""
    results: list[Any] = [None] * len(tasks)
    ready, cores = threading.Barrier(len(tasks)), torch.get_num_threads()

    def run(index: int) -> None:
        torch.set_num_threads(cores)  # a new thread would take as many as there are, and round otherwise
        ready.wait()
        try:
            results[index] = tasks[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(tasks))]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=300)
    finally:
        sys.setswitchinterval(before)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
