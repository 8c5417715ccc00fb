"""One run by command in a process of its own: how it ended, and whether it is as the undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayeswell.training.run_folder import CONFIG, METRICS, MODEL, RESULT

from .faults import Counter, Fault, counted
from .table import ALIKE, LOST, REFUSED, Verdict

LIMIT_SECONDS = 60.0
"""A run that takes longer hangs: undisturbed ones take about one."""
RAW, ENDED_BY_LINE = 70, (1, 2)
TRAIN = ("-d", "wine", "-e", "5", "--batch-size", "40", "--draws", "4", "--threads", "1")
HOW = ("--checkpoint-steps", "3", "--quiet", "--json")
Outcome = dict[str, Any]
_OF_PYTHON = re.compile(r"^Exception ignored in.*\n(Traceback .*\n(\s.*\n)*\w.*\n)?", re.MULTILINE)
"""What Python itself says of a thread or an object that it could not clear away; nobody can catch it."""


@dataclass
class Child:
    """A forked process: its folder, and where it says what it says."""

    pid: int
    said_in: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self, seconds: float = LIMIT_SECONDS) -> Ended | None:
        """How it ended; None if it has not within so many seconds."""
        end = time.monotonic() + seconds
        while True:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                # Killed before it had begun to speak there is no file.
                said = self.said_in.read_text(errors="replace") if self.said_in.exists() else ""
                return Ended(os.waitstatus_to_exitcode(status), said, time.monotonic() - self.began)
            if time.monotonic() > end:
                return None
            time.sleep(0.005)

    def finish(self) -> Ended:
        """How it ended; killed if it hangs."""
        ended = self.wait()
        if ended is None:
            self._kill()
            ended = self.wait()
            said = "" if ended is None else ended.said
            return Ended(None, said, LIMIT_SECONDS)
        return ended

    def killed(self) -> Ended:
        """How it ended, killed now, with the workers it may have."""
        self._kill()
        return self.finish()

    def _kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # first, and in any case: its group may not be there yet
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """The exit code (less than 0: the signal; None: it hung), what was said, and the seconds it took."""

    code: int | None
    said: str
    seconds: float

    def unclear(self) -> str:
        """What is wrong with how it ended; nothing if that was with one clear line."""
        lines = [line for line in _OF_PYTHON.sub("", self.said).splitlines() if line.strip()]
        words = [line for line in lines if line.startswith("bayeswell: ")]
        others = [line for line in lines if not line.startswith(("bayeswell: ", "warning: "))]
        if self.code is None:
            return f"hung for {self.seconds:.0f} s; said {self.said[-300:]!r}"
        if self.code not in ENDED_BY_LINE or len(words) != 1 or others or "a fault of bayeswell" in words[0]:
            return f"ended with code {self.code} and said {self.said[-600:]!r}"
        return ""


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: what it ended with, its seconds, and how many operations changed files."""

    folder: Path
    outcome: Outcome
    seconds: float
    changes: int


def arguments(folder: Path, method: str, more: Sequence[str] = ()) -> list[str]:
    """The command that begins the run, or goes on with it."""
    if (folder / CONFIG).exists():
        return ["resume", str(folder), "--threads", "1", *HOW]
    return ["train", "-m", method, *TRAIN, *more, *HOW, "--resume", "--out", str(folder)]


def warm_up(scratch: Path) -> None:
    """Import here what every forked process would have to import for itself."""
    from bayeswell.cli.app import main

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        main(["train", "-m", "map", "-d", "wine", "-e", "1", "--threads", "1", "-q", "--out", str(scratch / "warm")])


def start(
    folder: Path, method: str, fault: Fault | None = None, more: Sequence[str] = (), said_in: Path | None = None
) -> Child:
    """Start the run, or go on with it, in a forked process; one that had to import torch would be at that for long."""
    from bayeswell.cli.app import main

    said = said_in or folder.with_name(f"{folder.name}.said-{time.monotonic_ns()}")
    command = arguments(folder, method, more)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, said)
    code = RAW
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT, 0o666), 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if fault is not None:
            fault()
        code = main(command)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else RAW
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)


def outcome_of(folder: Path) -> Outcome:
    """What a run ended with: its result but for the time, the model and the log to the last bit."""
    result = json.loads((folder / RESULT).read_bytes())
    result.pop("time")
    files = [folder / METRICS, folder / MODEL / "tensors.safetensors", folder / MODEL / "record.json"]
    return {"result": result, **{path.name: path.read_bytes() for path in files}}


def whole_run(folder: Path, method: str, more: Sequence[str] = ()) -> Whole:
    """A run that nothing disturbs."""
    counter = Counter()
    ended = start(folder, method, counted(folder, counter), more).finish()
    if ended.code != 0:
        raise RuntimeError(f"{method}: the undisturbed run ended with code {ended.code}: {ended.said[-600:]}")
    return Whole(folder, outcome_of(folder), ended.seconds, int(counter))


def differs(folder: Path, expected: Outcome) -> str:
    """In what a finished run is not as the undisturbed one; nothing if it is."""
    try:
        found = outcome_of(folder)
    except (OSError, ValueError, KeyError) as error:
        return f"there is no whole result: {error}"
    names = [name for name in expected if found[name] != expected[name]]
    return f"other {', '.join(names)}" if names else ""


def judged(folder: Path, method: str, ended: Ended, expected: Outcome, what: str, killed: bool = False) -> Verdict:
    """Once the fault is taken away: whether the run was or goes on to be as the undisturbed one.

    ``killed`` says that we killed it, so that it could say nothing.
    """
    if ended.code == 0:
        why = differs(folder, expected)
        return Verdict(LOST, f"{what}: ended with code 0, but {why}") if why else Verdict(ALIKE)
    unclear = "" if killed and ended.code == -signal.SIGKILL else ended.unclear()
    again = start(folder, method).finish()
    if again.code != 0:
        return Verdict(LOST, f"{what}: cannot go on: {again.said[-600:]!r}; before: {ended.said[-300:]!r}")
    why = differs(folder, expected) or unclear
    if why:
        return Verdict(LOST, f"{what}: {why}")
    return Verdict(ALIKE if killed else REFUSED)


def cleared(folder: Path) -> None:
    """Remove a run and what it said."""
    shutil.rmtree(folder, ignore_errors=True)
    for said in folder.parent.glob(f"{folder.name}.said-*"):
        said.unlink(missing_ok=True)
