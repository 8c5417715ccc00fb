"""Members trained one after the other, gathered into one posterior, and what the result says of itself."""

from __future__ import annotations

import copy
import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..batches import Columns
from ..errors import BayeswellWarning, NetworkError, VerdictWarning
from ..lifting import BayesianModule, Where
from ..methods import Assembly, Method, ResolvedMethod, assemble
from ..native import memory
from ..nested import joined
from ..outputs import Output
from ..random import derive_seed, make_generator
from ..registry import label_of
from ..types import BANK, MIXTURE, Progress
from .as_given import take_as_given
from .beginning import Beginning, beginning, end_state
from .chains import away_from, disagreement, function_space_report
from .checking import Trial
from .data import Batch, Batches, as_batches
from .early_stopping import KeepBest
from .engine import Devices, Engine
from .examples import dtype_of, first_examples
from .finalize import final_model, one_pass
from .helpers import Helpers, Replay, helpers
from .looks import Looks
from .loop import diverged, train
from .members import Contribution, contribution, gather, mean_likelihood
from .records import History
from .result import Result
from .run import Callback, Run
from .run_folder import Checkpointer, MetricsLog, RunFolder
from .signals import watched_signals
from .streams import Streams, own_global_stream
from .verdicts import FinalELBO, Note, Trust
from .verdicts.conclude import Ended, Examples, conclude, how_many

_HARDLY_MOVED = 0.1
_LEAST_DRAWS = 4
_LOOKED_AT = 64


