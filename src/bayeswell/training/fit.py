"""``fit``: train a network as a Bayesian one."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..core.errors import SettingError
from ..core.protocols import POINT
from ..methods import Method, find_method, within_budget
from .calibrating import calibrated_fit
from .callbacks import Callback, KeepBest, early_stopping, say, wants_progress
from .check import check_grad_mode
from .checkpoint import RunFolder
from .data import as_data, held_out
from .devices import Devices, Engine
from .fingerprint import fingerprint
from .members import Member, Plan, combine, train_members
from .options import FitOptions
from .preparing import Ready, initialized, prepare
from .result import Result, checked


def fit(
    net: Any,
    data: Any,
    method: str | Method | None = None,
    likelihood: Any = None,
    *,
    epochs: int = 20,
    batch_size: int | None = None,
    seed: int = 0,
    validation: Any = None,
    early_stopping: KeepBest | int | None = None,
    folder: RunFolder | str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    calibrate: bool | int | float = False,
    workers: int = 1,
    devices: Devices | int = 1,
    **settings: Any,
) -> Result:
    """Train a network as a Bayesian one; ``net`` itself does not change.

    Args:
        net: an ``nn.Module``, or a ``Result`` or loaded model. A result continues: with the same data, seed, constant
            schedule and a number as temperature this equals a longer run. ``prior="posterior"`` makes its posterior the
            prior of a new training (sequential Bayes).
        data: (inputs, targets) or (inputs, targets, weights) as tensors, arrays or data frames; columns by name; a
            Dataset, DataLoader or Hugging Face data set. A weight of 2 is the example met twice.
        method: a name or a ``Method``; None: "auto", or the result's own.
        likelihood: a name, ``{"name": ..., setting: value}``, an object, or a function of the outputs that returns a
            torch distribution; None: "categorical", or the result's own.
        epochs: passes over the data; 0 uses the network as it is ("map", "mc-dropout" and "laplace").
        batch_size: None: 100, or a fiftieth of small data but at least 16; a DataLoader keeps its own.
        seed: of all random numbers.
        validation: held-out data, scored after each epoch.
        early_stopping: a ``KeepBest``, or the number of epochs to wait for a better validation NLL.
        folder: of checkpoints, metrics and the trained model.
        resume: continue the run in ``folder``, if there is one, bit for bit.
        callbacks: objects of classes derived from ``Callback``.
        progress: show a progress bar; None: if stderr is a terminal.
        calibrate: choose a scale of the stds and a temperature of the likelihood on held-out data: ``validation``, a
            share of the data (0.1), or cross-fitting in so many folds (5); True chooses.
        workers: members trained at a time, each in a process of its own.
        devices: a number, or ``Devices``.
        settings: settings of the method (posterior, prior, temperature, optimizer, lr, where, ...), and ``augment``:
            (inputs, generator) -> inputs; ``target``: name of the target column; ``output``: a function of what the
            network returns; ``standardize``: scale inputs and real targets.
    """
    options = FitOptions.from_keywords(
        settings, epochs=epochs, batch_size=batch_size, seed=seed, validation=validation,
        early_stopping=early_stopping, folder=folder, resume=resume, callbacks=callbacks, progress=progress,
        calibrate=calibrate, workers=workers, devices=devices,
    )  # fmt: skip
    check_grad_mode()
    ready = prepare(net, data, likelihood, options)
    if calibrate is not False:
        again = functools.partial(_fit, ready, method)
        return calibrated_fit(again, ready, options)
    return _fit(ready, method, ready.data, options)


def _fit(ready: Ready, method: str | Method | None, data: Any, options: FitOptions) -> Result:
    """Train on prepared data."""
    chosen = _method(ready, method, options)
    net, dtype = ready.module, ready.dtype
    columns = ready.columns(options.target)
    batches = as_data(data, columns, dtype, batch_size=options.batch_size, augment=options.augment)
    validation = None if ready.validation is None else held_out(ready.validation, columns, dtype)
    net = initialized(net, batches.first().inputs, options.seed)
    budget = within_budget(chosen, batches.examples, options.epochs, ready.predicts_classes, options.settings)
    chosen, epochs = budget.method, budget.epochs
    averages = chosen.averaging is not None
    previous = ready.previous if ready.continues(chosen) else None
    plan = Plan(
        method=chosen,
        net=net,
        likelihood=ready.likelihood,
        data=batches,
        epochs=epochs + (len(previous.histories[0].epochs) if previous else 0),
        seed=options.seed,
        validation=validation,
        output=options.output,
        keep_best=early_stopping(options.early_stopping, validates=validation is not None, averages=averages),
        callbacks=options.callbacks,
        progress=wants_progress(options.progress),
        folder=options.folder,
        resume=options.resume,
        start=previous.states if previous else (),
        histories=previous.histories if previous else (),
    )
    if budget.note and options.progress is not False:
        say(f"{budget.note}\n", sys.stderr)
    engine = Engine(options.devices)
    if options.folder is not None:
        plan = dataclasses.replace(plan, settings=_settings(plan, options, engine))
        if not plan.resume and engine.rank == 0:
            options.folder.check_new()
    members = train_members(plan, engine, options.devices, options.workers)
    result = _result(plan, ready, members, budget.note)
    if options.folder is not None and engine.rank == 0:
        result.save(Path(options.folder.path) / "model")
    return result


def _method(ready: Ready, method: str | Method | None, options: FitOptions) -> Method:
    if method is None:
        found = ready.method or find_method("auto")
    else:
        found = find_method(method) if isinstance(method, str) else method
    if not isinstance(found, Method):
        raise SettingError(f"fit: `method` must be a name or a Method, got {method!r}")
    found = found.changed(**options.settings) if options.settings else found
    if options.epochs == 0:
        _check_no_epochs(found)
    return found


def _check_no_epochs(method: Method) -> None:
    reasons = {
        f"posterior '{method.posterior.name}' gets its spread in training": POINT not in method.posterior.provides,
        f"the draws of '{method.optimizer.name}' are its steps": method.optimizer.samples,
        "it averages along the training": method.averaging is not None,
        "its members differ by their training": method.members > 1,
    }
    for reason, holds in reasons.items():
        if holds:
            raise SettingError(f"epochs=0 uses the network as it is, but method '{method.name}' cannot: {reason}; use "
                               "'laplace', 'mc-dropout' or 'map', or train")  # fmt: skip


def _settings(plan: Plan, options: FitOptions, engine: Engine) -> dict[str, Any]:
    """Everything that decides the numbers of a run, for its checkpoints."""
    data = {"training": plan.data, "validation": plan.validation}
    settings: dict[str, Any] = fingerprint({
        "method": plan.method, "likelihood": plan.likelihood, "network": plan.net, "epochs": plan.epochs,
        "seed": options.seed, "batch_size": options.batch_size, "augment": options.augment, "output": options.output,
        "early_stopping": plan.keep_best, "precision": options.devices.precision, "processes": engine.ranks,
        "threads": torch.get_num_threads(),
        "data": {name: None if one is None else one.describe() for name, one in data.items()},
    })  # fmt: skip
    return settings


def _result(plan: Plan, ready: Ready, members: Sequence[Member], note: str) -> Result:
    model, likelihood = combine(members)
    temperatures = [member.temperature for member in members]
    result = Result(
        model,
        likelihood,
        preparation=ready.preparation,
        method=plan.method,
        histories=tuple(member.history for member in members),
        seed=plan.seed,
        temperature=sum(temperatures) / len(members),
        plan=note,
        states=tuple(member.state for member in members),
        trained=members[0].trained,
    )
    return checked(result, plan.data, plan.epochs, members)
