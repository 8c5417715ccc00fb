"""Comparison of methods on problems over several seeds: training of all runs."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError
from torch import nn

from ..core.errors import BayeswellError, SettingError, check_integer
from ..methods import Method, method_names, method_settings
from ..training.callbacks import wants_progress
from .comparison import COMPARISON, ComparedRun, Comparison
from .data import DataSet, find_data
from .overrides import with_settings
from .runs import train
from .settings import Code, RunSettings
from .terminal import WIDTH, one_line

__all__ = ["COMPARISON", "ComparedRun", "Comparison", "compare"]

_ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class Task:
    """One run to train; ``data`` and ``net`` are objects in place of names in the settings."""

    run: ComparedRun
    settings: RunSettings
    data: Any = None
    net: Any = None


def compare(
    methods: Sequence[str | Method] | Mapping[str, Any],
    problems: Any,
    *,
    seeds: int | Sequence[int] = 3,
    epochs: int = 20,
    folds: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    workers: int = 1,
    reference: str = "map",
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Train each method on each problem with each seed, and compare their scores.

    With ``folder`` finished runs are not run again and unfinished ones are resumed. A run that fails does not stop the
    others. Inside ``joblib.parallel_config(...)`` the runs are trained where that says, such as on a Dask cluster.

    Args:
        methods: names, ``Method`` objects, or ``{label: settings}`` with settings such as ``{"method": "bbb", "lr":
            1e-3}``.
        problems: a name of ``bayeswell list data``, a ``DataSet``, a sequence of them, arrays ``(x, y)``, or
            ``{name: choice}``. A choice may also be ``(net, (x, y), (x_test, y_test))`` with a network, or a function
            that makes one.
        seeds: a number, 3 means 0, 1 and 2; or the seeds.
        epochs: passes over the data.
        folds: K: train and test on each of K parts too.
        folder: of all runs; None: in memory.
        workers: runs trained at a time, each in a process.
        reference: label of the method that others are compared with; the first one if it is not among them.
        progress: a line on stderr for each run; None: if it is a terminal.
        settings: of all runs: fields of ``RunSettings``, settings of the method, or dotted such as ``posterior.rank``.
    """
    base = with_settings(RunSettings(epochs=epochs), settings)
    tasks = _tasks(_methods(methods, base), _problems(problems), _seeds(seeds), folds)
    place = None if folder is None else Path(folder)
    is_shown = wants_progress(progress)
    runs: dict[int, ComparedRun] = {}
    for number, run in _train_all(tasks, place, check_integer("compare", "workers", workers)):
        runs[number] = run
        if is_shown:
            sys.stderr.write(_progress_line(run, len(runs), len(tasks)) + "\n")
            sys.stderr.flush()
    found = Comparison(tuple(runs[number] for number in range(len(tasks))), reference, place)
    if place is not None:
        found.save(place)
    return found


def _methods(methods: Any, base: RunSettings) -> dict[str, RunSettings]:
    if isinstance(methods, str | Method):
        methods = [methods]
    if not isinstance(methods, Mapping):
        methods = {one.name if isinstance(one, Method) else one: one for one in methods}
    if not methods:
        raise SettingError("compare needs at least one method")
    found = {}
    for label, choice in methods.items():
        found[label] = _method_settings(base, choice)
        try:
            _ = found[label].method_part  # Checked before anything is trained.
        except BayeswellError as error:
            raise SettingError(f"compare, method '{label}': {error}") from error
    return found


def _method_settings(base: RunSettings, choice: Any) -> RunSettings:
    if isinstance(choice, str):
        return base.changed(method=choice)
    if isinstance(choice, Method):
        own = {key: value for key, value in method_settings(choice).items() if key in Method.settings()}
        if choice.name not in method_names():
            raise SettingError(f"method '{choice.name}' has no registered name; give {{label: settings}}")
        return base.changed(method=choice.name, settings={**own, **base.settings})
    own = {"method": base.method, **choice}
    return with_settings(base.changed(method=own.pop("method")), own)


def _problems(problems: Any) -> dict[str, Any]:
    if isinstance(problems, str | DataSet):
        problems = [problems]
    if isinstance(problems, tuple) and problems and not _has_name(problems[0]):
        problems = {"data": problems}
    if not isinstance(problems, Mapping):
        problems = {_problem_name(one): one for one in problems}
    if not problems:
        raise SettingError("compare needs at least one problem")
    for choice in problems.values():
        data = split_problem(choice)[1]
        if isinstance(data, str | Mapping):
            find_data(data)  # Checked before anything is trained.
    return dict(problems)


