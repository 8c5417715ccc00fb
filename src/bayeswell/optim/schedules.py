"""Learning-rate schedules: factors that depend on progress alone, and plateaus that depend on a metric."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..core.errors import DataError, SettingError, check_choice, check_number
from ..core.protocols import Progress, Schedule
from ..core.registry import Registry
from .torch_optimizers import check_below_one, check_positive


@dataclass(frozen=True)
class Constant:
    """A constant learning rate."""

    name: ClassVar[str] = "constant"
    paper: ClassVar[str] = "Robbins & Monro 1951"

    def factor(self, progress: Progress) -> float:
        return 1.0


@dataclass(frozen=True)
class StepDecay:
    """Multiply by ``drop`` at each of these fractions of training.

    The defaults are those of variational Laplace: a tenth after 100 and after 150 of 200 epochs.
    """

    fractions: tuple[float, ...] = (0.5, 0.75)
    drop: float = 0.1

    name: ClassVar[str] = "step"
    paper: ClassVar[str] = "Unlu & Aitchison 2021, section 5"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fractions", tuple(self.fractions))
        for fraction in self.fractions:
            check_number(self.name, "fractions", fraction, 0, 1)

    def factor(self, progress: Progress) -> float:
        total = _total_steps(self, progress)
        # Rounded, as 0.55 x 100 is 55.00000000000001.
        passed = sum(progress.step >= round(fraction * total, 6) for fraction in self.fractions)
        return float(self.drop**passed)


@dataclass(frozen=True)
class Linear:
    """1 until the fraction ``begin`` of training, then a straight line to ``final`` at the fraction ``end``.

    This is SWAG's schedule: with snapshots from S of training on, constant to S / 2, then linear to the learning rate
    of the snapshots at 0.9 S. The defaults are those of S = 0.75. We differ: it moves with every step, not every epoch.
    """

    begin: float = 0.375
    end: float = 0.675
    final: float = 0.2

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "Izmailov et al. 2018; Maddox et al. 2019, appendix"

    def __post_init__(self) -> None:
        check_number(self.name, "end", self.end, self.begin, 1)

    def factor(self, progress: Progress) -> float:
        done = progress.step / _total_steps(self, progress)
        if done < self.begin:
            return 1.0
        if done >= self.end:
            return float(self.final)
        return 1.0 - (1 - self.final) * (done - self.begin) / (self.end - self.begin)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to ``final``: final + (1 - final) (1 + cos(pi t / T)) / 2."""

    final: float = 0.0

    name: ClassVar[str] = "cosine"
    paper: ClassVar[str] = "Loshchilov & Hutter 2017"

    def factor(self, progress: Progress) -> float:
        return _half_cosine(min(1.0, progress.step / _total_steps(self, progress)), self.final)


@dataclass(frozen=True)
class Power:
    """A power of the time e since the start: min(1, (shift + e)^-power).

    e counts whole epochs, or steps / ``steps`` if that is set. The defaults are flat-seeking SGLD's
    lr = min(0.2, 0.2 / (0.1 + e)^0.55). Welling and Teh's a (b + t)^-gamma is lr = a b^-gamma with ``shift=1``,
    ``steps=b`` and ``power=gamma`` in (0.5, 1].
    """

    power: float = 0.55
    shift: float = 0.1
    steps: int | None = None

    name: ClassVar[str] = "power"
    paper: ClassVar[str] = "Nguyen et al. 2023 (F-SGLD); Welling & Teh 2011"

    def __post_init__(self) -> None:
        check_positive(self, "power", "shift", "steps")

    def factor(self, progress: Progress) -> float:
        time = progress.step / self.steps if self.steps else progress.step // _batches(self, progress)
        return min(1.0, float((self.shift + time) ** -self.power))


@dataclass(frozen=True)
class Cyclic:
    """Cycles of equal length between 1 and ``low``.

    Args:
        cycles: their number; each has ceil(T / cycles) of T steps.
        low: the lowest factor.
        shape: "cosine" falls from 1 to ``low`` and restarts; "triangular" climbs from ``low`` to 1 and back (Smith).
        cycle_steps: length of a cycle in steps, in place of ``cycles``.
    """

    cycles: int = 4
    low: float = 0.0
    shape: str = "cosine"
    cycle_steps: int | None = None

    name: ClassVar[str] = "cyclic"
    paper: ClassVar[str] = "Smith 2017; Loshchilov & Hutter 2017; Zhang et al. 2020"

    def __post_init__(self) -> None:
        check_positive(self, "cycles", "cycle_steps")
        check_number(self.name, "low", self.low, 0, 1)
        check_choice(self.name, "shape", self.shape, ("cosine", "triangular"))

    def factor(self, progress: Progress) -> float:
        length = self.cycle_steps or math.ceil(_total_steps(self, progress) / self.cycles)
        position = (progress.step % length) / length
        if self.shape == "cosine":
            return _half_cosine(position, self.low)
        return self.low + (1 - self.low) * (1 - abs(2 * position - 1))


