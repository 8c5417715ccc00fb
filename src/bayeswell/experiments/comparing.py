"""Several methods on one problem, each with several seeds or folds, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import SettingError, require_count
from ..metrics.estimates import estimate_over_seeds
from ..persistence import write_document
from .by_joblib import joblib_is_asked, train_by_joblib
from .dry_run import dry_run
from .experiment import Experiment
from .given import NOTHING, Given
from .paths import path_of, place_in
from .running import finished_result
from .side_by_side import Outcome, Task, attempt, train_side_by_side

COMPARISON = "comparison.json"
_FORMAT = 1


class Repeat(NamedTuple):
    """What is done again with another seed, or on another part of the data (``2/5``)."""

    seed: int
    fold: str | None = None

    @property
    def suffix(self) -> str:
        """In the name of the run's folder."""
        return f"seed{self.seed}" + ("" if self.fold is None else f"-fold{self.fold.split('/')[0]}")


Plan = Mapping[str, Mapping[Repeat, Task]]
"""Folder and experiment of each run, by label and repeat."""
Told = Callable[[str, str], None]
"""Told of each run: its name, and "finished", "resumed", "begun", "done" or "failed: why"."""


def compare(
    methods: Mapping[str, Experiment],
    seeds: Sequence[int],
    out: str | os.PathLike[str],
    *,
    folds: int | None = None,
    workers: int = 1,
    progress: bool | None = None,
    told: Told | None = None,
    given: Given = NOTHING,
    **options: Any,
) -> dict[str, Any]:
    """Train each experiment with each seed in a folder of its own under ``out``, and put the results side by side.

    ``methods`` maps a label, which names the folders, to an experiment. With ``folds`` K each is also trained K times,
    without one Kth of the examples, by which it is tested. ``workers`` runs are trained at a time. Finished runs are
    not run again, unfinished ones are resumed. Each method is put together once before any is trained, and refused if
    it cannot be. A run that fails does not stop the others: its error is in the record, which is also written to
    ``comparison.json``. Scores have a mean, its standard error over seeds (or over folds, the seeds of each averaged;
    None for one), and the standard error over test examples of one run (the mean over runs). Inside a
    ``joblib.parallel_config`` the workers of its backend train the runs. ``given`` and options as
    in ``run``.
    """
    if not methods or not seeds:
        raise SettingError("compare needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise SettingError(f"compare: the seeds {list(seeds)} hold one twice")
    require_count("compare", "workers", workers)
    plan = _planned(methods, seeds, folds, out)
    # Whatever is in the way of any run is found before the first is trained.
    unfinished: dict[str, Experiment] = {}
    for label, runs in plan.items():
        for task in runs.values():
            if finished_result(task.place, task.experiment, given) is None:
                unfinished.setdefault(label, task.experiment)
    dry_run(unfinished, given)
    tasks = [task for runs in plan.values() for task in runs.values()]
    outcomes = train_all(tasks, told, workers, given, progress=progress, **options)
    record: dict[str, Any] = {
        "format": _FORMAT,
        "seeds": list(seeds),
        "folds": folds,
        "experiments": {label: _shared(experiment) for label, experiment in methods.items()},
        "rows": [_row(label, runs, outcomes) for label, runs in plan.items()],
        "time": {label: _seconds(outcomes[task.place] for task in runs.values()) for label, runs in plan.items()},
    }
    write_document(path_of(out) / COMPARISON, record)
    return record


def _planned(
    methods: Mapping[str, Experiment], seeds: Sequence[int], folds: int | None, out: str | os.PathLike[str]
) -> Plan:
    if folds is not None and (isinstance(folds, bool) or not isinstance(folds, int) or folds < 2):
        raise SettingError(f"folds = {folds!r}; how many, a whole number of at least 2")
    parts = [None] if folds is None else [f"{number}/{folds}" for number in range(1, folds + 1)]
    repeats = [Repeat(seed, fold) for fold in parts for seed in seeds]
    plan: dict[str, dict[Repeat, Task]] = {}
    for label, experiment in methods.items():
        if folds is not None and experiment.fold is not None:
            raise SettingError(f"{label}: fold = {experiment.fold!r} is one part; folds = {folds} are all of them")
        plan[label] = {}
        for repeat in repeats:
            changes = {"seed": repeat.seed} | ({} if repeat.fold is None else {"fold": repeat.fold})
            plan[label][repeat] = Task(place_in(out, f"{label}-{repeat.suffix}"), experiment.changed(changes))
    return plan


def train_all(
    tasks: Sequence[Task],
    told: Told | None = None,
    workers: int = 1,
    given: Given = NOTHING,
    *,
    ended: Callable[[Task, Outcome], None] | None = None,
    **options: Any,
) -> dict[Path, Outcome]:
    """What came out of each run, by its folder; ``ended`` hears of each as it is known, finished ones first.

    Inside a ``joblib.parallel_config`` its backend trains them: the workers of a cluster, say (``by_joblib``).
    """
    tell = told or (lambda name, state: None)
    by_joblib = joblib_is_asked()
    elsewhere = workers > 1 or by_joblib
    outcomes: dict[Path, Outcome] = {}
    waiting: list[Task] = []

    def keep(task: Task, outcome: Outcome) -> None:
        outcomes[task.place] = outcome
        if ended is not None:
            ended(task, outcome)

    for task in tasks:
        done = finished_result(task.place, task.experiment, given)
        if done:
            keep(task, Outcome(done))
            tell(task.place.name, "finished")
        else:
            waiting.append(task)

    def trained(task: Task, outcome: Outcome) -> None:
        keep(task, outcome)
        if outcome.result is None:
            tell(task.place.name, f"failed: {outcome.error}")
        elif elsewhere:
            tell(task.place.name, f"done ({outcome.result['time']['train_seconds']:.1f} s)")

    if waiting and by_joblib:
        train_by_joblib(waiting, given, trained, workers, **{**options, "progress": False})
    elif workers > 1 and len(waiting) > 1:
        train_side_by_side(waiting, min(workers, len(waiting)), given, tell, trained, **{**options, "progress": False})
    else:
        for task in waiting:
            tell(task.place.name, "resumed" if task.place.exists() else "begun")
            trained(task, attempt(task, given, **options))
    refused = [outcome for outcome in outcomes.values() if outcome.refused]
    if refused and len(refused) == len(outcomes):  # every run, before its first step: what was asked for is at fault
        raise refused[0].cause or SettingError(refused[0].error)
    return outcomes


def _row(label: str, runs: Mapping[Repeat, Task], outcomes: Mapping[Path, Outcome]) -> dict[str, Any]:
    found = {
        repeat: outcomes[task.place].result for repeat, task in runs.items() if outcomes[task.place].result is not None
    }
    failed = [{"run": task.place.name, "error": outcomes[task.place].error}
              for task in runs.values() if outcomes[task.place].result is None]  # fmt: skip
    results: list[Mapping[str, Any]] = [result for result in found.values() if result is not None]
    scores: dict[str, Any] = {}
    for part in ("test", "ood"):
        parts = {repeat: result[part] for repeat, result in found.items() if result and result[part] is not None}
        first = next(iter(parts.values()), None)
        for name in first["values"] if first else ():
            errors = [one["standard_errors_over_examples"][name] for one in parts.values()]
            scores[name] = {
                **_over_repeats({repeat: one["values"][name] for repeat, one in parts.items()}),
                "standard_error_over_examples": None if None in errors or not errors else sum(errors) / len(errors),
            }
    for name in ("std_ratio", "temperature"):
        if results and all(name in result for result in results):  # runs of older versions may have no temperature
            scores[name] = _over_repeats({repeat: result[name] for repeat, result in found.items() if result})
    return {
        "method": label,
        "runs": [task.place.name for task in runs.values()],
        "repeats": [list(repeat) for repeat in found],
        "finished": len(results),
        "failed": failed,
        "scores": scores,
        "cost": results[0]["cost"] if results else None,
        "plan": results[0].get("plan") if results else None,
        "converged": [result["chains"]["converged"] for result in results if result["chains"] is not None],
    }


def _over_repeats(values: Mapping[Repeat, float]) -> dict[str, Any]:
    """Mean and standard error: over seeds, or over folds, of each of which the seeds are averaged first."""
    folds = {repeat.fold for repeat in values}
    if folds == {None}:
        return _over_seeds(list(values.values()))
    means = [
        _mean([value for repeat, value in values.items() if repeat.fold == fold]) for fold in sorted(map(str, folds))
    ]
    found = estimate_over_seeds(means)
    return {
        "mean": found.value,
        "standard_error_over_seeds": None,
        "standard_error_over_folds": found.error,
        "values": list(values.values()),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    found = estimate_over_seeds(values)
    return {"mean": found.value, "standard_error_over_seeds": found.error, "values": list(values)}


def _seconds(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Of runs that were timed from beginning to end; of a resumed one the time before the break is not known."""
    spent = [outcome.result["time"] for outcome in outcomes if outcome.result is not None]
    timed = [time["train_seconds"] for time in spent if not time["resumed"]]
    return {"train_seconds": _over_seeds(timed) if timed else None}


def _shared(experiment: Experiment) -> dict[str, Any]:
    return {name: value for name, value in experiment.as_json().items() if name != "seed"}
