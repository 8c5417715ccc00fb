"""Runs in two processes (gloo), one of which is killed, or stopped for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bayeswell as bw

from .bench import Bench
from .faults import children
from .table import ALIKE, LOST, REFUSED, Clock, Verdict
from .trial import Outcome, cleared, differs, outcome_of

SCRIPT = Path(__file__).with_name("rank_script.py")
TIMEOUT = 8.0
"""Seconds that a rank waits for a silent one."""
HANGS = 90.0


def start(folder: Path) -> subprocess.Popen[str]:
    """The first rank, which starts the other one."""
    clean = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_PORT")}
    environment = {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(bw.__file__).parents[1])}
    command = [sys.executable, str(SCRIPT), str(folder), str(TIMEOUT)]
    said = folder.with_name(f"{folder.name}.said-{time.monotonic_ns()}")
    with said.open("w") as file:
        return subprocess.Popen(
            command, env=environment, stderr=file, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )


def finish(process: subprocess.Popen[str], folder: Path) -> tuple[int | None, str]:
    """The exit code, None if it hung, and what all ranks said; nothing is left running."""
    try:
        code: int | None = process.wait(HANGS)
    except subprocess.TimeoutExpired:
        code = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    newest = max(folder.parent.glob(f"{folder.name}.said-*"), key=lambda path: path.name)
    return code, newest.read_text(errors="replace")


def ranks(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """One of two ranks is killed, stopped for moments, or stopped for longer than the other waits."""
    whole = bench.scratch / "ranks-whole"
    code, said = finish(start(whole), whole)
    if code != 0:
        yield Verdict(LOST, f"the undisturbed run of two ranks ended with code {code}: {said[-600:]!r}")
        return
    expected = outcome_of(whole)
    for number in clock.tries():
        yield _try(bench, number, expected)


def _try(bench: Bench, number: int, expected: Outcome) -> Verdict:
    rng, folder = bench.rng("ranks", number), bench.scratch / f"ranks-{number}"
    rank, how = rng.randrange(2), ("killed", "stopped for 2 s", "stopped for long")[number % 3]
    process = start(folder)
    _wait_for(folder / "newest.json", process)
    time.sleep(rng.uniform(0, 1.5))
    victims = [process.pid, *children(process.pid)][rank : rank + 1]
    for victim in victims:
        _send(victim, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        if how != "killed":
            time.sleep(2.0 if how == "stopped for 2 s" else 2.5 * TIMEOUT)
            _send(victim, signal.SIGCONT)
    code, said = finish(process, folder)
    what = f"try {number}, rank {rank} {how}"
    ours = how == "killed" and rank == 0  # then the process that was started says nothing
    if code == 0:
        why = differs(folder, expected)
        return Verdict(LOST, f"{what}: {why}") if why else Verdict(ALIKE)
    unclear = code is None or "Traceback" in said or (not ours and "bayeswell: " not in said)
    again, more = finish(start(folder), folder)
    why = f"cannot go on: {more[-600:]!r}" if again != 0 else differs(folder, expected)
    if not why and unclear:
        why = f"ended with code {code} and said {said[-600:]!r}"
    cleared(folder)
    return Verdict(LOST, f"{what}: {why}") if why else Verdict(REFUSED)


def _wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + HANGS
    while not file.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
