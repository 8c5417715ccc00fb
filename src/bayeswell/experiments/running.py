"""An experiment from its beginning to its result, in a folder that survives."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import BayeswellError, DivergenceError, SettingError
from ..metrics.chains import ChainReport
from ..plain import fields_of, plain
from ..predictive.predictor import Predictor
from ..training import Callback, Interrupted, ProgressBar, Result, RunFolder, batch_count, fit
from ..training.calibrating import holding
from ..training.progress import wants_progress
from ..training.run_folder import MODEL, differences
from .data_spec import DataSpec
from .evaluating import scores_of
from .experiment import Experiment, experiment_of
from .loggers import Watchers
from .paths import path_of
from .problem import Problem, load_problem, training_data
from .run_records import Traces

FORMAT = 1
_PARTS = frozenset({"format", "test", "cost", "chains", "time"})
AnyPath = str | os.PathLike[str]


class RunFailed(BayeswellError):
    """A run failed after it had begun; its folder holds the last good checkpoint. The cause says why."""


def run(
    experiment: Experiment,
    path: AnyPath,
    *,
    resume: bool = False,
    force: bool = False,
    longer: bool = False,
    checkpoint_steps: int | None = None,
    checkpoint_seconds: float = 30.0,
    loggers: Sequence[Callback] = (),
    progress: bool | None = None,
    label: str = "",
) -> dict[str, Any]:
    """Train, save the model, measure it on the test set; the record is that of ``result.json``.

    ``resume`` goes on with the run that may be in the folder, bit for bit, and gives back the result of one that is
    finished. ``force`` goes on even if settings differ, ``longer`` if it is only that there are more epochs. Everything
    in the record but ``time`` is the same for the same experiment. In a job of several processes only the first gets a
    record; the others get an empty one.
    """
    folder = path_of(path)
    if resume and not force and not longer:
        finished = finished_result(folder, experiment)
        if finished is not None:
            return finished
    problem = load_problem(experiment)
    described: dict[str, Any] = {"experiment": experiment.as_json(), "data_sha256": problem.data.fingerprint()}
    run_folder = RunFolder(
        folder, problem=described, resume=resume, force=force, longer=longer,
        checkpoint_steps=checkpoint_steps, checkpoint_seconds=checkpoint_seconds,
    )  # fmt: skip
    bar = [ProgressBar(label)] if wants_progress(progress) else []
    watchers = Watchers([*loggers, *bar])
    traces = Traces(experiment.epochs * _batches(experiment, problem)) if experiment.diagnose else None
    data, augment = training_data(experiment, problem.data)
    began = time.perf_counter()
    try:
        result = fit(
            problem.net, data, experiment.method_part, problem.likelihood,
            epochs=experiment.epochs, batch_size=experiment.batch_size, seed=experiment.seed,
            validation=problem.data.validation, early_stopping=experiment.keep_best, augment=augment,
            accumulate=experiment.accumulate, devices=experiment.devices_part, folder=run_folder,
            callbacks=[watchers, *([] if traces is None else traces.callbacks)], progress=False,
            calibrate=experiment.calibrate,
        )  # fmt: skip
    except Interrupted:
        raise
    except BayeswellError as error:
        if watchers.steps == 0 and not isinstance(error, DivergenceError):
            run_folder.undo()  # the mended command finds the place free
            raise
        failure = RunFailed(str(error))
        failure.model = error.model
        raise failure from error
    finally:
        watchers.close()
    seconds = time.perf_counter() - began
    if not _speaks():
        return {}
    try:
        if traces is not None:
            traces.write(folder)
        return _finish(experiment, problem, result, run_folder, seconds, watchers.steps)
    except (BayeswellError, OSError) as error:
        raise RunFailed(f"{error}; the run is trained, and `resume` finishes it") from error


def resume_run(path: AnyPath, *, epochs: int | None = None, **options: Any) -> dict[str, Any]:
    """Go on with the run in a folder, from what the folder says alone; options as in ``run``.

    With ``epochs`` a run goes on until it has had so many, also one that was finished with fewer.
    """
    experiment = experiment_of(path)
    if epochs is None or epochs == experiment.epochs:
        return run(experiment, path, resume=True, **options)
    if epochs < experiment.epochs:
        raise SettingError(f"epochs = {epochs}; the run in {os.fspath(path)!r} was begun for {experiment.epochs}")
    if experiment.method_part.members > 1 or experiment.method_part.budget is not None:
        raise SettingError(
            f"epochs = {epochs}: the members of '{experiment.method_part.name}' are trained one by one and gathered, "
            "and cannot go on together; begin a run of more epochs"
        )
    return run(experiment.changed({"epochs": epochs}), path, resume=True, longer=True, **options)


def finished_result(path: AnyPath, experiment: Experiment | None = None) -> dict[str, Any] | None:
    """The result of the run in a folder, if there is one and it is finished; refused if it is another experiment's."""
    folder = RunFolder(path_of(path))
    result = folder.result()
    if result is not None and not result.keys() >= _PARTS:
        # Emptied or cut by another hand: the model is there, and what came out of it is found again.
        return None
    if result is not None and experiment is not None:
        changes = differences(experiment_of(path).as_json(), experiment.as_json())
        if changes:
            raise SettingError(f"the finished run in {os.fspath(path)!r} is another one: {'; '.join(changes)}")
    return result


