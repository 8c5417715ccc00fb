"""Training of one member, and of all members of an ensemble or all chains of a sampler."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import MissingExtra
from ..core.protocols import EMPIRICAL, LOG_PROB, POINT, Likelihood
from ..core.random import derive_seed, make_generator
from ..methods import Method, TrainState, build
from ..nn import FROZEN, BayesianModule, trained_params
from ..posteriors import Empirical, Mixture
from .as_given import use_as_given
from .callbacks import Callback, CSVLog, KeepBest, ProgressBar
from .check import check_before_training
from .checkpoint import Checkpointer, RunFolder, StopSignals, stop_signals
from .data import Data
from .devices import Devices, Engine, device_of
from .finalize import finalize
from .history import History
from .loop import Run, StepOptions, least_examples, noise_generator, train
from .validation import validation_scores

DRAWS = 100
"""Networks kept of members whose distributions cannot be a mixture."""


@dataclass(frozen=True)
class Member:
    """A trained member: its final model, the model that was trained, and the ``state_dict`` of its training."""

    model: BayesianModule
    trained: BayesianModule
    likelihood: Likelihood
    history: History
    state: Mapping[str, Any]
    temperature: float
    sampler_temperature: float = math.nan
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that decides the training of all members.

    Args:
        net: a network, or the ``BayesianModule`` of a member that continues.
        start: states of members that continue, and their ``histories``.
        settings: fingerprint for checkpoints.
    """

    method: Method
    net: nn.Module
    likelihood: Any
    data: Data
    epochs: int
    seed: int
    validation: Data | None = None
    output: Any = None
    keep_best: KeepBest | None = None
    callbacks: Sequence[Callback] = ()
    progress: bool = False
    folder: RunFolder | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    start: Sequence[Mapping[str, Any]] = ()
    histories: Sequence[History] = ()


def train_members(plan: Plan, engine: Engine, devices: Devices, workers: int) -> list[Member]:
    """Train all members, ``workers`` at a time; the results do not depend on ``workers``."""
    count = plan.method.members
    if workers > 1 and count > 1:
        return _train_in_processes(plan, devices, min(workers, count))
    with stop_signals() as signals:
        return [train_member(plan, member, engine, signals) for member in range(count)]


def _train_in_processes(plan: Plan, devices: Devices, workers: int) -> list[Member]:
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MissingExtra(f"`workers` = {workers} needs joblib: pip install joblib") from error
    threads = torch.get_num_threads()
    tasks = (delayed(_train_in_process)(plan, member, devices, threads) for member in range(plan.method.members))
    found: list[Member] = Parallel(n_jobs=workers, backend="loky")(tasks)
    return found


def _train_in_process(plan: Plan, member: int, devices: Devices, threads: int) -> Member:
    torch.set_num_threads(threads)  # that of the parent, for the same rounding
    with stop_signals() as signals:
        return train_member(plan, member, Engine(devices), signals)


def train_member(plan: Plan, member: int, engine: Engine, signals: StopSignals) -> Member:
    """Train one member from its start or its checkpoint."""
    seed = derive_seed(plan.seed, "member", member)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global", engine.rank))
        state = _start(plan, member, seed, engine)
        if member == 0:
            check_before_training(state, plan.data, plan.validation, trains=plan.epochs > 0)
        run = _run(plan, state, member, seed, engine, signals)
        if plan.folder is not None and plan.resume:
            saved = plan.folder.load(member, plan.settings)
            if saved is not None:
                run.load_state_dict(saved)
        if plan.epochs == 0:
            use_as_given(state, (engine.place((batch.inputs, batch.targets)) for batch in plan.data.epoch(seed)))
        history = train(run)
        training = state.state_dict()
        model = finalize(state, plan.data, seed, engine)
    measured = getattr(state.optimizer, "measured_temperature", lambda: None)()
    # An automatic temperature is so low that minibatch noise always exceeds it.
    asked = plan.method.temperature != "auto"
    found: list[str] = getattr(state.optimizer, "warnings", list)() if asked else []
    sampler_temperature = math.nan if measured is None else float(measured)
    return Member(
        model, state.model, state.likelihood, history, training, state.temperature, sampler_temperature, tuple(found)
    )


