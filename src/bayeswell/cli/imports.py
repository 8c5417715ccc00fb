"""What a command imports stays until its process ends: Python's garbage collector need not look at it.

It goes through all objects again and again while torch is imported, and once more at the end, and finds nothing: about
a seventh of what a short run takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class _Process:
    own = False


def process_is_ours() -> None:
    """This process runs one command and ends: said by ``python -m bayeswell`` and by the script ``bayeswell``."""
    _Process.own = True


@contextmanager
def kept_imports() -> Iterator[None]:
    """Nothing is collected within the block; what there is after it is left alone for good, if the process is ours.

    A program that calls ``cli.main`` may have garbage of its own: there nothing is left alone.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _Process.own:
            gc.freeze()
        if collects:
            gc.enable()
