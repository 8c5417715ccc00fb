"""One run while it is under way: where it stands, what it has seen, and how to go on from there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import DataError, FileError
from ..finite import looks_at_once
from ..methods import Assembly
from ..types import Progress, Terms
from .data import Batches
from .engine import Engine, Step
from .finite_steps import finite_steps_of
from .records import EpochRecord, History
from .saved_state import require_alike, require_moments
from .scores import Score, is_small
from .streams import Streams

_SCORED_AT_ONCE = 16
"""Steps whose scores are counted together: one by one each operation of them would find a cold cache."""


class Callback:
    """What a user may hang into training: override what is needed; each is called on every rank.

    A callback that keeps anything between calls gives it by ``state_dict`` (tensors and plain data), so that a run
    that was cut off goes on as if it had not been. One with ``every_step`` False is content with the records of epochs:
    it is told of them too where members are trained in other processes (``fit(..., workers=...)``).
    """

    every_step: ClassVar[bool] = True

    def start(self, run: Run) -> None:
        """Before the first step of a run, also of one that goes on."""

    def after_step(self, run: Run) -> None:
        """After a step was taken; ``run.step`` counts it."""

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        """After an epoch and its validation."""

    def end(self, run: Run) -> None:
        """After the last step."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""


@dataclass
class Run:
    """The state of one member's training; only the loop changes it. ``stop(reason)`` ends it after this epoch.

    ``sums`` lag behind until ``fold`` is asked for them. ``least`` is how few examples may go through the network at
    once: 2 where BatchNorm normalises over them.
    """

    assembly: Assembly
    batches: Batches
    epochs: int
    streams: Streams
    engine: Engine
    callbacks: Sequence[Callback] = ()
    member: int = 0
    members: int = 1
    accumulate: int = 1
    history: History = field(default_factory=History)
    epoch: int = 0
    batch: int = 0
    step: int = 0
    stopped: str = ""
    halted: bool = False
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)

    def __post_init__(self) -> None:
        self.one_step: Step = self.engine.prepare(self.assembly)
        optimizer = self.one_step.optimizer
        own = vars(optimizer).get("zero_grad", type(optimizer).zero_grad)  # of somebody's own it may do more
        self._forgets_as_torch = inspect.unwrap(own) is inspect.unwrap(torch.optim.Optimizer.zero_grad)
        self.finite_steps = finite_steps_of(
            self.assembly, self.engine.device, ranks=self.engine.ranks, scales_loss=self.one_step.scales_loss
        )
        self._far_sums: Tensor | None = None
        self._waiting: list[tuple[Any, Tensor, Tensor | None]] = []
        self._score = Score(self.assembly.likelihood)
        batch_norms = (nn.BatchNorm1d, nn.SyncBatchNorm)
        self.least = 2 if any(isinstance(module, batch_norms) for module in self.assembly.model.net.modules()) else 1
        likelihood = self.assembly.likelihood
        learned = dict(likelihood.named_parameters()) if isinstance(likelihood, nn.Module) else {}
        # Not where a later step would change what is scored: the likelihood, or the memory of the targets.
        self._may_wait = self.batches.lasting and not learned
        # By a name of its own: a likelihood's network may be called as one of the model's.
        learned = {f"likelihood.{name}": parameter for name, parameter in learned.items()}
        self.parameters: dict[str, nn.Parameter] = {**dict(self.assembly.model.named_parameters()), **learned}

    @property
    def score_name(self) -> str | None:
        """What ``sums`` count beside the losses: "accuracy", "rmse" or nothing."""
        return self._score.name

    @property
    def total_steps(self) -> int:
        """How many steps are planned."""
        return self.epochs * self.batches.count

    @property
    def at(self) -> Progress:
        """Where the next step stands."""
        return Progress(self.step, self.total_steps, self.batch, self.batches.count, self.batches.shown)

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """End training after this epoch; ``at_once`` (on every rank) after this step, without a record of the epoch."""
        self.stopped, self.halted = reason, self.halted or at_once

    def agree(self) -> None:
        """Stop on every rank if one has asked for it."""
        if self.engine.ranks > 1:
            asked = self.engine.summed(torch.tensor(float(bool(self.stopped)), dtype=torch.float64))
            if float(asked) and not self.stopped:
                self.stopped = "another rank asked to stop"

    def forget_gradients(self) -> None:
        """Before a step. Not by torch's own ``zero_grad``, which takes as long as a layer of a small network."""
        if not self._forgets_as_torch:
            self.one_step.optimizer.zero_grad(set_to_none=True)
            return
        for group in self.one_step.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def count(self, terms: Terms, targets: Tensor, at: Progress, weights: Tensor | None = None) -> None:
        """Add what a piece has shown to the sums of the epoch: total, kl, nll, score (over examples), examples.

        Examples count by their weights, where they have any.
        """
        if not looks_at_once(terms.nll.device):
            self._count_there(terms, targets, at, weights)
            return
        examples = len(targets) if at.nll_share else 0
        seen: float = examples if weights is None or not examples else float(weights.sum())
        # Plain floats to add up: this runs once a step, and whatever torch is asked for costs more than the sum.
        total, nll, kl = terms.total.item(), terms.nll.item(), terms.kl.item()
        for index, value in ((0, total), (1, at.kl_share * kl), (2, examples * nll), (4, seen)):
            self.sums[index] += value
        if examples:
            self._waiting.append((_detached(terms.outputs), targets, weights))
            if len(self._waiting) == _SCORED_AT_ONCE or not (self._may_wait and is_small(terms.outputs)):
                self._score_waiting()

    def _score_waiting(self) -> None:
        """Add the scores of the pieces that wait for it, in their order."""
        waiting, self._waiting = self._waiting, []
        for outputs, targets, weights in waiting:
            self.sums[3] += float(self._score(outputs, targets, weights))

    def _count_there(self, terms: Terms, targets: Tensor, at: Progress, weights: Tensor | None) -> None:
        """The same on an accelerator, where the sums stay until somebody reads them (``fold``)."""
        examples = len(targets) if at.nll_share else 0
        score = self._score(terms.outputs, targets, weights) if examples else 0.0
        seen = examples if weights is None or not examples else weights.sum()
        given = (terms.total.detach(), at.kl_share * terms.kl, examples * terms.nll, score, seen)
        device, precise = terms.nll.device, torch.float32 if terms.nll.device.type == "mps" else torch.float64
        # `full` and not `tensor`: a number from the program goes with the kernel, and is not copied there.
        numbers = [v if isinstance(v, Tensor) else torch.full((), v, device=device) for v in given]
        added = torch.stack([number.to(precise) for number in numbers])
        self._far_sums = added if self._far_sums is None else self._far_sums + added

    def fold(self) -> list[float]:
        """``sums`` with all that has been met: this waits for an accelerator, and scores what waits to be scored."""
        self._score_waiting()
        if self._far_sums is not None:
            far, self._far_sums = self._far_sums.tolist(), None
            self.sums = [here + there for here, there in zip(self.sums, far, strict=True)]
        return self.sums

    def mean_over_ranks(self, value: float) -> float:
        """The same number on every rank: what all must decide alike."""
        ranks = self.engine.ranks
        return value if ranks == 1 else float(self.engine.summed(torch.tensor(value, dtype=torch.float64))) / ranks

    def close_epoch(self, validation: Mapping[str, float], test: Mapping[str, float]) -> EpochRecord:
        """The record of the epoch that has just ended; the next begins."""
        total, kl, nll, score, examples = self.engine.summed(self._sums()).tolist()
        if examples == 0:
            raise DataError(f"epoch {self.epoch}: the weights of all examples are 0: there is nothing to learn from")
        steps = self.batches.count * self.engine.ranks
        if self.score_name == "rmse":
            score = (score / examples) ** 0.5 * examples
        record = EpochRecord(
            epoch=self.epoch,
            total=total / steps,
            nll=nll / examples,
            kl=kl / steps,
            std_ratio=self.assembly.model.std_ratio(),
            scores={} if self.score_name is None else {self.score_name: score / examples},
            rates=self.assembly.learning_rates(),
            validation=dict(validation),
            temperature=self.assembly.temperature,
            test=dict(test),
        )
        self.assembly.validation = record.validation  # a plateau may listen to it
        self.history.epochs.append(record)
        self.epoch, self.batch = self.epoch + 1, 0
        self.sums = [0.0] * 5
        self._far_sums, self._waiting = None, []
        return record

    def _named_callbacks(self) -> dict[str, Callback]:
        """Each callback by its kind, and its place among those of its kind: what has no state may come and go."""
        named: dict[str, Callback] = {}
        for callback in self.callbacks:
            kind = type(callback).__qualname__
            named[f"{kind} {sum(name.startswith(f'{kind} ') for name in named)}"] = callback
        return named

    def _sums(self) -> Tensor:
        return torch.tensor(self.fold(), dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        """Everything from which the run goes on bit for bit; every rank must call it."""
        self.finite_steps.settle()
        streams = self.engine.gathered(self.streams.state_dict())
        sums = self.engine.gathered({"sums": self._sums()})["sums"]
        return {
            "member": self.member,
            "position": [self.epoch, self.batch, self.step],
            "stopped": self.stopped,
            "sums": sums,
            "streams": streams,
            "history": [record.as_state() for record in self.history.epochs],
            "assembly": self.assembly.state_dict(),
            "precision": self.one_step.state_dict(),
            "callbacks": {name: state for name, c in self._named_callbacks().items() if (state := c.state_dict())},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``, for a run of the same settings."""
        ranks = len(state["sums"])
        if ranks != self.engine.ranks:
            raise FileError(f"the checkpoint is of {ranks} ranks, this run has {self.engine.ranks}")
        named = self._named_callbacks()
        for name in state["callbacks"]:
            if name not in named:
                raise FileError(f"the checkpoint is of a run with the callback {name}, which this run has not")
        require_alike(state, self._fixed_state())
        require_moments(state["assembly"]["optimizer"], self.assembly.optimizer, "assembly/optimizer")
        _require_position(state["position"])
        try:
            self._load(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise FileError(f"the saved state is of another run, or was altered ({reason})") from error

    def _fixed_state(self) -> dict[str, Any]:
        """What a saved state can be held against before the first step.

        Not what a callback or a collector keeps, which they look at themselves, nor an optimizer's moments, which do
        not exist yet, nor a generator of a device that the other machine may not have had.
        """
        fresh = self.state_dict()
        assembly, streams = dict(fresh["assembly"]), dict(fresh["streams"])
        streams.pop("cuda", None)
        assembly["collector"] = None
        assembly["optimizer"] = {
            key: value for key, value in assembly["optimizer"].items() if key not in ("state", "param_groups")
        }
        return {**fresh, "assembly": assembly, "streams": streams, "callbacks": {}}

    def _load(self, state: Mapping[str, Any]) -> None:
        rank, named = self.engine.rank, self._named_callbacks()
        self.epoch, self.batch, self.step = state["position"]
        self.stopped = state["stopped"]
        self.sums = state["sums"][rank].tolist()
        self.history.epochs = [EpochRecord(**record) for record in state["history"]]
        self.assembly.load_state_dict(state["assembly"])
        self.one_step.load_state_dict(state["precision"])
        for name, own in state["callbacks"].items():
            named[name].load_state_dict(own)
        # Copies: torch's generators take no view into the middle of a tensor (2.13 crashes on one).
        self.streams.load_state_dict({name: tensor[rank].clone() for name, tensor in state["streams"].items()})


def _require_position(position: Any) -> None:
    """Epoch, batch and step, each a whole number from 0."""
    whole = all(isinstance(place, int) and not isinstance(place, bool) and place >= 0 for place in position)
    if len(position) != 3 or not whole:
        raise FileError(f"the saved state stands at {position!r}; it must be an epoch, a batch and a step")


def _detached(outputs: Any) -> Any:
    """Without the graph, which would be kept with them."""
    return outputs.detach() if isinstance(outputs, Tensor) else None
