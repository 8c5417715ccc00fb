"""Training of one member, and of all members of an ensemble or all chains of a sampler."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import MissingExtra, SettingError, check_integer
from ..core.protocols import EMPIRICAL, LOG_PROB, POINT, Likelihood, Progress
from ..core.random import derive_seed, make_generator
from ..methods import Method, TrainState, build
from ..nn import FROZEN, BayesianModule, trained_params
from ..posteriors import Empirical, Mixture
from ..tables import Preparation
from .as_given import use_as_given
from .callbacks import CSVLog, KeepBest, ProgressBar
from .check import check_before_training
from .checkpoint import Checkpointer, RunFolder, stop_signals
from .data import Data
from .devices import Devices, Engine, device_of
from .finalize import finalize
from .history import History
from .loop import Callback, Run, StepOptions, least_examples, train

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
    sampler_temperature: float | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that decides a fit; ``fit`` describes the fields that are its arguments.

    Args:
        net: a network, or the ``BayesianModule`` whose training continues.
        epochs: of all trainings, with those of ``start``.
        preparation: what was done to the data; None if nothing.
        start: states of members that continue, and their ``histories``.
        note: one line about members and epochs that a budget chose.
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
    preparation: Preparation | None = None
    start: Sequence[Mapping[str, Any]] = ()
    histories: Sequence[History] = ()
    note: str = ""
    early_stopping: KeepBest | int | None = None
    folder: RunFolder | None = None
    resume: bool = False
    callbacks: Sequence[Callback] = ()
    progress: bool = False
    workers: int = 1
    devices: Devices = field(default_factory=Devices)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field: Any = object.__setattr__
        if self.folder is not None and not isinstance(self.folder, RunFolder):
            set_field(self, "folder", RunFolder(self.folder))
        if self.early_stopping is not None and not isinstance(self.early_stopping, KeepBest):
            set_field(self, "early_stopping", KeepBest(patience=self.early_stopping))
        if self.early_stopping is not None and self.method.averaging is not None:
            does = f"method '{self.method.name}' averages or samples"
            raise SettingError(f"`early_stopping` keeps the weights of one epoch, but {does}; use 'bbb' or 'map'")
        if self.early_stopping is not None and self.validation is None:
            raise SettingError("`early_stopping` needs `validation` data")
        if self.resume and self.folder is None:
            raise SettingError("`resume` = True needs the `folder` of the run")
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise SettingError(f"fit: `callbacks` must be objects of classes derived from Callback, got {callback}")
        other = "devices" if self.devices.devices > 1 else "callbacks" if self.callbacks else ""
        if check_integer("fit", "workers", self.workers) > 1 and other:
            raise SettingError(f"`workers` = {self.workers} trains members in other processes, which take no `{other}`")


def train_members(plan: Plan, engine: Engine) -> list[Member]:
    """Train all members, ``plan.workers`` at a time; the results do not depend on their number."""
    count = plan.method.members
    if plan.workers == 1 or count == 1:
        return [train_member(plan, member, engine) for member in range(count)]
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MissingExtra(f"`workers` = {plan.workers} needs joblib: pip install joblib") from error
    tasks = (delayed(_train_in_process)(plan, member, torch.get_num_threads()) for member in range(count))
    found: list[Member] = Parallel(n_jobs=min(plan.workers, count), backend="loky")(tasks)
    return found


def _train_in_process(plan: Plan, member: int, threads: int) -> Member:
    torch.set_num_threads(threads)  # that of the parent, for the same rounding
    return train_member(plan, member, Engine(plan.devices))


def train_member(plan: Plan, member: int, engine: Engine) -> Member:
    """Train one member from its start or its checkpoint."""
    seed = derive_seed(plan.seed, "member", member)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global", engine.rank))
        state = start_member(plan, member, seed, engine)
        if member == 0:
            check_before_training(state, plan.data, plan.validation, trains=plan.epochs > 0)
        run = _run(plan, state, member, seed, engine)
        if plan.epochs == 0:
            use_as_given(state, (engine.place((batch.inputs, batch.targets)) for batch in plan.data.epoch(seed)))
        if plan.folder is None:
            train(run)
        else:
            _train_with_checkpoints(run, plan, plan.folder)
        training = state.state_dict()
        model = finalize(state, plan.data, seed, engine)
    return Member(
        model,
        state.model,
        state.likelihood,
        run.history,
        training,
        state.temperature,
        getattr(state.optimizer, "measured_temperature", lambda: None)(),
        # An automatic temperature is so low that minibatch noise always exceeds it.
        getattr(state.optimizer, "warnings", list)() if plan.method.temperature != "auto" else (),
    )


def start_member(plan: Plan, member: int, seed: int, engine: Engine) -> TrainState:
    """Return the state of a member before its first step."""
    net = plan.net if engine.device.type == "cpu" else copy.deepcopy(plan.net).to(engine.device)
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
        state.progress = Progress(state.progress.step, total, 0, plan.data.batches)
    return state


def step_options(plan: Plan, state: TrainState, seed: int, engine: Engine) -> StepOptions:
    """Return what the steps of a member have in common; processes that share a step draw different noise."""
    noise = None if engine.ranks == 1 else make_generator(derive_seed(seed, "noise", engine.rank), engine.device)
    share, least = plan.data.batches / plan.data.shown, least_examples(state.model.net)
    return StepOptions(engine, plan.method.accumulate, least, share, noise)


def _run(plan: Plan, state: TrainState, member: int, seed: int, engine: Engine) -> Run:
    callbacks: list[Callback] = [ProgressBar()] if plan.progress and engine.rank == 0 else []
    # Before the user's callbacks, which may change the weights that were scored.
    callbacks += [copy.deepcopy(plan.early_stopping)] if isinstance(plan.early_stopping, KeepBest) else []
    history = History(list(plan.histories[member].epochs)) if plan.histories else History()
    return Run(
        state,
        plan.data,
        plan.epochs,
        seed,
        step_options(plan, state, seed, engine),
        [*callbacks, *plan.callbacks],
        plan.validation,
        member,
        plan.method.members,
        history,
    )


def _train_with_checkpoints(run: Run, plan: Plan, folder: RunFolder) -> None:
    with stop_signals() as signals:
        log, checkpointer = CSVLog(folder.metrics(run.member)), Checkpointer(folder, plan.settings, signals)
        run.callbacks = [*run.callbacks, log, checkpointer]
        saved = folder.load(run.member, plan.settings) if plan.resume else None
        if saved is not None:
            run.load_state_dict(saved)
        train(run)


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
    # Trained parameters without a posterior, and buffers: they differ between members.
    if model.selection.other_params == FROZEN:
        return {}
    saved = model.net.state_dict()
    buffers = {name: buffer for name, buffer in model.net.named_buffers() if name in saved}
    return {name: tensor.detach() for name, tensor in {**trained_params(model.net), **buffers}.items()}


def _networks(model: BayesianModule, members: int) -> list[dict[str, Tensor]]:
    # All networks of a set, one of a point, else draws.
    posterior, provides = model.posterior, model.posterior.provides
    if isinstance(posterior, Empirical):
        found = [posterior.network(index) for index in range(posterior.num_networks)]
    else:
        count = 1 if POINT in provides else math.ceil(DRAWS / members)
        found = list(posterior.draws(count, make_generator(0, device_of(model))))
    return [{**_extras(model), **network} for network in found]