def _finish(
    experiment: Experiment, problem: Problem, result: Result, folder: RunFolder, seconds: float, steps: int
) -> dict[str, Any]:
    """Save the model, measure it, write the result: in this order, so that a result has a model."""
    result.save(folder.path / MODEL)
    DataSpec.of(problem.data, experiment).write(folder.path)
    began = time.perf_counter()
    predictor = Predictor(result.model, result.likelihood, calibration=result.calibration)
    scores = scores_of(predictor, problem.data, problem.ood_inputs, draws=experiment.draws)
    method, calibration = result.method, result.calibration
    batches = _batches(experiment, problem)
    taken = batches * sum(len(history.epochs) for history in result.histories)
    record: dict[str, Any] = {
        "format": FORMAT,
        "method": method.name,
        "data": problem.data.name,
        "model": problem.model["name"],
        "seed": experiment.seed,
        "parameters": problem.parameters,
        "variational_parameters": result.variational_parameters,
        "examples": {"train": _examples(experiment, problem), "test": len(problem.data.test[1])},
        **scores,
        "calibration": None if calibration is None else {**fields_of(calibration), "text": str(calibration)},
        "std_ratio": result.std_ratio,
        "temperature": result.temperature,
        "chains": _chains(result.chains),
        "elbo": None if result.elbo is None else result.elbo.as_json(),
        "trust": result.trust.as_json(),
        "stopped": result.stopped,
        "cost": {
            "unit": "forward passes of a batch; a backward pass counts as two",
            "per_step": method.cost,
            "members": method.members,
            "steps": taken,
            # K folds, each without a Kth of the data, and all of it once.
            "total": taken * method.cost / method.members * (1 if calibration is None else calibration.folds),
        },
        # All that a second run of the same experiment may find otherwise.
        "time": {
            "train_seconds": seconds,
            "evaluate_seconds": time.perf_counter() - began,
            "timed_steps": steps,
            "resumed": steps < taken,
        },
    }
    folder.write_result(record)
    return record


def _chains(report: ChainReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    names = ("r_hat", "ess", "typical_ess", "chains", "draws", "quantities", "constant")
    numbers = {name: plain(getattr(report, name), finite=True) for name in names}
    return {**numbers, "converged": report.converged, "warnings": list(report.warnings)}


def _speaks() -> bool:
    """Whether this process is the only one, or the first of several."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not distributed or torch.distributed.get_rank() == 0


def _examples(experiment: Experiment, problem: Problem) -> int:
    """How many the kept model is trained on: calibration may hold out some."""
    count = len(problem.data.train[1])
    held_out = experiment.calibrate and problem.data.validation is None
    return count - (holding(True, count).examples if held_out else 0)


def _batches(experiment: Experiment, problem: Problem) -> int:
    examples = _examples(experiment, problem)
    return batch_count(examples, experiment.batch_size_of(examples))
