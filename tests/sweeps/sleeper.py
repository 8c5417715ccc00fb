"""A function that sleeps and writes down that it ran; other processes import it from here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

SPACE = {"stepper.lr": "1e-4:1e-1:log", "posterior.rank": "1:8", "temperature": "0.01,0.1,1"}


def value_of(settings: Mapping[str, object]) -> float:
    """A number that tells settings apart."""
    return float(settings["stepper.lr"]) + float(settings["posterior.rank"]) + float(settings["temperature"])


class Sleeper:
    """``log`` gets a line when a call begins and one when it ends; a trial's number decides how long it sleeps.

    No call ends before ``together`` processes have begun one.
    """

    def __init__(self, log: str, seconds: float, together: int = 1) -> None:
        self.log, self.seconds, self.together = log, seconds, together

    def __call__(self, settings: Mapping[str, object], folder: Path) -> float:
        self.note("begin", folder)
        while len({call["pid"] for call in calls(Path(self.log))}) < self.together:
            time.sleep(0.02)
        time.sleep(self.seconds * (0.5 + (int(folder.name) % 4) / 2))
        self.note("end", folder)
        return value_of(settings)

    def note(self, what: str, folder: Path) -> None:
        line = json.dumps({"what": what, "trial": int(folder.name), "pid": os.getpid()}) + "\n"
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())  # one short write: lines of several processes do not mix
        os.close(descriptor)


class Deadly:
    """It cannot be made in another process."""

    def __call__(self, settings: Mapping[str, object], folder: Path) -> float:
        return 1.0

    def __setstate__(self, state: object) -> None:
        os._exit(1)

    def __getstate__(self) -> dict[str, int]:
        return {"something": 1}


def calls(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
