"""Several runs at a time, each in a process of its own: every one is, bit for bit, what it is when trained alone."""

from __future__ import annotations

import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from ..errors import BayeswellError, BayeswellWarning, SettingError
from ..processes import NO_GUARD, UNGUARDED, be_a_worker, clean_context, dismiss, start_worker
from ..training import Interrupted
from .experiment import Experiment
from .given import Given
from .running import RunFailed, run

ATTEMPTS = 5
"""How often a run is begun or gone on with whose process dies."""
_LOOK_SECONDS = 1.0
DONE, REFUSED, FAILED, WARNED = "done", "refused", "failed", "warned"


@dataclass(frozen=True)
class Task:
    """A run to be made or gone on with."""

    place: Path
    experiment: Experiment


@dataclass(frozen=True)
class Outcome:
    """``result`` of a run that ended well; else ``error`` says why not, and ``refused`` that it had not even begun."""

    result: dict[str, Any] | None = None
    error: str = ""
    refused: bool = False
    cause: Exception | None = None


def attempt(task: Task, given: Given, **options: Any) -> Outcome:
    """One run here and now; whatever is wrong with it, others have nothing to do with it."""
    try:
        return Outcome(run(task.experiment, task.place, resume=True, label=task.place.name, given=given, **options))
    except Interrupted:
        raise
    except Exception as error:
        said = str(error) if isinstance(error, BayeswellError) else f"{type(error).__name__}: {error}"
        refused = isinstance(error, BayeswellError) and not isinstance(error, RunFailed)
        return Outcome(error=said, refused=refused, cause=error)


def train_side_by_side(
    tasks: Sequence[Task],
    workers: int,
    given: Given,
    tell: Callable[[str, str], None],
    ended: Callable[[Task, Outcome], None],
    **options: Any,
) -> None:
    """Train all tasks, ``workers`` at a time; ``tell`` hears of each beginning, ``ended`` what came out.

    A run whose process dies goes on from its last checkpoint in a new one. Ctrl-C lets every run save its state.
    """
    pool = _Pool(given, torch.get_num_threads(), options)
    waiting = deque(tasks)
    begun: dict[Path, int] = {}
    try:
        while waiting or pool.members:
            while waiting and len(pool.members) < workers:
                task = waiting.popleft()
                begun[task.place] = begun.get(task.place, 0) + 1
                tell(task.place.name, "resumed" if task.place.exists() else "begun")
                pool.start(task)
            for task, outcome, status in pool.look():
                if status == UNGUARDED:
                    raise SettingError(f"workers = {workers}: {NO_GUARD}")
                if outcome is None and begun[task.place] < ATTEMPTS:
                    tell(task.place.name, f"its process died (exit status {status})")
                    waiting.appendleft(task)
                    continue
                ended(task, outcome or Outcome(error=f"its process died {ATTEMPTS} times (exit status {status})"))
    except KeyboardInterrupt as stopped:
        dismiss(pool.members)
        note = "stopped; the state of every run is saved: the same command goes on with them"
        raise Interrupted(signal.SIGINT, note) from stopped
    finally:
        dismiss(pool.members)


class _Pool:
    """The processes that are at work, and what each has said so far."""

    def __init__(self, given: Given, threads: int, options: Mapping[str, Any]) -> None:
        self.given, self.threads, self.options = given, threads, options
        self.context = clean_context([__name__])
        self.members: dict[BaseProcess, tuple[Task, Connection]] = {}
        self.said: dict[Path, Outcome] = {}

    def start(self, task: Task) -> None:
        needed = "several workers need a network and data that another process can import"
        member, ear = start_worker(self.context, needed, _work, task, self.given, self.threads, dict(self.options))
        self.members[member] = (task, ear)

    def look(self) -> list[tuple[Task, Outcome | None, int | None]]:
        """Wait a little; the tasks whose processes have ended, with what each said (None: it died)."""
        ears = [ear for _, ear in self.members.values()]
        wait([*ears, *(member.sentinel for member in self.members)], timeout=_LOOK_SECONDS)
        ended = []
        for member, (task, ear) in list(self.members.items()):
            alive = member.is_alive()  # asked first: what it said before it ended is then all there
            self._hear(task, ear)
            if not alive:
                member.join()
                ear.close()
                del self.members[member]
                ended.append((task, self.said.pop(task.place, None), member.exitcode))
        return ended

    def _hear(self, task: Task, ear: Connection) -> None:
        try:
            while ear.poll():
                kind, what = ear.recv()
                if kind == WARNED:
                    warnings.warn(f"{task.place.name}: {what}", BayeswellWarning, stacklevel=4)
                else:
                    result = what if kind == DONE else None
                    self.said[task.place] = Outcome(result, "" if kind == DONE else what, kind == REFUSED)
        except (EOFError, OSError):
            return


def _work(task: Task, given: Given, threads: int, options: Mapping[str, Any], mouth: Connection) -> None:
    """One run in a process of its own."""
    be_a_worker()
    torch.set_num_threads(threads)  # as in the process that asked: sums depend on it
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", BayeswellWarning)
    warnings.showwarning = lambda message, *_: mouth.send((WARNED, str(message)))
    try:
        outcome = attempt(task, given, **options)
    except Interrupted as stopped:
        sys.exit(stopped.exit_code)
    kind = DONE if outcome.result is not None else REFUSED if outcome.refused else FAILED
    mouth.send((kind, outcome.result if kind == DONE else outcome.error))