def _has_name(problem: Any) -> bool:
    return isinstance(problem, str | Mapping | Code | DataSet) or hasattr(problem, "read")


def _problem_name(problem: Any) -> str:
    if not _has_name(problem):
        raise SettingError(f"compare: a problem is a {type(problem).__name__}; give arrays as {{name: (x, y)}}")
    return problem.name if isinstance(problem, DataSet) else str(problem)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    found = [*seeds] if isinstance(seeds, Sequence) else [*range(check_integer("compare", "seeds", seeds))]
    if not found or len(set(found)) < len(found):
        raise SettingError(f"compare: `seeds` = {seeds!r}; give a number, or different seeds")
    return found


def _tasks(
    methods: Mapping[str, RunSettings], problems: Mapping[str, Any], seeds: Sequence[int], folds: int | None
) -> list[Task]:
    parts = [None] if folds is None else [f"{part}/{folds}" for part in range(1, folds + 1)]
    found = [
        _task(problem, choice, label, settings.changed(seed=int(seed), fold=fold))
        for problem, choice in problems.items()
        for label, settings in methods.items()
        for seed in seeds
        for fold in parts
    ]
    folders = [task.run.folder for task in found]
    if len(set(folders)) < len(folders):
        raise SettingError("compare: two labels have the same letters; choose names that differ in a-z, 0-9 and ._+=-")
    return found


def _task(problem: str, choice: Any, label: str, settings: RunSettings) -> Task:
    net, data = split_problem(choice)
    if isinstance(data, str | Mapping | Code):
        settings, data = settings.changed(data=data), None
    else:
        settings = settings.changed(data=problem)
    ending = "" if settings.fold is None else f"-fold{settings.fold.partition('/')[0]}"
    folder = f"{_letters(problem)}/{_letters(label)}-seed{settings.seed}{ending}"
    return Task(ComparedRun(problem, label, settings.seed, settings.fold, folder=folder), settings, data, net)


def split_problem(choice: Any) -> tuple[Any, Any]:
    """Return the network, None without, and the data of ``(net, data...)`` or of data alone."""
    if not isinstance(choice, tuple):
        return None, choice
    has_net = isinstance(choice[0], nn.Module) or callable(choice[0])
    net, rest = (choice[0], choice[1:]) if has_net else (None, choice)
    if len(rest) == 1:
        return net, rest[0]
    # ((x, y), (x_test, y_test)) becomes (x, y, x_test, y_test).
    return net, tuple(one for part in rest for one in (part if isinstance(part, tuple) else (part,)))


def _letters(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", name).strip(".") or "run"


def _train_all(tasks: Sequence[Task], folder: Path | None, workers: int) -> Iterator[tuple[int, ComparedRun]]:
    left = dict(enumerate(tasks))
    for attempt in range(_ATTEMPTS):
        pool = joblib.Parallel(n_jobs=workers if workers > 1 else None, return_as="generator_unordered")
        try:
            for number, run in pool(joblib.delayed(_attempt)(*one, folder) for one in list(left.items())):
                del left[number]
                yield number, run
            return
        except TerminatedWorkerError:
            if attempt == _ATTEMPTS - 1:
                raise


def _attempt(number: int, task: Task, folder: Path | None) -> tuple[int, ComparedRun]:
    settings, run = task.settings, task.run
    if folder is not None:
        settings = settings.changed(folder=str(folder / run.folder))
    own = {"data": task.data, "net": task.net, "label": run.method, "name": run.problem}
    try:
        record = train(settings, resume=folder is not None, **own)
    except Exception as error:
        return number, dataclasses.replace(run, error=one_line(f"{type(error).__name__}: {error}"))
    return number, dataclasses.replace(run, record=record)


def _progress_line(run: ComparedRun, done: int, total: int) -> str:
    text = f"failed: {run.error}"
    if run.record is not None:
        text = f"NLL {run.record.scores['nll'].value:.4g}, {run.record.cost['seconds']:.1f} s"
    return f"{done:>{len(str(total))}}/{total} {run.title}: {text}"[: WIDTH - 1]
