"""The training loop: one step, all epochs, and the end of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import BayeswellError, DataError, DivergenceError, FileError
from ..core.protocols import BatchContext, Terms
from ..core.random import derive_seed
from ..methods import TrainState
from .data import Batch, Data, pieces
from .devices import Devices, Engine
from .history import EpochRecord, History, Sums
from .validation import validation_scores


@dataclass(frozen=True)
class StepOptions:
    """How a batch becomes one step.

    Args:
        engine: devices.
        accumulate: pieces whose gradients are summed: the same step in less memory.
        least: examples that the network needs at once (2 with BatchNorm).
        share: weight of one example's NLL in the step, M / N; None: the objective uses ``progress``.
        generator: noise of this process, where several share a step; None: the generator of the state.
    """

    engine: Engine
    accumulate: int = 1
    least: int = 1
    share: float | None = None
    generator: torch.Generator | None = None


class Callback:
    """Base class of hooks; override what is needed.

    A callback that keeps anything between calls returns it from ``state_dict`` (tensors and plain data), so that a
    resumed run continues exactly. ``run.state`` is the ``TrainState``; ``run.stop(reason)`` ends training after the
    epoch.
    """

    def start(self, run: Run) -> None:
        """Called before the first step, also of a resumed run."""

    def after_step(self, run: Run) -> None:
        """Called after each step; ``run.state.progress.step`` counts it."""

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        """Called after each epoch and its validation."""

    def end(self, run: Run) -> None:
        """Called after the last epoch."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


