"""A bank of draws: the end of a sampler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..errors import BayeswellWarning, CompositionError, SettingError, require_count
from ..posteriors import Empirical, EmpiricalPosterior
from ..types import BANK, POINT, BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart, Progress
from .draw_store import FileRows, MemoryRows, RowFormat, Rows, TemporaryRows
from .running import require_finite, trained_parameters

_WEIGHTS = "weights"


@dataclass(frozen=True)
class Bank(CollectorPart):
    """Weights along the path of a sampler, thinned, each with equal weight.

    The first ``burn_in`` steps are dropped (None: half of all), and of those that are observed after them every
    ``thinning``-th is kept (None: so many that at most ``max_draws`` spread over all the rest). Steps that a sampler
    does not offer (cyclical SGLD while it explores) are not observed, and so do not count.

    Each draw also keeps the network's other trained parameters and its buffers as they were then. Draws stay in memory
    while all that are planned take at most ``memory_limit`` bytes (for each chain); else they go to a file (plain
    numbers, one row a draw) that is mapped into memory: in the system's folder for temporary files, from which it
    vanishes when nothing needs it any more, or in ``folder``, where it stays. Whether they fit on the disk is checked
    before training. The draws are the same, bit for bit, wherever they are kept. It needs a posterior that is one
    weight vector: the path of a mean-field posterior's means is not a sample from anything.

    A saved state holds the draws themselves; with ``folder`` it holds how many of the file there belong to it.
    """

    burn_in: int | None = None
    thinning: int | None = None
    max_draws: int = 100
    folder: str | None = None
    memory_limit: float = 1 << 30

    name: ClassVar[str] = "bank"
    paper: ClassVar[str] = "Welling and Teh 2011"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    provides: ClassVar[frozenset[str]] = frozenset({BANK})

    def __post_init__(self) -> None:
        require_count(self.name, "max_draws", self.max_draws)
        if self.thinning is not None:
            require_count(self.name, "thinning", self.thinning)
        if (
            isinstance(self.memory_limit, bool)
            or not isinstance(self.memory_limit, int | float)
            or not self.memory_limit >= 0
        ):
            raise SettingError(f"bank: memory_limit = {self.memory_limit!r}; it must be a number of bytes, 0 or more")
        if self.burn_in is not None and (
            isinstance(self.burn_in, bool) or not isinstance(self.burn_in, int) or self.burn_in < 0
        ):
            raise SettingError(f"bank: burn_in = {self.burn_in!r}; it must be a whole number of steps, 0 or more")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        require_count(self.name, "total_steps", total_steps)
        if POINT not in model.posterior_part.provides:
            raise CompositionError(
                f"averaging 'bank' keeps weight vectors, but posterior '{model.posterior_part.name}' is a distribution "
                "over them; use posterior 'delta' with a sampler"
            )
        burn_in = total_steps // 2 if self.burn_in is None else self.burn_in
        if burn_in >= total_steps:
            raise SettingError(
                f"bank: burn_in = {burn_in} steps, and only {total_steps} are planned; use less than {total_steps}"
            )
        left = total_steps - burn_in
        sparse_enough = -(-left // self.max_draws)
        thinning = sparse_enough if self.thinning is None else self.thinning
        if thinning > left:
            raise SettingError(
                f"bank: thinning = {thinning} keeps no draw of the {left} steps after burn-in; use at most {left}"
            )
        if thinning < sparse_enough and left // thinning > self.max_draws:
            raise SettingError(
                f"bank: thinning = {thinning} would keep {left // thinning} draws, more than max_draws = "
                f"{self.max_draws}; use thinning = {sparse_enough} or a larger max_draws"
            )
        row_format = RowFormat(_tensors(model))
        rows = self._rows(row_format.size, min(left // thinning, self.max_draws))
        return BankCollector(burn_in, thinning, self.max_draws, total_steps, model, row_format, rows)

    def _rows(self, size: int, planned: int) -> Rows:
        if self.folder is not None:
            return FileRows(self.folder, size, planned)
        return MemoryRows(size) if planned * size <= self.memory_limit else TemporaryRows(size, planned)


class BankCollector:
    """State: how many steps were observed after burn-in, and the rows of the draws kept so far."""

    def __init__(
        self, burn_in: int, thinning: int, max_draws: int, total_steps: int,
        model: BayesianModel, row_format: RowFormat, rows: Rows,
    ) -> None:  # fmt: skip
        self.burn_in, self.thinning, self.max_draws, self.total_steps = burn_in, thinning, max_draws, total_steps
        self.observed = 0
        self._format, self._rows = row_format, rows
        self._layout, self._device = model.layout, model.posterior.mean_vector().device
        self._told_full = False

    @property
    def snapshots(self) -> int:
        """How many draws are kept."""
        return self._rows.count

    def require_offered(self, offered: Callable[[int], bool]) -> None:
        """Refuse, before training, a sampler that offers too few steps after burn-in for one draw."""
        count = 0
        for step in range(self.burn_in, self.total_steps):
            count += offered(step)
            if count == self.thinning:
                return
        raise SettingError(
            f"bank: the sampler offers {count} of the {self.total_steps - self.burn_in} steps after burn-in, and one "
            f"in {self.thinning} is kept: none; train longer, or lower burn_in or thinning"
        )

    def observe(self, model: BayesianModel, at: Progress) -> None:
        """Keep the weights after step ``at.step`` if they are due."""
        if at.step < self.burn_in:
            return
        if (self.observed + 1) % self.thinning == 0:
            self._keep(model, at)
        self.observed += 1

    def _keep(self, model: BayesianModel, at: Progress) -> None:
        if self._rows.count >= self.max_draws:
            if not self._told_full:
                self._told_full = True
                warnings.warn(
                    f"bank: step {at.step} is past the plan and the bank is full (max_draws = {self.max_draws}); this "
                    "and later draws are not kept",
                    BayeswellWarning,
                    stacklevel=4,
                )
            return
        tensors = _tensors(model)
        for name, tensor in tensors.items():
            what = "the weights" if name == _WEIGHTS else f"the values of '{name}'"
            require_finite("bank", what, tensor, at)
        self._rows.append(self._format.pack(tensors))

    def result(self) -> tuple[PosteriorPart, Posterior]:
        """The draws, with equal weight."""
        if not self._rows.count:
            raise SettingError(
                f"bank: no draw was kept of {self.observed} steps that were observed after burn-in (burn_in = "
                f"{self.burn_in}, thinning = {self.thinning}); train longer or lower these"
            )
        rows = self._rows.matrix()
        names = [name for name in self._format.starts if name != _WEIGHTS]
        own_names = tuple(name.removeprefix("net.") for name in names)
        weights, extras = self._format.column(rows, _WEIGHTS), [self._format.column(rows, name) for name in names]
        # Not copied: the rows may be mapped from a file.
        posterior = EmpiricalPosterior(self._layout, weights, dict(zip(own_names, extras, strict=True)), copied=False)
        return Empirical(len(rows), own_names), posterior.to(self._device)

    def deterministic(self) -> dict[str, Tensor]:
        """Nothing to average: each draw keeps the network's other parameters as they were."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return {"observed": self.observed, **self._rows.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        if "observed" not in state:
            raise SettingError(f"bank: the state has no 'observed'; it is not the state of a bank ({sorted(state)})")
        self._rows.load_state_dict(state)
        if self._rows.count > self.max_draws:
            raise SettingError(
                f"bank: the saved state has {self._rows.count} draws, this run keeps at most {self.max_draws}; it is "
                "of another run"
            )
        self.observed = int(state["observed"])


def _tensors(model: BayesianModel) -> dict[str, Tensor]:
    """What one draw consists of: the flat weights, the other trained parameters, the saved buffers."""
    saved = model.net.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.net.named_buffers() if name in saved}
    own = {f"net.{name}": tensor for name, tensor in (trained_parameters(model) | buffers).items()}
    return {_WEIGHTS: model.posterior.mean_vector().detach(), **own}