def _start(plan: Plan, member: int, seed: int, engine: Engine) -> TrainState:
    net = plan.net
    if engine.device.type != "cpu":
        net = copy.deepcopy(net).to(engine.device)
    state = build(
        plan.method,
        net,
        plan.likelihood,
        dataset_size=plan.data.examples,
        batches=plan.data.batches,
        epochs=plan.epochs,
        generator=make_generator(derive_seed(seed, "noise"), engine.device),
        member=member,
        output=plan.output,
    )
    if plan.start:
        total = state.progress.total_steps
        state.load_state_dict(plan.start[member])
        state.progress = type(state.progress)(state.progress.step, total, 0, plan.data.batches)
    return state


def _run(plan: Plan, state: TrainState, member: int, seed: int, engine: Engine, signals: StopSignals) -> Run:
    callbacks: list[Callback] = [ProgressBar()] if plan.progress and engine.rank == 0 else []
    # Before the user's callbacks, which may change the weights that were scored.
    callbacks += [] if plan.keep_best is None else [copy.deepcopy(plan.keep_best)]
    callbacks += plan.callbacks
    if plan.folder is not None:
        callbacks += [CSVLog(plan.folder.metrics(member)), Checkpointer(plan.folder, plan.settings, signals)]
    options = StepOptions(
        engine,
        accumulate=plan.method.accumulate,
        least=least_examples(state.model.net),
        share=plan.data.batches / plan.data.shown,
        generator=noise_generator(seed, engine),
    )
    validate = None if plan.validation is None else validation_scores(plan.validation, engine, seed)
    history = History(list(plan.histories[member].epochs)) if plan.histories else History()
    return Run(state, plan.data, plan.epochs, seed, options, callbacks, validate, member, plan.method.members, history)


def combine(members: Sequence[Member]) -> tuple[BayesianModule, Likelihood]:
    """Return all members as one posterior: a set of networks, or a mixture of distributions.

    Learned noise is the mean over the members.
    """
    first = members[0]
    if len(members) == 1:
        return first.model, first.likelihood
    states = [member.likelihood.state_dict() for member in members]
    likelihood = copy.deepcopy(first.likelihood)
    likelihood.load_state_dict({name: _mean([state[name] for state in states]) for name in states[0]})
    provides = first.model.posterior.provides
    model = first.model
    if LOG_PROB in provides and not provides & {POINT, EMPIRICAL}:
        extras = {name: torch.stack([_extras(m.model)[name] for m in members]) for name in _extras(model)}
        return model.with_posterior(Mixture([m.model.posterior for m in members], extras)), likelihood
    networks = [network for member in members for network in _networks(member.model, len(members))]
    names = [name for name in networks[0] if name not in model.layout.slices and name in _extras(model)]
    return model.with_posterior(Empirical.from_networks(model.layout, networks, names)), likelihood


def _mean(values: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack(list(values))
    return stacked.mean(0) if stacked.is_floating_point() else stacked[0]


def _extras(model: BayesianModule) -> dict[str, Tensor]:
    """Trained parameters without a posterior, and buffers: they differ between members."""
    if model.selection.other_params == FROZEN:
        return {}
    saved = model.net.state_dict()
    buffers = {name: buffer for name, buffer in model.net.named_buffers() if name in saved}
    return {name: tensor.detach() for name, tensor in {**trained_params(model.net), **buffers}.items()}


def _networks(model: BayesianModule, members: int) -> list[dict[str, Tensor]]:
    """Return the networks of one member with its other tensors: all of a set, one of a point, else draws."""
    posterior, provides = model.posterior, model.posterior.provides
    if isinstance(posterior, Empirical):
        found = [posterior.network(index) for index in range(posterior.num_networks)]
    else:
        count = 1 if POINT in provides else math.ceil(DRAWS / members)
        found = list(posterior.draws(count, make_generator(0, device_of(model))))
    return [{**_extras(model), **network} for network in found]
