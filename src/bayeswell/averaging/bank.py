"""Banks of networks: thinned draws of a sampler, and the networks at the ends of learning-rate cycles."""

from __future__ import annotations

import math
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import BayeswellWarning, CompositionError, SettingError, check_integer
from ..core.protocols import EMPIRICAL, POINT, Averager, BayesianModel, Posterior, Progress
from ..nn import trained_params
from ..posteriors import Empirical
from .snapshots import check_finite


class DrawStore:
    """Rows of a (planned, P) matrix in memory, or in a file of ``folder`` that is mapped into memory.

    A saved state holds the rows, or the name of the file and the number of its rows.
    """

    def __init__(self, planned: int, like: Tensor, folder: str | None) -> None:
        self.planned, self.like, self.folder, self.count = planned, like, folder, 0
        self._open(f"draws-{uuid.uuid4().hex[:12]}.bin")

    def _open(self, name: str) -> None:
        self.name, size = name, self.planned * self.like.numel()
        if self.folder is None:
            self.rows = torch.empty(self.planned, self.like.numel(), dtype=self.like.dtype)
            return
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        mapped = torch.from_file(str(Path(self.folder) / name), shared=True, size=size, dtype=self.like.dtype)
        self.rows = mapped.view(self.planned, -1)

    def append(self, row: Tensor) -> None:
        self.rows[self.count].copy_(row)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        # Rows are only added, so this view stays true.
        return {"count": self.count, "rows": self.rows[: self.count] if self.folder is None else self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = int(state["count"])
        if isinstance(state["rows"], str):
            self._open(Path(state["rows"]).name)
        else:
            self.rows[: self.count] = state["rows"]


class BankAverager:
    """Keeps the network after each step that ``is_due`` names by the number of steps observed after burn-in."""

    def __init__(
        self, owner: str, model: BayesianModel, burn_in: int, is_due: Callable[[int, int], bool], store: DrawStore
    ) -> None:
        if POINT not in model.posterior.provides:
            name = model.posterior.part.name
            raise CompositionError(f"averaging '{owner}' keeps weight vectors; use posterior 'delta', not '{name}'")
        self.owner, self.burn_in, self.is_due, self.store = owner, burn_in, is_due, store
        self.observed = 0
        self.extras: list[dict[str, Tensor]] = []

    @torch.no_grad()
    def after_step(self, model: BayesianModel, progress: Progress) -> None:
        if progress.step < self.burn_in:
            return
        self.observed += 1
        if not self.is_due(progress.step, self.observed):
            return
        if self.store.count == self.store.planned:
            message = f"{self.owner}: {self.store.planned} draws are kept, later ones are not"
            warnings.warn(message, BayeswellWarning, stacklevel=2)
            return
        weights = model.posterior.mean.detach()
        check_finite(self.owner, weights)
        self.store.append(weights)
        self.extras.append({name: tensor.detach().clone() for name, tensor in _extras(model).items()})

    def finalize(self, model: BayesianModel) -> Posterior:
        """Return the draws with equal weight."""
        if not self.store.count:
            raise SettingError(f"{self.owner}: no draw was kept of {self.observed} steps after burn-in; train longer")
        names = self.extras[0]
        stacked = {name: torch.stack([extra[name] for extra in self.extras]) for name in names}
        device = model.posterior.mean.device
        return Empirical(model.layout, self.store.rows[: self.store.count], stacked).to(device)

    def other_params(self) -> Mapping[str, Tensor]:
        """Empty: each draw keeps the other parameters as they were."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"observed": self.observed, "extras": list(self.extras), **self.store.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.observed, self.extras = int(state["observed"]), list(state["extras"])
        self.store.load_state_dict(state)


def _extras(model: BayesianModel) -> dict[str, Tensor]:
    saved = model.net.state_dict().keys()
    return {**trained_params(model.net), **{name: b for name, b in model.net.named_buffers() if name in saved}}


@dataclass(frozen=True)
class Bank:
    """Weights along the path of a sampler, thinned, each with equal weight.

    Steps that a sampler does not offer (cyclical SGLD while it explores) do not count. Each draw also keeps the
    network's other trained parameters and its buffers as they were then.

    Args:
        burn_in: steps that are dropped; None: half of all.
        thinning: one draw in so many of the steps after them; None: ``max_draws`` spread over the rest.
        max_draws: more are never kept.
        folder: where draws go to a file that is mapped into memory. None: they are in memory.
    """

    burn_in: int | None = None
    thinning: int | None = None
    max_draws: int = 100
    folder: str | None = None

    name: ClassVar[str] = "bank"
    paper: ClassVar[str] = "Welling and Teh 2011"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    provides: ClassVar[frozenset[str]] = frozenset({EMPIRICAL})

    def __post_init__(self) -> None:
        check_integer(self.name, "max_draws", self.max_draws)
        if self.thinning is not None:
            check_integer(self.name, "thinning", self.thinning)
        if self.burn_in is not None:
            check_integer(self.name, "burn_in", self.burn_in, 0)

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        burn_in = total_steps // 2 if self.burn_in is None else self.burn_in
        left = total_steps - burn_in
        thinning = math.ceil(left / self.max_draws) if self.thinning is None else self.thinning
        if left < 1 or thinning > left:
            settings = f"burn_in = {burn_in} and thinning = {thinning}"
            raise SettingError(f"bank: {settings} keep no draw of {total_steps} steps; lower them")
        store = DrawStore(min(left // thinning, self.max_draws), model.posterior.mean.detach(), self.folder)
        return BankAverager(self.name, model, burn_in, lambda step, seen: seen % thinning == 0, store)


@dataclass(frozen=True)
class CycleEnds:
    """A snapshot ensemble (Huang et al. 2017): the network at the end of each of ``cycles`` cycles is a member.

    With schedule "cyclic" of as many cycles the learning rate restarts after each end, so that training leaves the
    optimum and ends in another one. Cycles have ceil(T / cycles) of T steps; the last may be shorter. ``keep`` takes
    the last so many (the paper's m of M; None: all): those before had less training. What a likelihood has learned of
    the noise is that of the end.
    """

    cycles: int = 5
    keep: int | None = None

    name: ClassVar[str] = "cycle_ends"
    paper: ClassVar[str] = "Huang et al. 2017"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    provides: ClassVar[frozenset[str]] = frozenset({EMPIRICAL})

    def __post_init__(self) -> None:
        check_integer(self.name, "cycles", self.cycles)
        if self.keep is not None and not 0 < self.keep <= self.cycles:
            raise SettingError(f"cycle_ends: `keep` must be 1 to cycles = {self.cycles}, got {self.keep}")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager:
        if self.cycles > total_steps:
            raise SettingError(f"cycle_ends: `cycles` must be at most the {total_steps} steps, got {self.cycles}")
        length = math.ceil(total_steps / self.cycles)
        ends = [min(first + length, total_steps) - 1 for first in range(0, total_steps, length)]
        kept = frozenset(ends[-(self.keep or len(ends)) :])
        store = DrawStore(len(kept), model.posterior.mean.detach(), None)
        return BankAverager(self.name, model, 0, lambda step, seen: step in kept, store)