@dataclass
class Run:
    """Training of one member; ``sums`` are those of the present epoch."""

    state: TrainState
    data: Data
    epochs: int
    seed: int
    options: StepOptions
    callbacks: Sequence[Callback] = ()
    validation: Data | None = None
    member: int = 0
    members: int = 1
    history: History = field(default_factory=History)
    sums: Sums = field(default_factory=Sums)

    @property
    def engine(self) -> Engine:
        return self.options.engine

    def stop(self, reason: str) -> None:
        """End training after this epoch."""
        self.history.stopped = reason

    def state_dict(self) -> dict[str, Any]:
        """Everything from which the run continues bit for bit; each process must call it."""
        noise, gather = self.options.generator or self.state.generator, self.engine.gather
        return {
            "state": self.state.state_dict(),
            "history": self.history.state_dict(),
            "sums": gather(torch.tensor(astuple(self.sums), dtype=torch.float64)),
            "noise": gather(noise.get_state()),
            "global": gather(torch.get_rng_state()),
            "callbacks": {name: callback.state_dict() for name, callback in self._named_callbacks().items()},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        rank, named = self.engine.rank, self._named_callbacks()
        for name, own in saved["callbacks"].items():
            if name in named:
                named[name].load_state_dict(own)
            elif own:
                raise FileError(f"the checkpoint is of a run with the callback {name}, which this run does not have")
        self.state.load_state_dict(saved["state"])
        self.history = History.from_state(saved["history"])
        self.sums = Sums(*saved["sums"][rank].tolist())
        # Clones: torch's generators take no view into a larger tensor.
        (self.options.generator or self.state.generator).set_state(saved["noise"][rank].clone())
        torch.set_rng_state(saved["global"][rank].clone())

    def _named_callbacks(self) -> dict[str, Callback]:
        named: dict[str, Callback] = {}
        for callback in self.callbacks:
            kind = type(callback).__qualname__
            named[f"{kind} {sum(name.rpartition(' ')[0] == kind for name in named)}"] = callback
        return named


def train(run: Run) -> History:
    """Train from where the run stands to its end."""
    state, options = run.state, run.options
    for callback in run.callbacks:
        callback.start(run)
    each_step = [callback for callback in run.callbacks if type(callback).after_step is not Callback.after_step]
    while state.epoch < run.epochs and (state.progress.batch or not run.history.stopped):
        began = time.monotonic()
        state.model.train()
        for batch in run.data.epoch(derive_seed(run.seed, "order", state.epoch), state.progress.batch):
            terms = train_step(state, batch, options)
            if terms is not None:
                _count(run, terms, batch)
            for callback in each_step:
                callback.after_step(run)
        record = _close_epoch(run, began)
        for callback in run.callbacks:
            callback.after_epoch(run, record)
        if options.engine.sum([float(bool(run.history.stopped))])[0] > 0:
            run.history.stopped = run.history.stopped or "another process stopped"
    for callback in run.callbacks:
        callback.end(run)
    return run.history


def train_step(state: TrainState, batch: Sequence[Any], options: StepOptions | None = None) -> Terms | None:
    """Take one optimizer step on (inputs, targets[, weights]); None if a sampler returned to a finite state."""
    options = StepOptions(Engine(Devices("cpu"))) if options is None else options
    batch, progress, tuned = Batch(*batch), state.progress, state.auto_tuned
    state.before_step(batch.targets)
    terms, moves = None, True
    try:
        terms = _gradient(state, batch, options)
        if tuned is not None:
            moves = tuned.before_step(terms.total.item(), lambda: _gradient_again(state, batch, options))
        if moves:
            _check_gradients(state)
            state.after_backward()
    except DivergenceError as error:
        if tuned is None or not tuned.rollback():
            raise DivergenceError(f"step {progress.step}: {error}") from error
        terms, moves = None, False
    except DataError as error:
        raise DataError(f"step {progress.step}: {error}") from None
    if moves:
        state.optimizer.step()
    if state.averager is not None and state.may_sample(progress):
        state.averager.after_step(state.model, progress)
    state.advance()
    return terms


def _gradient(state: TrainState, batch: Batch, options: StepOptions) -> Terms:
    engine, found = options.engine, []
    noise = options.generator or state.generator
    state.optimizer.zero_grad(set_to_none=True)
    if engine.ranks == 1 and options.accumulate == 1:
        parts = [(batch, None if options.share is None else len(batch.targets) * options.share, 1.0)]
    else:
        parts = _shares(batch, options)
    for part, nll_share, kl_share in parts:
        inputs, targets, weight = part if engine.device.type == "cpu" else engine.place(tuple(part))
        context = BatchContext(inputs, targets, state.likelihood, weight, state.progress, noise, nll_share, kl_share)
        try:
            with engine.precision:
                terms = state.objective.step(state.model, context)
        except ValueError as error:
            raise _explained(error, len(targets)) from error
        terms.total.backward()
        found.append(Terms(terms.total.detach(), terms.nll, terms.kl, terms.outputs))
    if engine.ranks > 1:
        engine.average_gradients(p for group in state.optimizer.param_groups for p in group["params"])
    return found[0] if len(found) == 1 else _joined(found)


def _shares(batch: Batch, options: StepOptions) -> list[tuple[Batch, float | None, float]]:
    """Return the pieces of this process with the shares of NLL and KL.

    With n examples in a piece, R processes and A pieces the NLL counts R n / N of the epoch's M batches and the KL
    1 / A: summed over pieces and averaged over processes this is the objective of the batch, whatever the sizes.
    """
    own, counts = _own_part(batch, options)
    share = (1 / len(batch.targets) if options.share is None else options.share) * options.engine.ranks * counts
    parts = list(pieces(own, options.accumulate, options.least))
    return [(part, len(part.targets) * share, 1 / len(parts)) for part in parts]


def _own_part(batch: Batch, options: StepOptions) -> tuple[Batch, bool]:
    # A process without examples borrows some for its KL; they do not count.
    size, rank = len(batch.targets), options.engine.rank
    ranks = max(1, min(options.engine.ranks, size // options.least))
    if rank < ranks:
        return batch.rows(slice(size * rank // ranks, size * (rank + 1) // ranks)), True
    return batch.rows(slice(0, options.least)), False


def _joined(found: Sequence[Terms]) -> Terms:
    outputs = [terms.outputs for terms in found]
    same = all(isinstance(one, Tensor) for one in outputs)
    total = torch.stack([terms.total for terms in found]).sum()
    nll, kl = (torch.stack([getattr(terms, name) for terms in found]).mean() for name in ("nll", "kl"))
    return Terms(total, nll, kl, torch.cat(outputs) if same else None)


def _gradient_again(state: TrainState, batch: Batch, options: StepOptions) -> None:
    # With the noise of the next step; streams and buffers are restored.
    generator = options.generator or state.generator
    streams = generator.get_state(), torch.get_rng_state()
    buffers = {name: buffer.clone() for name, buffer in state.model.named_buffers()}
    _gradient(state, batch, options)
    generator.set_state(streams[0])
    torch.set_rng_state(streams[1])
    with torch.no_grad():
        for name, buffer in state.model.named_buffers():
            buffer.copy_(buffers[name])


def _check_gradients(state: TrainState) -> None:
    gradients = [p.grad for group in state.optimizer.param_groups for p in group["params"] if p.grad is not None]
    norms = torch._foreach_norm(gradients)
    if gradients and not math.isfinite(torch.stack(norms).sum().item()):
        named = {**dict(state.model.named_parameters()), **dict(state.likelihood.named_parameters())}
        bad = next(g for g, norm in zip(gradients, norms, strict=True) if not math.isfinite(norm))
        name = next((name for name, p in named.items() if p.grad is bad), "a parameter")
        raise DivergenceError(f"the gradient of '{name}' is not finite; lower the learning rate or set clip_norm")


def _explained(error: ValueError, size: int) -> BayeswellError:
    if isinstance(error, BayeswellError) or "more than 1 value per channel" not in str(error):
        raise error
    return DataError(f"BatchNorm cannot normalize a batch of {size} example; use another batch_size or drop_last=True")


def _count(run: Run, terms: Terms, batch: Batch) -> None:
    sums, state, counts = run.sums, run.state, True
    if run.options.engine.ranks > 1:
        batch, counts = _own_part(batch, run.options)
    weight, size = batch.sample_weight, len(batch.targets) * counts
    sums.total += terms.total.item()
    sums.kl += terms.kl.item()
    sums.nll += size * terms.nll.item()
    sums.examples += size if weight is None else counts * float(weight.sum())
    if counts and (state.auto_temperature is not None or state.method.plateau):
        sums.squares += _squared_error(run, terms.outputs, batch.targets)


@torch.no_grad()
def _squared_error(run: Run, outputs: Any, targets: Tensor) -> float:
    # Averaged over the outputs of an example; NaN if the targets are not real.
    likelihood = run.state.likelihood
    if not isinstance(outputs, Tensor) or likelihood.is_discrete or not likelihood.supports("mean_and_variance"):
        return math.nan
    mean = likelihood.mean_and_variance(outputs.detach())[0]
    errors = mean - targets.to(mean).reshape(mean.shape)
    return float(errors.square().reshape(len(mean), -1).mean(1).sum())


def _close_epoch(run: Run, began: float) -> EpochRecord:
    state, engine = run.state, run.options.engine
    sums = Sums(*engine.sum(astuple(run.sums)))
    if sums.examples == 0:
        raise DataError("the weights of all examples are 0: there is nothing to learn from")
    steps = run.data.batches * engine.ranks
    validation: dict[str, float] = {}
    if run.validation is not None:
        validation = engine.broadcast(validation_scores(state, run.validation, engine, run.seed))
    record = EpochRecord(
        epoch=state.epoch - 1,
        step=state.progress.step,
        total=sums.total / steps,
        nll=sums.nll / sums.examples,
        kl=sums.kl / steps,
        seconds=time.monotonic() - began,
        temperature=state.temperature,
        std_ratio=state.model.std_ratio(),
        rates={group["name"]: float(group["lr"]) for group in state.optimizer.param_groups},
        validation=validation,
    )
    run.history.epochs.append(record)
    metrics = {"total": record.total, "nll": record.nll, "kl": record.kl}
    if math.isfinite(sums.squares):
        metrics["rmse"] = math.sqrt(sums.squares / sums.examples)
    state.after_epoch({**metrics, **{f"validation.{name}": value for name, value in validation.items()}})
    run.sums = Sums()
    return record


def least_examples(net: nn.Module) -> int:
    """The examples that a network needs at once: 2 where BatchNorm normalizes over them."""
    return 2 if any(isinstance(module, nn.BatchNorm1d | nn.SyncBatchNorm) for module in net.modules()) else 1
