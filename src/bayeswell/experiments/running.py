"""An experiment from its beginning to its result, in a folder that survives."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..datasets import Data
from ..diagnostics import StepTrace
from ..errors import BayeswellError, BayeswellWarning, DivergenceError, SettingError
from ..lifting import looks_trained
from ..methods.method import DISPERSED
from ..predictive.evaluate import expected_nll
from ..predictive.predictor import Predictor
from ..training import Callback, Interrupted, ProgressBar, Result, RunFolder, batch_count, fit
from ..training.calibrating import holding
from ..training.finishing import first_process, result_record
from ..training.looks import Looks
from ..training.progress import wants_progress
from ..training.run_folder import MODEL, differences
from ..training.scores import validation_on
from ..training.settings import network_fingerprint
from ..training.streams import own_global_stream
from ..training.verdicts.elbo import bound_per_datum
from ..types import MEAN, SAMPLED
from .data_spec import DataSpec
from .evaluating import scores_of
from .experiment import Experiment, experiment_of
from .given import NOTHING, Given
from .loggers import Watchers
from .paths import path_of
from .problem import Problem, load_problem, training_data
from .run_records import AverageTrace, Traces, write_steps
from .scores import BATCH, nll_shift
from .starting import is_there

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
    given: Given = NOTHING,
) -> dict[str, Any]:
    """Train, save the model, measure it on the test set; the record is that of ``result.json``.

    ``resume`` goes on with the run that may be in the folder, bit for bit, and gives back the result of one that is
    finished. ``force`` goes on even if settings differ, ``longer`` if it is only that there are more epochs. Everything
    in the record but ``time`` is the same for the same experiment. ``given`` holds the network and data that the
    experiment only names. In a job of several processes only the first gets a record; the others get an empty one.
    """
    folder = path_of(path)
    if resume and not force and not longer:
        finished = finished_result(folder, experiment, given)
        if finished is not None:
            return finished
    problem = load_problem(experiment, given)
    described: dict[str, Any] = {"experiment": experiment.as_json(), "data_sha256": problem.data.fingerprint()}
    described |= _start_of(experiment, problem)
    _warn_of_other_starts(experiment, problem)
    run_folder = RunFolder(
        folder, problem=described, resume=resume, force=force, longer=longer,
        checkpoint_steps=checkpoint_steps, checkpoint_seconds=checkpoint_seconds, finish=False,
    )  # fmt: skip
    bar = [ProgressBar(label)] if wants_progress(progress) else []
    watchers = Watchers([*loggers, *bar])
    planned = experiment.epochs * _batches(experiment, problem)
    traces = Traces(planned, experiment.trace_steps) if experiment.diagnose else None
    averages = AverageTrace(*(problem.data.validation or problem.data.test)) if experiment.diagnose else None
    steps = _step_trace(experiment, problem)
    onlookers = [*(traces.callbacks if traces else ()), *(one for one in (averages, steps) if one is not None)]
    data, augment = training_data(experiment, problem.data, given)
    began = time.perf_counter()
    try:
        result = fit(
            problem.net, data, experiment.method_part, problem.likelihood,
            epochs=experiment.epochs, batch_size=experiment.batch_size, seed=experiment.seed, where=experiment.where,
            validation=problem.data.validation, early_stopping=experiment.keep_best, augment=augment,
            accumulate=experiment.accumulate, devices=experiment.devices_part, folder=run_folder,
            callbacks=[watchers, *onlookers], progress=False,
            calibrate=experiment.calibrate, trace=problem.data.test if experiment.trace else None,
            trace_draws=experiment.draws_of_traces,
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
    if not first_process():
        return {}
    try:
        if traces is not None:
            traces.write(folder)
        if averages is not None:
            averages.write(folder)
        if steps is not None:
            write_steps(folder, steps)
        return _finish(experiment, problem, result, run_folder, seconds, watchers.steps)
    except (BayeswellError, OSError) as error:
        raise RunFailed(f"{error}; the run is trained, and `resume` finishes it") from error


def resume_run(path: AnyPath, *, epochs: int | None = None, given: Given = NOTHING, **options: Any) -> dict[str, Any]:
    """Go on with the run in a folder, from what the folder says alone; options as in ``run``.

    With ``epochs`` a run goes on until it has had so many, also one that was finished with fewer. A network or data
    that were objects are ``given`` again; others than before are refused, unless ``force``.
    """
    experiment = given.named_in(experiment_of(path))
    options = {"given": given, **options}
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


def finished_result(
    path: AnyPath, experiment: Experiment | None = None, given: Given = NOTHING
) -> dict[str, Any] | None:
    """The result of the run in a folder, if there is one and it is finished; refused if it is another experiment's.

    With ``init`` it is another one too if the run it started from has been made anew with other weights; of one that
    is gone nothing else is known, and the result stands.
    """
    folder = RunFolder(path_of(path))
    result = folder.result()
    if result is not None and not result.keys() >= _PARTS:
        # Emptied or cut by another hand: the model is there, and what came out of it is found again.
        return None
    if result is not None and experiment is not None:
        changes = differences(experiment_of(path).as_json(), experiment.as_json())
        if not changes and experiment.init is not None and is_there(experiment.init):
            now = _start_of(experiment, load_problem(experiment, given, with_ood=False))
            begun: Any = folder.config()["problem"]
            changes = differences({name: begun.get(name) for name in now}, now)
        if changes:
            raise SettingError(f"the finished run in {os.fspath(path)!r} is another one: {'; '.join(changes)}")
    return result


def _step_trace(experiment: Experiment, problem: Problem) -> StepTrace | None:
    if experiment.trace_steps is None:
        return None
    draws, data = experiment.draws_of_traces, problem.data
    held_out = None if data.validation is None else validation_on(*data.validation, draws=draws)
    shown = validation_on(*data.test, draws=draws) if experiment.trace else None
    return StepTrace(experiment.trace_steps, Looks(held_out, shown))


def _start_of(experiment: Experiment, problem: Problem) -> dict[str, Any]:
    """What the run in ``init`` gave: it may be made anew, with other weights, at the same place."""
    return {} if experiment.init is None else {"init_sha256": network_fingerprint(problem.net)}


def _warn_of_other_starts(experiment: Experiment, problem: Problem) -> None:
    """Say that members are dispersed; where the weights look trained, whoever puts the members together says it."""
    method = experiment.method_part
    if experiment.init is None or method.members == 1 or method.means != DISPERSED:
        return
    with own_global_stream():  # the look draws random numbers
        if looks_trained(problem.net) is not None:
            return
    warnings.warn(
        f"init = {experiment.init!r}: only the first of {method.members} members starts there, the others at weights "
        "of their own; means='network' lets all do so",
        BayeswellWarning,
        stacklevel=3,
    )


def _finish(
    experiment: Experiment, problem: Problem, result: Result, folder: RunFolder, seconds: float, steps: int
) -> dict[str, Any]:
    """Save the model, measure it, write the result: in this order, so that a result has a model."""
    result.save(folder.path / MODEL)
    DataSpec.of(problem.data, experiment).write(folder.path)
    began = time.perf_counter()
    predictor = Predictor(result.model, result.likelihood, calibration=result.calibration)
    scores = scores_of(predictor, problem.data, problem.ood_inputs, draws=experiment.draws)
    bound = _bound(result, problem.data, scores["expected_nll"], experiment.draws)
    if bound is not None and result.elbo is not None:
        bound["kl_per_example"] = result.elbo.kl / result.elbo.dataset_size
    held_out = problem.data.validation
    if held_out is not None:  # the final model's, by which settings are chosen; the epochs' are in the log
        as_test = replace(problem.data, test=held_out)
        found = scores_of(predictor, as_test, None, draws=experiment.draws)
        there = _bound(result, as_test, found["expected_nll"], experiment.draws) or {}
        scores["validation"] = found["test"]["values"] | there
    record = result_record(
        result, batches=_batches(experiment, problem), seconds=seconds, timed_steps=steps,
        data=problem.data.name, model=problem.model["name"], parameters=problem.parameters,
        examples={"train": _examples(experiment, problem), "test": len(problem.data.test[1])}, bound=bound, **scores,
    )  # fmt: skip
    record["time"]["evaluate_seconds"] = time.perf_counter() - began
    folder.write_result(record)
    return record


def _bound(result: Result, data: Data, expected: float | None, draws: int) -> dict[str, float] | None:
    """-ELBO per datum on the test part (``bound_per_datum``); None of what has no bound.

    A model that predicts at its mean is drawn from all the same.
    """
    elbo = result.elbo
    if elbo is None or elbo.kind != "elbo" or expected is None:
        return None
    if result.model.prediction == MEAN:
        found = expected_nll(
            result.model, *data.test, result.likelihood, draws=draws, batch_size=BATCH, seed=0, prediction=SAMPLED
        )
        expected = found + nll_shift(data)
    return bound_per_datum(expected, elbo.kl, elbo.dataset_size, elbo.temperature)


def _examples(experiment: Experiment, problem: Problem) -> int:
    """How many the kept model is trained on: calibration may hold out some."""
    count = len(problem.data.train[1])
    held_out = experiment.calibrate and problem.data.validation is None
    return count - (holding(True, count).examples if held_out else 0)


def _batches(experiment: Experiment, problem: Problem) -> int:
    examples = _examples(experiment, problem)
    return batch_count(examples, experiment.batch_size_of(examples))
