"""Who works in the folder of a run, and its end by -9."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def kill_the_holder_of(folder: Path) -> int:
    """End, by -9, the other process that holds a run's folder, once it has a checkpoint; its number."""
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoints/*")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid() and _holds(process, folder / ".lock"):
            os.kill(int(process.name), signal.SIGKILL)
            return int(process.name)
    raise AssertionError("nobody holds the folder")


def _holds(process: Path, file: Path) -> bool:
    with contextlib.suppress(OSError):  # the process is gone, or another user's
        for stream in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed a moment ago
                if os.readlink(stream) == str(file):
                    return True
    return False
