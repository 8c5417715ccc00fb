"""The one-call door."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from torch import nn

from ..batches import Columns
from ..errors import (
    BayeswellWarning,
    NetworkError,
    ScaleWarning,
    SettingError,
    nearest,
    require_count,
)
from ..fingerprint import sha256_of
from ..lifting import BayesianModule, Saved, Where
from ..methods import Method
from ..outputs import Output, require_hook
from ..processes import leave_if_imported
from ..tables import Preparation
from .as_given import require_epochs, require_nothing_to_train
from .beginning import beginning
from .calibrating import calibrated_fit
from .checking import Trial
from .data import Augment, as_batches
from .early_stopping import KeepBest, keep_best
from .engine import Devices, Engine
from .examples import dtype_of
from .finishing import finish_run
from .held_out import read_held_out
from .helpers import require_content_with_epochs
from .looks import Looks
from .member_runs import Plan, fit_members
from .preparing import prepared, with_preparation
from .progress import ProgressBar, wants_progress
from .records import EpochRecord, Watcher
from .result import Result
from .run import Callback, Run
from .run_folder import RunFolder
from .settings import plain_settings
from .verdicts.conclude import Examples

_HELD_OUT = 1000


def fit(
    net: nn.Module | Saved,
    data: Any,
    method: str | Method | None = None,
    likelihood: Any = None,
    *,
    epochs: int = 20,
    batch_size: int | None = None,
    seed: int = 0,
    where: Where = "all",
    validation: Any = None,
    early_stopping: KeepBest | int | None = None,
    augment: Augment | None = None,
    accumulate: int = 1,
    devices: Devices | int = 1,
    workers: int = 1,
    folder: str | os.PathLike[str] | RunFolder | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    watch: Watcher | None = None,
    progress: bool | None = None,
    calibrate: bool | int | float = False,
    target: str | None = None,
    output: Output | None = None,
    standardise: bool = False,
    trace: Any = None,
    trace_draws: int = 10,
    **settings: Any,
) -> Result:
    """Train a network as a Bayesian one.

    Args:
        net: any ``nn.Module``; it is copied, not changed. Or what was trained before (a ``Result``, what ``load``
            brings back, a lifted model): then training goes on, see below.
        data: ``(inputs, targets)`` as tensors, arrays or data frames (what becomes of texts, missing cells and names:
            ``Preparation``), a Dataset or a DataLoader; a third part says how often each example counts (a weight of
            2: the example met twice). Or columns by name, in a mapping, in the batches of a loader or in a Hugging Face
            data set: ``{"input_ids": ..., "attention_mask": ..., "labels": ...}``.
        method: a name (``find_method``), or a ``Method``; None: "auto", or the result's own.
        likelihood: a name, ``{"name": ..., setting: value}``, an object with an ``nll``, or a function of the outputs
            that returns a torch distribution; None: "categorical", or the result's own.
        epochs: passes over the data; of a result that goes on, further ones. Method "auto" may give several members
            half as many each, and says so. 0 takes the network as it is, where that means something: methods "map",
            "mc-dropout" and "laplace".
        batch_size: examples in a step; None: 100, or a fiftieth of fewer data, but 16 at least. A DataLoader keeps its
            own.
        seed: decides the order of the data, all noise, dropout and starts.
        where: which parameters are Bayesian, as in ``bayesian``.
        validation: held-out data in any of these forms, measured after every epoch.
        early_stopping: a ``KeepBest``, or how many epochs without a better validation nll to wait for; the weights of
            the best epoch are kept.
        augment: changes the inputs of a batch at random, ``(inputs, generator) -> inputs``.
        accumulate: cut each batch into so many pieces, whose gradients are summed: the same step in less memory.
        devices: how many devices, or ``Devices(accelerator, devices, strategy, precision)``.
        workers: how many members of an ensemble (or chains of a sampler) are trained at a time, each in a process with
            as many threads as this one (``torch.set_num_threads``); bit for bit the members that one process trains. As
            many as there are cores, over threads; two processes share a member where they do not come out even.
            As in every program that starts processes, a script's own work stands under ``if __name__ == "__main__":``.
        folder: where the run keeps settings, metrics, checkpoints, and at its end the model and what came out, for the
            commands ``evaluate``, ``predict`` and ``report``; a ``RunFolder`` says more.
        resume: go on with the run in ``folder``, if there is one, bit for bit as if it had never stopped.
        callbacks: hung into training, see ``Callback``.
        watch: called with the record of every epoch.
        progress: show a progress bar; None: if the output is a terminal.
        calibrate: choose a scale of the stds and a temperature of the logits (or noise) on held-out data, see
            ``Predictor.calibrate``: on ``validation`` if given, else on a tenth of the data, or of fewer than 5,000 by
            cross-fitting in five folds (five times the training). A share (0.2) or a number of folds (10) says which.
        target: the column of the targets; None: "labels", "label", "targets", "target" or "y". All other columns go to
            the network as keywords.
        output: a function of what the network returns that gives the tensor of its logits or means; None where that is
            a tensor, has ``.logits`` or "logits", or is a tuple that begins with it. It is code, and not saved.
        standardise: scale inputs, and real targets, to zero mean and unit std of the training data; kept in the saved
            model and undone in predictions.
        trace: other data in any of these forms, a test set say, measured after every epoch for the record alone
            (``history.epochs[-1].test``), also of the average that HWA, SWA or SWAG would end with; nothing can listen.
        trace_draws: networks drawn for each of these looks.
        settings: any part of the method by name: posterior, prior, estimator, temperature, stepper, lr, ...

    A result goes on as if it had been planned longer from the start: with a constant rate, a temperature that is a
    number, the same data and the same seed this is the longer run bit for bit. With ``prior="posterior"`` the trained
    posterior becomes the prior and training begins anew from there: sequential Bayes, for data that come later.
    """
    require_epochs(epochs)
    require_count("fit", "accumulate", accumulate)
    require_count("fit", "workers", workers)
    require_count("fit", "trace_draws", trace_draws)
    if workers > 1:
        leave_if_imported()
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingError(f"seed = {seed!r}; it must be a whole number")
    _require_kinds(net, devices, callbacks, watch, early_stopping)
    if resume and folder is None:
        raise SettingError("resume = True, but no folder: say where the run is")
    _require_known(settings)
    require_hook(output)
    if epochs == 0 and standardise:
        raise SettingError("standardise with epochs = 0: the network as it is was trained on numbers as they are")
    if target is not None and not isinstance(target, str):
        raise SettingError(f"target = {target!r}; give the name of a column")
    ready = prepared(net, data, validation, trace, likelihood, standardise, seed)
    net, data, validation, trace, likelihood = ready.net, ready.data, ready.validation, ready.trace, ready.likelihood
    run_folder = _run_folder(folder, resume, ready.preparation)
    if calibrate is not False:
        if isinstance(net, Saved | BayesianModule) and validation is None:
            raise SettingError(
                "calibrate: what was trained before has seen the data: give validation=(inputs, targets)"
            )

        if epochs == 0 and validation is None:
            raise SettingError("calibrate with epochs = 0: the data are no held-out ones: give validation")

        def again(data: Any, validation: Any, folder: Any, *, main: bool) -> Result:
            return fit(
                net, data, method, likelihood, epochs=epochs, batch_size=batch_size, seed=seed, where=where,
                validation=validation, early_stopping=early_stopping, augment=augment, accumulate=accumulate,
                devices=devices, workers=workers, folder=folder, resume=resume, callbacks=callbacks if main else (),
                watch=watch if main else None, progress=progress if main else False, target=target,
                output=output, trace=trace if main else None, trace_draws=trace_draws, **settings,
            )  # fmt: skip

        inner = None if run_folder is None else run_folder.unfinished()
        how: dict[str, Any] = {"validation": validation, "folder": inner, "seed": seed, "resume": resume}
        columns, own = Columns(_module(net), target), dtype_of(_module(net))
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScaleWarning)  # it was said of the whole data
            result = calibrated_fit(again, data, calibrate, **how, dtype=own, columns=columns)
        result = with_preparation(result, ready.preparation)
        if run_folder is not None and inner is not None and run_folder.finish:
            run_folder.is_new = inner.is_new
            batches = as_batches(data, batch_size, own, None, columns)
            finish_run(run_folder, result, batches, time.perf_counter() - began)
        return result
    start = beginning(net, method, likelihood, settings, where)
    if epochs == 0:
        require_nothing_to_train(start.parts)
    dtype = dtype_of(start.module)
    columns = Columns(start.module, target)
    batches = as_batches(data, batch_size, dtype, augment, columns)
    trial = Trial(start.module, start.likelihood, output)
    trial.look_at(batches)
    held_out = None if validation is None else read_held_out(validation, columns, dtype)
    shown = None if trace is None else read_held_out(trace, columns, dtype, "trace")
    listened = start.parts.needs_validation
    if listened and held_out is None:
        raise SettingError(f"plateau: metric = '{listened}' looks at held-out data: give validation too")
    for found, what in ((held_out, "validation"), (shown, "trace")):
        if found is not None:
            trial.look_at_read(found.inputs, found.targets, what)
    start, epochs, note = start.with_data(batches).within_budget(batches.examples, epochs)
    chosen, likelihood = start.method, start.likelihood
    best = keep_best(early_stopping, chosen, validates=held_out is not None)
    some = None if held_out is None else Examples(*held_out.first(_HELD_OUT))
    looks = Looks(
        None if held_out is None else held_out.scores(10), None if shown is None else shown.scores(trace_draws)
    )
    if note and progress is not False:
        sys.stderr.write(f"{note}\n")
    where_to = Devices(devices=devices) if isinstance(devices, int) else devices
    if workers > 1 and where_to.devices > 1:
        raise SettingError(
            f"workers = {workers} with devices = {where_to.devices}: members are trained on one device each"
        )
    engine = Engine(where_to)
    plan = Plan(start, batches, start.epochs_done + epochs, seed, where, accumulate, engine, output)
    watchers: list[Callback] = [*callbacks]
    if watch is not None:
        watchers.append(_Watch(watch))
    if workers > 1:
        require_content_with_epochs(watchers)
    if workers > 1 and chosen.members == 1:
        note = f"workers = {workers} has nothing to do: they share the members of an ensemble, and here is one member"
        warnings.warn(note, BayeswellWarning, stacklevel=2)
    described: dict[str, Any] = {}
    with ExitStack() as stack:
        if run_folder is not None:
            stack.callback(run_folder.close)
            described = plain_settings(
                chosen, likelihood, start.module, batches.fingerprint(),
                epochs=epochs, batch_size=batch_size, seed=seed, where=where, accumulate=accumulate,
                validation=None if held_out is None else held_out.sha256, early_stopping=best, augment=augment,
                precision=where_to.precision, ranks=engine.ranks, device=engine.device.type,
                **({} if output is None else {"output": output}),
                **({} if shown is None else {"trace": shown.sha256, "trace_draws": trace_draws}),
            )  # fmt: skip
            if engine.rank == 0:
                run_folder.open(described)
            with engine.watched():
                engine.wait()
        if wants_progress(progress) and engine.rank == 0:
            watchers.append(stack.enter_context(closing(ProgressBar())))
        began = time.perf_counter()
        trained = fit_members(plan, looks, best, watchers, run_folder, some, described, workers)
        result = replace(with_preparation(trained, ready.preparation), plan=note)
        if run_folder is not None and run_folder.finish:
            finish_run(run_folder, result, batches, time.perf_counter() - began)
        return result


def _run_folder(
    folder: str | os.PathLike[str] | RunFolder | None, resume: bool, preparation: Preparation | None
) -> RunFolder | None:
    """Where the run is kept; what was learned of the data's units and names is a part of what it is about."""
    chosen = folder if isinstance(folder, RunFolder) or folder is None else RunFolder(folder, resume=resume)
    if chosen is None or preparation is None:
        return chosen
    return chosen.about(preparation=sha256_of(json.dumps(preparation.as_json(), sort_keys=True)))


