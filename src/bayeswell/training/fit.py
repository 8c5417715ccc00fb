"""``fit``: train a network as a Bayesian one."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from ..core.errors import DataError, SettingError, check_integer, nearest
from ..core.protocols import POINT, Inputs, Likelihood
from ..core.pytree import tree_index, tree_map
from ..core.random import derive_seed
from ..likelihoods import LIKELIHOODS
from ..methods import Method, find_method, within_budget
from ..nn import BayesianModule, evaluation_mode, unpack_inputs
from ..prediction import Predictor
from ..tables import CLASSES, REAL, Preparation, is_frame
from .calibrating import calibrated_fit
from .callbacks import KeepBest, say, wants_progress
from .check import check_grad_mode, check_network
from .checkpoint import RunFolder
from .data import Columns, as_data, held_out
from .devices import Devices, Engine
from .fingerprint import fingerprint
from .loop import Callback
from .members import Plan, train_members
from .result import Result, make_result

EXTRA: dict[str, Any] = {"augment": None, "target": None, "output": None, "standardize": False}
"""Keywords of ``fit`` that are no settings of the method."""


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
    check_grad_mode()
    plan = make_plan(
        net, data, method, likelihood, settings, validation=validation, epochs=epochs, batch_size=batch_size, seed=seed,
        early_stopping=early_stopping, folder=folder, resume=resume, progress=wants_progress(progress),
        callbacks=(callbacks,) if isinstance(callbacks, Callback) else tuple(callbacks), workers=workers,
        devices=devices if isinstance(devices, Devices) else Devices(devices=check_integer("fit", "devices", devices)),
    )  # fmt: skip
    if plan.note and plan.progress:
        say(f"{plan.note}\n", sys.stderr)
    return train_plan(plan) if calibrate is False else calibrated_fit(train_plan, plan, calibrate)


def train_plan(plan: Plan) -> Result:
    """Train all members of a plan, in its folder if it has one."""
    engine, folder = Engine(plan.devices), plan.folder
    if folder is None:
        return make_result(plan, train_members(plan, engine))
    plan = dataclasses.replace(plan, settings=_deciding_settings(plan, engine))
    if not plan.resume and engine.rank == 0:
        folder.check_new()
    result = make_result(plan, train_members(plan, engine))
    if engine.rank == 0:
        result.save(Path(folder.path) / "model")
    return result


def make_plan(
    net: Any,
    data: Any,
    method: str | Method | None,
    likelihood: Any,
    settings: Mapping[str, Any],
    *,
    validation: Any = None,
    epochs: int = 1,
    batch_size: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Plan:
    """Return a plan from arguments of ``fit``; ``options`` are fields of the plan.

    What is done to the data is learned from the training data; a trained model keeps what it has learned.
    """
    epochs, seed = check_integer("fit", "epochs", epochs, 0), check_integer("fit", "seed", seed, -(2**63))
    augment, target, output, standardize = (settings.get(name, default) for name, default in EXTRA.items())
    changes = {name: value for name, value in settings.items() if name not in EXTRA}
    previous: Any = net if isinstance(net, Predictor) else None
    own_method = getattr(previous, "method", None)
    chosen = _method((own_method or "auto") if method is None else method, changes, epochs)
    module, sequential = net, changes.get("prior") == "posterior"
    if previous is not None:
        module = previous.model if sequential else getattr(previous, "trained", None) or previous.model
        likelihood = previous.likelihood if likelihood is None else likelihood
    check_network(module)
    if hasattr(likelihood, "__len__") and not isinstance(likelihood, str | Mapping):
        raise SettingError(f"`likelihood` of type {type(likelihood).__name__}; data are one pair: (inputs, targets)")
    part = LIKELIHOODS.resolve("categorical" if likelihood is None else likelihood)
    preparation = None if previous is None else previous.preparation
    if standardize and epochs == 0:
        raise SettingError("`standardize` needs training: with epochs=0 the network is used as it is")
    if preparation is None or standardize:
        preparation = _learned(module, data, part, standardize)
        if preparation is not None and preparation.target_scaling is not None:
            part = part.for_scaled_targets(preparation.target_scaling.std.flatten().tolist())
    if preparation is not None:
        data = _prepared(preparation, data, "data")
        validation = None if validation is None else _prepared(preparation, validation, "validation")
    dtype = _dtype(module)
    columns = Columns(module.net if isinstance(module, BayesianModule) else module, target)
    batches = as_data(data, columns, dtype, batch_size=batch_size, augment=augment)
    if any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters()):
        module = _initialized(module, batches.first().inputs, seed)
    chosen, epochs, note = within_budget(chosen, batches.examples, epochs, part.supports("probabilities"), changes)
    continues = chosen == own_method and not sequential and bool(getattr(previous, "states", ()))
    return Plan(
        method=chosen,
        net=module,
        likelihood=part,
        data=batches,
        epochs=epochs + (len(previous.histories[0].epochs) if continues else 0),
        seed=seed,
        validation=None if validation is None else held_out(validation, columns, dtype),
        output=output,
        preparation=preparation,
        start=previous.states if continues else (),
        histories=previous.histories if continues else (),
        note=note,
        **options,
    )


def _method(choice: str | Method, changes: Mapping[str, Any], epochs: int) -> Method:
    for name in changes:
        if name not in Method.settings():
            allowed = [*EXTRA, *Method.settings(), *inspect.signature(fit).parameters]
            raise SettingError(f"fit has no setting '{name}'; {nearest(name, allowed)}")
    method = find_method(choice)
    method = method.changed(**changes) if changes else method
    reasons = {
        f"posterior '{method.posterior.name}' gets its spread in training": POINT not in method.posterior.provides,
        f"the draws of '{method.optimizer.name}' are its steps": method.optimizer.samples,
        "it averages along the training": method.averaging is not None,
        "its members differ by their training": method.members > 1,
    }
    for reason, holds in reasons.items():
        if holds and epochs == 0:
            raise SettingError(f"epochs=0 uses the network as it is, but method '{method.name}' cannot: {reason}")
    return method


def _learned(net: nn.Module, data: Any, likelihood: Likelihood, standardize: bool) -> Preparation | None:
    if not isinstance(standardize, bool):
        raise SettingError(f"fit: `standardize` must be True or False, got {standardize!r}")
    if standardize and isinstance(net, BayesianModule):
        raise SettingError("`standardize` belongs to the first training: the model was trained on other numbers")
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        if standardize or is_frame(data):
            what = "`standardize` works on" if standardize else "a data frame has no targets; give"
            raise DataError(f"{what} (inputs, targets) as tensors, arrays or data frames")
        return None
    if data[1] is None:
        raise DataError("the targets are None; give one target for each input")
    if isinstance(data[1], Mapping | tuple) and not standardize:
        return None
    kind = None
    if likelihood.supports("probabilities"):
        kind = CLASSES
    elif likelihood.supports("mean_and_variance") and not likelihood.is_discrete:
        kind = REAL
    dtype = _dtype(net) or torch.get_default_dtype()
    found = Preparation.fit(
        data[0], data[1], standardize=standardize, kind=kind, scale_targets=kind == REAL, dtype=dtype
    )
    used = (found.columns, found.input_scaling, found.target_scaling, found.class_names)
    return None if all(part is None for part in used) else found


def _prepared(preparation: Preparation, data: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(f"{name} of type {type(data).__name__}; give (inputs, targets) like the training data")
    return (preparation.inputs(data[0]), preparation.targets(data[1]), *data[2:])


def _dtype(net: nn.Module) -> torch.dtype | None:
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), None)


def _initialized(net: nn.Module, inputs: Inputs, seed: int) -> nn.Module:
    # Lazy layers get their shapes from one call with two inputs.
    net = copy.deepcopy(net)
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    args, kwargs = unpack_inputs(tree_map(lambda tensor: tensor.to(device), tree_index(inputs, slice(2))))
    with torch.random.fork_rng(), torch.no_grad(), evaluation_mode(net):
        torch.manual_seed(derive_seed(seed, "lazy"))
        net(*args, **kwargs)
    return net


def _deciding_settings(plan: Plan, engine: Engine) -> dict[str, Any]:
    data = {"training": plan.data, "validation": plan.validation}
    settings: dict[str, Any] = fingerprint({
        "method": plan.method, "likelihood": plan.likelihood, "network": plan.net, "epochs": plan.epochs,
        "seed": plan.seed, "output": plan.output, "early_stopping": plan.early_stopping,
        "precision": plan.devices.precision, "processes": engine.ranks, "threads": torch.get_num_threads(),
        "data": {name: None if one is None else one.describe() for name, one in data.items()},
    })  # fmt: skip
    return settings
