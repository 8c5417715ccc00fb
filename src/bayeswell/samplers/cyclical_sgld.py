"""SGLD in cosine cycles: large steps look for modes, small ones draw from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.optim.optimizer import ParamsT

from ..errors import SettingError, require_count
from ..types import Progress
from .fitting import Dynamics, FittedSampler
from .plans import LONG_ENOUGH, Plan, planned
from .rates import CosineCycles, cosine_cycles
from .sgld import SGLDSampler
from .stepping import Sampler, SamplerPart, require_settings

_MOST_CYCLES = 4


@dataclass(frozen=True)
class CyclicalSGLD(SamplerPart):
    """SGLD with a rate that restarts: each of M cycles explores without noise, then samples as the rate falls.

    lr_t = lr/2 (cos(pi r_t) + 1), r_t = frac(t M / K) in K steps; Zhang et al. 2020, equation 1 and algorithm 1. Steps
    with r_t < ``exploration`` (the paper's beta) are plain gradient steps, the others are those of ``sgld``; draws are
    kept where r_t >= ``collection``.

    Exploring without noise ends near a mode, so the first noisy steps are narrower than the posterior; a direction of
    precision lam forgets this as exp(-sum_t lr_t lam / N) over the noisy steps before a draw. That sum over a whole
    stage is lr lam K / (N M) times 0.0064 from r = 0.8, 0.0008 from 0.9 (the authors' CIFAR script, which collects from
    0.94) and 0.09 from 0.5: hence our default, which explores for half of a cycle only. With ``exploration`` = 0
    there is noise everywhere. As the rate falls to 0 the bias of a finite step falls with it.

    ``lr`` None explores by Adam, up to 60 percent of the way from ``exploration`` to ``collection``, and fits the rate
    of each cycle's noisy steps to the curvature where that has led, with a preconditioner from there
    (``fitting.FittedSampler``).

    ``cycles`` None takes as many as have 1,500 steps each, from one to four: a shorter descent does not get to a mode,
    and a chain around an unfinished one is worth little. With one cycle and lr None it is a chain of ``sgld`` that
    descends for less long.
    """

    lr: float | None = 0.2
    temperature: float = 1.0
    cycles: int | None = 4
    exploration: float = 0.5
    collection: float = 0.75

    name: ClassVar[str] = "cyclical_sgld"
    paper: ClassVar[str] = "Zhang et al. 2020"

    def __post_init__(self) -> None:
        require_settings(self.name, self.lr, self.temperature)
        if self.cycles is not None:
            require_count(self.name, "cycles", self.cycles)
        for setting, lowest in (("exploration", 0.0), ("collection", self.exploration)):
            value = getattr(self, setting)
            if not isinstance(value, int | float) or not lowest <= value < 1:
                raise SettingError(f"{self.name}: {setting} = {value!r}; it must lie in [{lowest:g}, 1)")

    def build(
        self, params: ParamsT, dataset_size: int, generator: torch.Generator, total_steps: int | None = None
    ) -> Sampler:
        """The optimizer; it needs ``total_steps``."""
        if self.lr is None:
            given = {"temperature": self.temperature, "dataset_size": dataset_size}
            return FittedSampler(self.name, params, given, self._plan(total_steps), Dynamics(2.0), generator)
        settings = {"lr": self.lr, "temperature": self.temperature, "dataset_size": dataset_size}
        cycles = self.cycles_in(total_steps) if total_steps is not None else self.cycles or 1
        rate = cosine_cycles(self.name, cycles, total_steps, self.exploration, self.collection)
        return SGLDSampler(params, settings, rate, generator)

    def _plan(self, total_steps: int | None) -> Plan:
        steps = planned(self.name, total_steps)
        cycles = self.cycles_in(steps)
        cosine_cycles(self.name, cycles, steps, self.exploration, self.collection)  # refuses what cannot be
        descent = self.exploration + 0.6 * (self.collection - self.exploration)
        return Plan(steps, cycles, descent, self.collection)

    def cycles_in(self, steps: int) -> int:
        """How many cycles a run of so many steps has."""
        return self.cycles if self.cycles is not None else max(1, min(_MOST_CYCLES, steps // LONG_ENOUGH))

    def sampling(self, at: Progress) -> bool:
        """In the last part of each cycle."""
        if at.total_steps is None:
            raise SettingError(f"{self.name} needs the planned number of steps: Progress(total_steps=...)")
        cycles = self.cycles_in(at.total_steps)
        return CosineCycles(cycles, at.total_steps, self.exploration).place(at.step) >= self.collection