@dataclass(frozen=True)
class Plan:
    """What every member's run is made from."""

    start: Beginning
    batches: Batches
    epochs: int
    seed: int
    where: Where
    accumulate: int
    engine: Engine
    output: Output | None = None

    def _assembled(self, member: int, parts: ResolvedMethod) -> tuple[Assembly, Streams]:
        """The parts before the first step, and the random streams they were made with."""
        streams = Streams(derive_seed(self.seed, "member", member), self.engine.rank, self.engine.device)
        streams.begin()
        assembly = assemble(
            parts, self.start.on(self.engine.device), self.start.likelihood,
            dataset_size=self.batches.examples, batches=self.batches.count, epochs=self.epochs, where=self.where,
            generator=streams.stepper, member=member, output=self.output,
        )  # fmt: skip
        return assembly, streams

    def untrained(self, member: int) -> tuple[BayesianModule, Any]:
        """Model and likelihood before the first step, once more: nothing is said twice, no file of draws is opened."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assembly, _ = self._assembled(member, replace(self.start.parts, collector=None))
        return assembly.model, assembly.likelihood

    def begin(self, member: int, callbacks: Sequence[Callback]) -> Run:
        """A run at its first step. Torch's global stream must be the run's own."""
        assembly, streams = self._assembled(member, self.start.parts)
        streams.part()
        return Run(
            assembly, self.batches, self.epochs, streams, self.engine, callbacks,
            member=member, members=self.start.method.members, accumulate=self.accumulate,
        )  # fmt: skip


def fit_members(
    plan: Plan, looks: Looks, best: KeepBest | None, watchers: list[Callback],
    folder: RunFolder | None, held_out: Examples | None, settings: Mapping[str, Any], workers: int,
) -> Result:  # fmt: skip
    """Train the members, going on where a checkpoint left off; other processes are ahead with some of them."""
    saved = folder.newest() if folder is not None and folder.resume else None
    finished = [] if saved is None else [Contribution.from_state(state) for state in saved["finished"]]
    waiting = range(len(finished), plan.start.method.members)
    try:
        with helpers(plan, looks, best, folder, settings, waiting, workers) as ahead:
            return _gathered(plan, looks, best, watchers, folder, held_out, saved, finished, ahead)
    finally:
        memory.release()  # no step will ask for it again


def _gathered(
    plan: Plan, looks: Looks, best: KeepBest | None, watchers: list[Callback],
    folder: RunFolder | None, held_out: Examples | None, saved: Mapping[str, Any] | None,
    finished: list[Contribution], ahead: Helpers,
) -> Result:  # fmt: skip
    """One member after the other, from where a checkpoint or a helper has left it."""
    left = [member.state_dict() for member in finished]
    log = [] if folder is None else [MetricsLog(folder)]
    method, seed, model, run, state = plan.start.method, plan.seed, None, None, None
    for member in range(len(finished), method.members):
        there = ahead.state_of(member) if saved is None and method.members > 1 else None
        with own_global_stream(), watched_signals(folder is not None) as signals:
            own = [] if best is None else [copy.deepcopy(best)]
            keeping = [] if folder is None else [Checkpointer(folder, signals, left)]
            told = [] if there is None else [Replay(there, [*watchers, *log])]
            run = plan.begin(member, [*own, *watchers, *log, *told, *keeping])
            start = run.assembly.model.std_ratio()
            if saved is not None:
                for earlier in finished:
                    earlier.require_fit(run.assembly.model, run.assembly.likelihood)
                run.load_state_dict(saved["run"])
                if folder is not None and folder.longer:
                    _go_on(run)
                saved = None
            elif there is not None:
                run.load_state_dict(there)
            elif plan.start.state is not None:
                run.load_state_dict(copy.deepcopy(plan.start.state))  # torch's optimizers would go on in the given one
                _go_on(run)
            with plan.engine.watched():
                history = train(run, looks)
            state = end_state(run) if method.members == 1 else None
            _warn_of_stds_that_stood_still(run, history, start)
        with own_global_stream():
            run.streams.begin()
            if plan.epochs == 0:
                take_as_given(run, one_pass(run), noise=plan.start.trained is None)
            model = _final_model(run)
        if method.members > 1:
            generator = make_generator(derive_seed(seed, "gather", member), plan.engine.device)
            finished.append(contribution(model, run.assembly.likelihood, history, method.members, generator))
            left.append(finished[-1].state_dict())
    assert model is not None
    assert run is not None
    histories = (run.history,) if method.members == 1 else tuple(member.history for member in finished)
    one = model if method.members == 1 else gather(model, finished)
    likelihood = mean_likelihood(run.assembly.likelihood, finished)
    with own_global_stream():
        elbo, trust = _judged(plan, run, one, likelihood, histories, held_out)
    for kind, line in [(BayeswellWarning, line) for line in trust.chain_warnings] + [
        (VerdictWarning, line) for line in trust.other_warnings
    ]:
        warnings.warn(f"method '{method.name}': {line}", kind, stacklevel=3)
    temperature = run.assembly.temperature
    if method.members > 1:
        temperature = statistics.fmean(history.epochs[-1].temperature for history in histories)
    return Result(
        one, likelihood, method, histories, seed, trust.chains, run.stopped, temperature, state, elbo, trust
    )  # fmt: skip


def _final_model(run: Run) -> BayesianModule:
    """The model that is kept; weights that are no network any more are training's fault, where there was any."""
    try:
        return final_model(run)
    except NetworkError as error:
        raise diverged(run, error) from error


def _judged(
    plan: Plan, run: Run, model: BayesianModule, likelihood: Any, histories: tuple[History, ...],
    held_out: Examples | None,
) -> tuple[FinalELBO | None, Trust]:  # fmt: skip
    """What the result says of itself: chains or members first, then all that can be measured at small cost."""
    method, samples, known = plan.start.method, run.assembly.samples, Trust()
    wanted = how_many(run.batches.examples, run.epochs, method.members)
    train = _some_examples(run, wanted)
    if samples and model.useful_draws(_LEAST_DRAWS * method.members) < _LEAST_DRAWS * method.members:
        note = f"fewer than {_LEAST_DRAWS} draws in a chain: whether it has converged cannot be told; train longer"
        known = Trust(notes=(Note("chains", note),))
    elif {BANK, MIXTURE} & model.posterior_part.provides and (samples or method.members > 1):
        some = first_examples(train.inputs, _LOOKED_AT)
        places = (some, away_from(some))
        if samples:
            reports = [function_space_report(model, method.members, place, likelihood) for place in places]
            known = Trust(chains=reports[0], chains_elsewhere=reports[1])
        else:
            known = Trust(members=disagreement(model, method.members, places, likelihood))
    temperature = run.assembly.temperature
    ended = Ended(
        model, likelihood, method.name, temperature, histories, run.batches.examples, samples, bool(run.stopped),
        lambda: plan.untrained(run.member),
    )  # fmt: skip
    return conclude(ended, train, held_out, known)