@dataclass(frozen=True)
class WarmUp:
    """A straight climb over the first ``fraction`` of training, times the schedule ``after``: min(1, (t + 1) / n).

    n = ceil(fraction T). ``after`` sees the whole run, so its steps and cycles do not shift.
    """

    fraction: float = 0.05
    after: str | Mapping[str, Any] = "constant"

    name: ClassVar[str] = "warm_up"
    paper: ClassVar[str] = "Goyal et al. 2017; Book 2020, section 3.3"

    def __post_init__(self) -> None:
        check_number(self.name, "fraction", self.fraction, 0, 1, above=True)
        SCHEDULES.resolve(self.after)

    def factor(self, progress: Progress) -> float:
        climb = math.ceil(self.fraction * _total_steps(self, progress))
        return min(1.0, (progress.step + 1) / climb) * SCHEDULES.resolve(self.after).factor(progress)


@dataclass(frozen=True)
class ScheduleFunction:
    """A function of ``Progress`` that returns the factor."""

    factor: Callable[[Progress], float]

    name: ClassVar[str] = "function"
    paper: ClassVar[str] = ""


@dataclass(frozen=True)
class TorchSchedule:
    """A scheduler of torch made by ``factory(optimizer)``, stepped every "epoch" or every "step".

    The scheduler sees a learning rate of 1, so rates that it sets itself are factors (``max_lr=10``). Its factors are
    a function of the number of its steps alone, so a resumed run needs no state.
    """

    factory: Callable[[Optimizer], LRScheduler]
    every: str = "epoch"
    _factors: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    name: ClassVar[str] = "torch_scheduler"
    paper: ClassVar[str] = "torch.optim.lr_scheduler"

    def __post_init__(self) -> None:
        check_choice(self.name, "every", self.every, ("epoch", "step"))
        self._extend(0)

    def factor(self, progress: Progress) -> float:
        place = progress.step if self.every == "step" else progress.step // _batches(self, progress)
        if place >= len(self._factors):
            self._extend(2 * place)
        return self._factors[min(place, len(self._factors) - 1)]

    def _extend(self, last: int) -> None:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
        scheduler = self.factory(optimizer)
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            raise SettingError(f"schedule: {type(scheduler).__name__} is not a scheduler of steps; see also `plateau`")
        self._factors[:] = [float(scheduler.get_last_lr()[0])]
        # A scheduler with a last step (OneCycleLR) stays where it ended.
        with contextlib.suppress(ValueError):
            for _ in range(last):
                optimizer.step()
                scheduler.step()
                self._factors.append(float(scheduler.get_last_lr()[0]))


def schedule_part(choice: Any) -> Schedule | None:
    """Return a part made of a torch scheduler class, a partial of one, or a function of ``Progress``."""
    kind = choice.func if isinstance(choice, functools.partial) else choice
    if isinstance(kind, type) and issubclass(kind, LRScheduler):
        return TorchSchedule(choice)
    if isinstance(kind, type) or hasattr(choice, "factor") or not callable(choice):
        return None
    return ScheduleFunction(choice)


def _total_steps(part: Schedule, progress: Progress) -> int:
    if progress.total_steps is None:
        raise SettingError(f"schedule '{part.name}' needs Progress(total_steps=...), the planned number of steps")
    return progress.total_steps


def _batches(part: Schedule, progress: Progress) -> int:
    if progress.batches is None:
        raise SettingError(f"schedule '{part.name}' needs Progress(batches=...), the batches of an epoch")
    return progress.batches


def _half_cosine(position: float, low: float) -> float:
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * position))


SCHEDULES: Registry[Schedule] = Registry(
    "schedule",
    *(Constant, StepDecay, Linear, Cosine, Power, Cyclic, WarmUp),
    requires=("factor",),
    adapt=schedule_part,
)


@dataclass(frozen=True)
class PlateauState:
    """Factor on the learning rate, best value so far, and epochs since it improved."""

    factor: float = 1.0
    best: float | None = None
    waited: int = 0


@dataclass(frozen=True)
class Plateau:
    """Multiply the learning rate by ``factor`` once ``metric`` has not improved for more than ``patience`` epochs.

    Lower values are better, and an improvement is value < best - threshold |best|. (The best (1 - threshold) of torch
    would accept a slightly worse negative value.) After a fall the count begins again and the best value stays.

    ``metric`` is "nll", "kl", "total", or "validation.nll" and the like. The factor on the learning rate stays above
    ``minimum``. The thesis (figure 5.11) has Plateau("nll") for the means and Plateau("kl") for the stds.
    """

    metric: str = "nll"
    factor: float = 0.1
    patience: int = 1
    threshold: float = 1e-4
    minimum: float = 0.0

    name: ClassVar[str] = "plateau"
    paper: ClassVar[str] = "Book 2020, sections 3.3 and 5.4"

    def __post_init__(self) -> None:
        check_below_one(self, "factor")

    def update(self, state: PlateauState, value: float) -> PlateauState:
        """Return the state after an epoch with this value of the metric."""
        if not math.isfinite(value):
            raise DataError(f"plateau: the metric '{self.metric}' must be finite, got {value}")
        if state.best is None or value < state.best - self.threshold * abs(state.best):
            return PlateauState(state.factor, value, 0)
        if state.waited < self.patience:
            return PlateauState(state.factor, state.best, state.waited + 1)
        lowered = max(state.factor * self.factor, min(self.minimum, state.factor))
        return PlateauState(lowered, state.best, 0)