def _module(net: nn.Module | Saved) -> nn.Module:
    return net.model if isinstance(net, Saved) else net


def _require_known(settings: Mapping[str, Any]) -> None:
    """Refuse a misspelt keyword with the nearest of ``fit``'s own and the method's settings."""
    own = [name for name, kind in inspect.signature(fit).parameters.items() if kind.kind is not kind.VAR_KEYWORD]
    allowed = {*own, *Method.settings()}
    for key in settings:
        if key not in allowed:
            raise SettingError(f"fit has no setting '{key}'; {nearest(key, allowed)}")


def _require_kinds(net: Any, devices: Any, callbacks: Any, watch: Any, early_stopping: Any) -> None:
    """Refuse what cannot be meant before any work."""
    if not isinstance(net, nn.Module | Saved):
        raise NetworkError(f"net is of type {type(net).__name__}; give an nn.Module (`build_model` makes one by name)")
    if not isinstance(devices, Devices | int) or isinstance(devices, bool):
        raise SettingError(f"devices = {devices!r}; give a whole number, or Devices(accelerator=..., devices=...)")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise SettingError(f"a callback is of type {type(callback).__name__}; derive it from bayeswell.Callback")
    if watch is not None and not callable(watch):
        raise SettingError(f"watch = {watch!r}; give a function of the record of an epoch")
    if early_stopping is not None and not isinstance(early_stopping, KeepBest | int):
        raise SettingError(f"early_stopping = {early_stopping!r}; give a number of epochs, or a KeepBest")


class _Watch(Callback):
    """A plain function as a callback."""

    every_step = False

    def __init__(self, function: Watcher) -> None:
        self.function = function

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        self.function(record)