def _go_on(run: Run) -> None:
    """A run that had ended goes on to more epochs; say if that is not what a run planned so long would have done."""
    run.stopped = ""
    parts, batches, done = run.assembly, run.batches.count, run.step
    if parts.tempering is not None:
        parts.tempering.frozen = True
        note = f"temperature = 'auto' depends on the planned length: it stays at {parts.temperature:.3g} that was found"
        warnings.warn(
            f"{note}; a number gives the run that would have been planned so long", BayeswellWarning, stacklevel=5
        )
    for step in {0, done // 2, max(0, done - 1)}:
        then, now = (Progress(step, total, step % batches, batches) for total in (done, run.total_steps))
        for name, rate in (("rate", parts.rate), ("std_rate", parts.std_rate)):
            if done and rate is not None and rate.factor(then) != rate.factor(now):
                note = f"the {name} {label_of(rate)} depends on the planned length: this is not the run that would have"
                warnings.warn(
                    f"{note} been planned so long; {name} = 'constant' would be", BayeswellWarning, stacklevel=5
                )
                return


def fit_member(
    net: nn.Module, data: Any, method: str | Method, likelihood: Any, member: int, *, epochs: int = 20,
    batch_size: int | None = None, seed: int = 0, where: Where = "all", **settings: Any,
) -> BayesianModule:  # fmt: skip
    """One member of what ``fit`` with the same arguments would train, bit for bit, on its own."""
    start = beginning(net, method, likelihood, settings)
    batches = as_batches(data, batch_size, dtype_of(net), columns=Columns(net))
    Trial(net, start.likelihood, None).look_at(batches)
    plan = Plan(start, batches, epochs, seed, where, 1, Engine(Devices()))
    with own_global_stream():
        run = plan.begin(member, ())
        train(run)
        return final_model(run)


def _warn_of_stds_that_stood_still(run: Run, history: History, start: float) -> None:
    """Say at the end if the stds are where they began: such a network is a deterministic one in disguise."""
    end = history.epochs[-1].std_ratio if history.epochs else start
    if start > 0 and abs(math.log(max(end, 1e-30) / start)) < _HARDLY_MOVED:
        note = f"the stds have hardly moved: from {start:.3g} to {end:.3g} of the prior std"
        method = run.assembly.method
        raised = "std_lr" if method.std_lr else "lr of std_stepper" if method.std_stepper else "std_multiplier"
        warnings.warn(f"method '{method.name}': {note}; raise {raised} or train longer", BayeswellWarning, stacklevel=4)


def _some_examples(run: Run, count: int) -> Examples:
    """Training examples, always the same, on the run's device."""
    found: list[Batch] = []
    for batch in run.batches.weighted(0):
        found.append(batch)
        count -= len(batch[1])
        if count <= 0:
            break
    try:
        inputs, targets = joined([batch[0] for batch in found]), torch.cat([batch[1] for batch in found])
    except RuntimeError:  # batches that are each padded to a length of their own
        found = found[:1]
        inputs, targets = found[0][:2]
    given = [batch[2] for batch in found if batch[2] is not None]
    return Examples(*run.engine.placed((inputs, targets)), torch.cat(given) if given else None)
