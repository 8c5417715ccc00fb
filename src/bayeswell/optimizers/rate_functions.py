"""Learning rates by a function of one's own, or by a scheduler of torch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..eager import eager
from ..errors import SettingError, nearest
from ..schedules import checked_factor
from ..types import Progress, Rate


@dataclass(frozen=True)
class RateFunction(Rate):
    """A function of ``Progress``: what the initial learning rate is multiplied by in a step."""

    function: Callable[[Progress], float]

    name: ClassVar[str] = "function"

    def factor(self, at: Progress) -> float:
        """The function's value."""
        return checked_factor("rate", self.function, at)


@dataclass(frozen=True)
class TorchScheduler(Rate):
    """A scheduler of torch, made by ``factory(optimizer)``: ``partial(StepLR, step_size=10)``.

    It is stepped once an epoch, or with ``every = "step"`` once a step, as its authors mean it (``OneCycleLR``). The
    optimizer that the scheduler sees has the learning rate 1: a scheduler that sets rates itself is given multiples of
    the method's own (``max_lr=10`` is ten times it). Only rates are taken from it, not momenta. The factors follow from
    the number of steps alone, so that a run that was cut off goes on with the right one.
    """

    factory: Callable[[torch.optim.Optimizer], LRScheduler]
    every: str = "epoch"
    _factors: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    name: ClassVar[str] = "torch_scheduler"

    def __post_init__(self) -> None:
        if self.every not in ("epoch", "step"):
            raise SettingError(
                f"torch_scheduler: every = {self.every!r}; {nearest(str(self.every), ('epoch', 'step'))}"
            )
        self._first()

    def factor(self, at: Progress) -> float:
        """The scheduler's rate after as many of its steps."""
        if self.every == "epoch" and at.batches is None:
            raise SettingError("torch_scheduler needs the number of batches of an epoch: Progress(batches=...)")
        place = at.step if self.every == "step" else at.step // (at.batches or 1)
        if place >= len(self._factors):
            self._extend(place)
        return self._factors[place]

    def _first(self) -> tuple[torch.optim.Optimizer, LRScheduler]:
        optimizer = eager(torch.optim.SGD)([torch.zeros(1)], lr=1.0, momentum=0.9)
        try:
            scheduler = self.factory(optimizer)
        except (TypeError, ValueError) as error:
            raise SettingError(f"rate: the scheduler cannot be made: {' '.join(str(error).split()):.200}") from error
        if isinstance(scheduler, ReduceLROnPlateau):
            raise SettingError("rate: ReduceLROnPlateau listens to a metric; use plateau={'means': {'metric': 'nll'}}")
        if not isinstance(scheduler, LRScheduler):
            raise SettingError(f"rate: the factory made a {type(scheduler).__name__}, not a scheduler of torch")
        return optimizer, scheduler

    def _extend(self, place: int) -> None:
        """The first factors anew, twice as many as before: they are a function of their place."""
        optimizer, scheduler = self._first()
        factors = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # there is no step of the optimizer before the scheduler's
            for _ in range(max(place + 1, 2 * len(self._factors))):
                factors.append(float(optimizer.param_groups[0]["lr"]))
                try:
                    scheduler.step()
                except ValueError:  # a scheduler of so many steps and no more (OneCycleLR)
                    break
        if len(factors) <= place:
            raise SettingError(
                f"rate: the scheduler ends after {len(factors)} of its steps, and step {place} is wanted"
            )
        self._factors[:] = factors


def rate_part(choice: Any) -> Rate | None:
    """A part of a function of ``Progress``, of a scheduler's class, or of a factory of one; None for anything else."""
    kind = choice.func if isinstance(choice, functools.partial) else choice
    if isinstance(kind, type) and issubclass(kind, LRScheduler):
        return TorchScheduler(choice)
    if isinstance(kind, type) or hasattr(choice, "factor") or not callable(choice):
        return None
    rate = RateFunction(choice)
    try:
        rate.factor(Progress(0, 1, 0, 1))
    except SettingError:
        raise
    except Exception as error:
        try:
            return TorchScheduler(choice)
        except Exception:
            raise SettingError(
                f"rate: the function fails at the first step ({type(error).__name__}: {error})"
            ) from error
    return rate
