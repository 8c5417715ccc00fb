"""Several methods on one problem, each with several seeds, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BayeswellError, SettingError
from ..metrics.estimates import estimate_over_seeds
from ..persistence import write_document
from ..training import Interrupted
from .dry_run import dry_run
from .experiment import Experiment
from .paths import path_of, place_in
from .running import RunFailed, finished_result, run

COMPARISON = "comparison.json"
_FORMAT = 1
Plan = Mapping[str, Mapping[int, tuple[Path, Experiment]]]
"""Folder and experiment of each run, by label and seed."""
Told = Callable[[str, str], None]
"""Told of each run: its name, and "finished", "resumed", "begun" or "failed: why"."""


def compare(
    methods: Mapping[str, Experiment],
    seeds: Sequence[int],
    out: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    told: Told | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train each experiment with each seed in a folder of its own under ``out``, and put the results side by side.

    ``methods`` maps a label, which names the folders, to an experiment. Finished runs are not run again, unfinished
    ones are resumed. Each method is put together once before any is trained, and refused if it cannot be. A run that
    fails does not stop the others: its error is in the record, which is also written to ``comparison.json``. Scores
    have a mean over seeds, its standard error over seeds (None for one seed), and the standard error over test examples
    of one run (the mean over seeds). Options as in ``run``.
    """
    if not methods or not seeds:
        raise SettingError("compare needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise SettingError(f"compare: the seeds {list(seeds)} hold one twice")
    plan = {
        label: {seed: (place_in(out, f"{label}-seed{seed}"), experiment.changed({"seed": seed})) for seed in seeds}
        for label, experiment in methods.items()
    }
    # Whatever is in the way of any run is found before the first is trained.
    unfinished: dict[str, Experiment] = {}
    for label, runs in plan.items():
        for place, experiment in runs.values():
            if finished_result(place, experiment) is None:
                unfinished.setdefault(label, experiment)
    dry_run(unfinished)
    found, failed = _train_all(plan, told or (lambda name, state: None), progress=progress, **options)
    record: dict[str, Any] = {
        "format": _FORMAT,
        "seeds": list(seeds),
        "experiments": {label: _shared(experiment) for label, experiment in methods.items()},
        "rows": [_row(label, plan[label], found[label], failed[label]) for label in plan],
        "time": {label: _seconds(found[label]) for label in plan},
    }
    if any(found.values()) or any(failed.values()):
        write_document(path_of(out) / COMPARISON, record)
    return record


def _train_all(plan: Plan, tell: Told, **options: Any) -> tuple[dict[str, dict[int, Any]], dict[str, list[Any]]]:
    """What came out of each run that ended, by label and seed, and what each of the others died of, by label."""
    found: dict[str, dict[int, Any]] = {label: {} for label in plan}
    failed: dict[str, list[Any]] = {label: [] for label in plan}
    refusals: list[BayeswellError] = []
    for label, runs in plan.items():
        for seed, (place, experiment) in runs.items():
            done = finished_result(place, experiment)
            tell(place.name, "finished" if done else "resumed" if place.exists() else "begun")
            try:
                found[label][seed] = done or run(experiment, place, resume=True, label=place.name, **options)
            except Interrupted:
                raise
            except Exception as error:  # whatever it is, the other methods have nothing to do with it
                if isinstance(error, BayeswellError) and not isinstance(error, RunFailed):
                    refusals.append(error)
                said = str(error) if isinstance(error, BayeswellError) else f"{type(error).__name__}: {error}"
                failed[label].append({"run": place.name, "error": said})
                tell(place.name, f"failed: {said}")
    if len(refusals) == sum(map(len, plan.values())):
        raise refusals[0]  # every run was refused before its first step: what was asked for is at fault
    return found, failed


def _row(
    label: str,
    runs: Mapping[int, tuple[Path, Experiment]],
    found: Mapping[int, Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    results = list(found.values())
    scores: dict[str, Any] = {}
    for part in ("test", "ood"):
        parts = [result[part] for result in results if result[part] is not None]
        for name in parts[0]["values"] if parts else ():
            errors = [part["standard_errors_over_examples"][name] for part in parts]
            scores[name] = {
                **_over_seeds([part["values"][name] for part in parts]),
                "standard_error_over_examples": None if None in errors or not errors else sum(errors) / len(errors),
            }
    if results:
        scores["std_ratio"] = _over_seeds([result["std_ratio"] for result in results])
    return {
        "method": label,
        "runs": [place.name for place, _ in runs.values()],
        "finished": len(results),
        "failed": list(failed),
        "scores": scores,
        "cost": results[0]["cost"] if results else None,
        "converged": [result["chains"]["converged"] for result in results if result["chains"] is not None],
    }


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    found = estimate_over_seeds(values)
    return {"mean": found.value, "standard_error_over_seeds": found.error, "values": list(values)}


def _seconds(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Of runs that were timed from beginning to end; of a resumed one the time before the break is not known."""
    timed = [result["time"]["train_seconds"] for result in found.values() if not result["time"]["resumed"]]
    return {"train_seconds": _over_seeds(timed) if timed else None}


def _shared(experiment: Experiment) -> dict[str, Any]:
    return {name: value for name, value in experiment.as_json().items() if name != "seed"}
