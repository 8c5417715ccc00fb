"""Runs by joblib, wherever its backend has workers: a Dask or Ray cluster, or loky on this machine. ::

    with joblib.parallel_config("dask"):
        bw.compare(net, data, ["map", "bbb"], seeds=8, folder="runs/cluster")

Each run is, bit for bit, what it is here: a run is decided by its settings, and a worker takes as many threads as this
process has. What a worker was killed over goes on from its last checkpoint if the next one sees the same disk, else it
begins anew. A worker that does not see this folder sends the run's files back.
"""

from __future__ import annotations

import secrets
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import BayeswellWarning
from ..persistence import write_whole
from .given import Given
from .side_by_side import ATTEMPTS, Outcome, Task, attempt

_ALONE = threading.Lock()
"""Runs of one process take turns: torch's global stream of random numbers is the process's."""


def joblib_is_asked() -> bool:
    """Whether this is inside a ``joblib.parallel_config`` that says where to, or how many at a time."""
    parallel = sys.modules.get("joblib.parallel")  # who has not imported it has not asked
    if parallel is None:
        return False
    backend, jobs = parallel.get_active_backend()
    return type(backend).__name__ != "LokyBackend" or jobs not in (None, 1)


@dataclass(frozen=True)
class _Found:
    """What comes back of a run; ``files`` of a worker on another disk."""

    outcome: Outcome
    warned: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def train_by_joblib(
    tasks: Sequence[Task], given: Given, ended: Callable[[Task, Outcome], None], workers: int = 1, **options: Any
) -> None:
    """Train all tasks as the active backend has it, ``workers`` at a time if that says more than one.

    A pool that is broken by the death of a worker (loky's is as a whole) is made again for what is left.
    """
    import joblib

    left = dict(enumerate(tasks))
    begun = 0
    with _mark(tasks[0].place.parent) as mark:
        while left:
            begun += 1
            jobs = [
                joblib.delayed(_cell)(number, task, given, torch.get_num_threads(), mark, dict(options))
                for number, task in left.items()
            ]
            how = {"n_jobs": workers} if workers > 1 else {}
            pool = joblib.Parallel(**how, batch_size=1, pre_dispatch="all", return_as="generator_unordered")
            try:
                for number, found in pool(jobs):
                    task = left.pop(number)
                    _keep(task, found)
                    ended(task, found.outcome)
            except BrokenProcessPool as error:
                if begun == ATTEMPTS:
                    for task in left.values():
                        ended(task, Outcome(error=f"its workers died {ATTEMPTS} times: {error}".splitlines()[0]))
                    return


@contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    """A file beside the runs: a worker that sees it sees the same disk."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{secrets.token_hex(8)}"
    write_whole(path, b"")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _cell(
    number: int, task: Task, given: Given, threads: int, mark: Path, options: Mapping[str, Any]
) -> tuple[int, _Found]:
    """One run, where a worker is; what it has is plain data."""
    with _ALONE, warnings.catch_warnings(record=True) as caught:
        torch.set_num_threads(threads)  # as in the process that asked: sums depend on it
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", BayeswellWarning)
        outcome = attempt(task, given, **options)
    said = tuple(str(one.message) for one in caught)
    away = outcome.result is not None and not mark.exists()
    plain = Outcome(outcome.result, outcome.error, outcome.refused)  # a cause need not be one that can be sent
    return number, _Found(plain, said, _files(task.place) if away else {})


def _files(folder: Path) -> dict[str, bytes]:
    """Of a finished run, without its checkpoints and locks."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path.relative_to(folder): path for path in found}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in names.items()
        if name.parts[0] != "checkpoints" and not any(part.startswith(".") for part in name.parts)
    }


def _keep(task: Task, found: _Found) -> None:
    for line in found.warned:
        warnings.warn(f"{task.place.name}: {line}", BayeswellWarning, stacklevel=4)
    for name, content in found.files.items():
        path = task.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
