"""How the learning rate of a sampler changes from step to step, and when noise is added.

A rate is a factor on each group's ``lr``; outer learning-rate schedulers may still change ``lr`` itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ..errors import SettingError, require_count, require_positive


class StepRate(Protocol):
    """A function of the number of steps already taken."""

    def factor(self, step: int) -> float:
        """What ``lr`` is multiplied with."""
        ...

    def noisy(self, step: int) -> bool:
        """Whether this step adds noise."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same rate for ever: mixes well; the bias of the step stays."""

    def factor(self, step: int) -> float:
        return 1.0

    def noisy(self, step: int) -> bool:
        return True


@dataclass(frozen=True)
class Polynomial:
    """lr_t = a (b + t)^-gamma, written as lr (1 + t/b)^-gamma with lr = a b^-gamma the rate of the first step.

    Welling & Teh 2011, section 2: gamma in (1/2, 1], so that the rates sum to infinity and their squares do not.
    """

    gamma: float
    b: float

    def factor(self, step: int) -> float:
        return math.pow(1.0 + step / self.b, -self.gamma)

    def noisy(self, step: int) -> bool:
        return True


@dataclass(frozen=True)
class CosineCycles:
    """lr_t = lr/2 (cos(pi r_t) + 1), where r_t in [0, 1) is the place in the cycle; Zhang et al. 2020, equation 1.

    r_t = frac(t M / K) for M cycles in K steps: the paper's mod(t, ceil(K/M)) / ceil(K/M) where M divides K, but
    without a stump of a cycle at the end where it does not. No noise while r_t < ``exploration``.
    """

    cycles: int
    total_steps: int
    exploration: float

    def place(self, step: int) -> float:
        """r_t."""
        return (step * self.cycles % self.total_steps) / self.total_steps

    @property
    def last_place(self) -> float:
        """The largest r_t of all."""
        return 1.0 - math.gcd(self.cycles, self.total_steps) / self.total_steps

    def factor(self, step: int) -> float:
        return 0.5 * (math.cos(math.pi * self.place(step)) + 1.0)

    def noisy(self, step: int) -> bool:
        return self.place(step) >= self.exploration


def polynomial_or_constant(owner: str, gamma: float | None, b: float) -> StepRate:
    """The rate that the settings ``gamma`` and ``b`` of a sampler ask for."""
    require_positive(owner, "b", b)
    if gamma is None:
        return Constant()
    if not isinstance(gamma, int | float) or not 0.5 < gamma <= 1:
        raise SettingError(f"{owner}: gamma = {gamma!r}; it must lie in (0.5, 1], or be None for a constant rate")
    return Polynomial(gamma, b)


def cosine_cycles(owner: str, cycles: int, total_steps: int | None, exploration: float, collection: float) -> StepRate:
    """The cycles over a planned number of steps, refused if no step would ever be collected."""
    if total_steps is None:
        raise SettingError(f"{owner} needs the planned number of steps: total_steps=...")
    require_count(owner, "total_steps", total_steps)
    rate = CosineCycles(cycles, total_steps, exploration)
    if rate.last_place < collection:
        raise SettingError(
            f"{owner}: {total_steps} steps in {cycles} cycles never reach the place collection = {collection:g} "
            "in a cycle; take more steps or fewer cycles"
        )
    return rate
